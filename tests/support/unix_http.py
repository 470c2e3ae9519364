# SPDX-License-Identifier: Apache-2.0
"""HTTP over a Unix socket, as Prometheus or a probe asks a process of this machine."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path


class OverUnixSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))


def get(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found
