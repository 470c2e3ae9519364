# SPDX-License-Identifier: Apache-2.0
"""Asks the page of ``serve``, which runs as a program of its own, for each of its views."""

import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path

from tools.laboratory.errors import LabError
from tools.laboratory.processes.table import stat_of
from tools.laboratory.processes.usage import seconds_of
from tools.laboratory.records import made_records

#: A view is asked for at most this long.
TIMEOUT_S = 120.0


def views(count: int) -> Mapping[str, str]:
    """Description -> path; of the oldest server, and of hosts and conditions as the commands are asked for."""
    server, host = made_records.server(1), made_records.host(0)
    paths = [
        "/", "/?show=stranded", "/?show=lag", "/records", "/records?project=project-7", f"/records?host={host}",
        "/records?reason=fixed+IP", "/reasons?hours=1", "/reasons?hours=168", f"/why?id={server}",
        f"/why?id={server}&host={host}", f"/host?host={host}", f"/find?q=req-{made_records.server(count // 4)}",
        f"/api/why?id={server}", f"/api/why-not?id={server}&host={host}", "/api/records?count=50",
        f"/api/story?host={host}", "/api/reasons?hours=24", "/api/fleet", "/api/top", "/api/schema",
    ]  # fmt: skip
    return {f"page: {path.replace(server, 'ID').replace(host, 'HOST').partition('req-')[0]}": path for path in paths}


class OverSocket(HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of the host of the name."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Page:
    """The page of these records, and of the schedulers whose sockets are in a directory; its own socket is there."""

    def __init__(self, place: str, sockets: Path) -> None:
        self._path = str(sockets / "page")
        command = ["serve", "--records", place, "--socket-dir", str(sockets), "--listen", self._path]
        self._served = subprocess.Popen(
            [sys.executable, "-m", "shared_scheduler.cmd.manage", *command], stdout=subprocess.PIPE, text=True
        )
        assert self._served.stdout is not None
        self._served.stdout.readline()  # it is served now

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self._served.terminate()
        self._served.communicate()

    def took(self, path: str) -> tuple[float, float]:
        """The time until the view is there, and the CPU time of the page's program.

        :raises LabError: when the view cannot be shown
        """
        begun_s, before_s = time.perf_counter(), self._cpu_s()
        connection = OverSocket(self._path)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status >= 400:
            raise LabError(f"{path}: {answer.status} {text.decode()}")
        return time.perf_counter() - begun_s, self._cpu_s() - before_s

    def _cpu_s(self) -> float:
        stat = stat_of(self._served.pid)
        return seconds_of(stat) if stat else 0.0
