# SPDX-License-Identifier: Apache-2.0
"""HTTP over a Unix socket, as Prometheus or a probe asks a process of this machine."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

#: a process may be slow to answer on a busy machine
WAIT_S = 60.0


class OverUnixSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(self._path))


def listens(path: Path) -> bool:
    """Whether a process takes connections there: the file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def get(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found
