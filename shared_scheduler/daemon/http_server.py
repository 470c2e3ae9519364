# SPDX-License-Identifier: Apache-2.0
"""HTTP servers of the standard library on an address or a Unix socket, each client bounded in time."""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, ClassVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from shared_scheduler.daemon.telemetry_address import TelemetryAddress
from shared_scheduler.transport.unix_sockets import remove_own, remove_socket

LOG = logging.getLogger(__name__)

#: How long a client may take to ask, and to take its answer: others wait for it.
CLIENT_TIMEOUT_S = 5.0
#: The same where clients do not wait for one another, and an answer may need a search of all records.
THREADED_TIMEOUT_S = 60.0
SOCKET_MODE = 0o660
#: Clients that a server with threads answers at the same time; others wait.
CLIENTS_MAX = 64


class TimedHandler(WSGIRequestHandler):
    """Quiet, and bounded in time."""

    whole_s: ClassVar[float | None] = None
    timeout = CLIENT_TIMEOUT_S  # of each read; a client that sends byte by byte meets the bound of ``handle``

    def handle(self) -> None:
        """Answer one client, or disconnect it."""
        bound = threading.Timer(self.whole_s or CLIENT_TIMEOUT_S, self._disconnect)
        bound.daemon = True
        bound.start()
        try:
            super().handle()
        finally:
            bound.cancel()

    def _disconnect(self) -> None:
        with suppress(OSError):  # it has gone
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug(format, *args)

    def address_string(self) -> str:
        return "client"


class PatientHandler(TimedHandler):
    """For servers with threads."""

    whole_s = THREADED_TIMEOUT_S


class TcpServer(WSGIServer):
    """Without a look-up of the machine's own name, which may hang."""

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class Tcp6Server(TcpServer):
    address_family = socket.AF_INET6


class UnixServer(WSGIServer):
    """On a path that only user and group of the process may use; removed at the end."""

    address_family = socket.AF_UNIX
    _bound: os.stat_result | None = None

    def server_bind(self) -> None:
        path = str(self.server_address)
        remove_socket(path)
        self.socket.bind(path)
        self._bound = os.lstat(path)
        os.chmod(path, SOCKET_MODE)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        client, _ = self.socket.accept()
        return client, ("client", 0)  # a client of a Unix socket has no address

    def server_close(self) -> None:
        if self._bound is not None:
            remove_own(str(self.server_address), self._bound)
        super().server_close()


class Threads(ThreadingMixIn):
    """Answers up to ``CLIENTS_MAX`` clients at the same time."""

    daemon_threads = True

    def __init__(self, *given: Any) -> None:
        self._free = threading.BoundedSemaphore(CLIENTS_MAX)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait for a thread; each client ends in time, so one becomes free."""
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class ThreadedTcpServer(Threads, TcpServer):
    """Several clients at a time."""


class ThreadedTcp6Server(Threads, Tcp6Server):
    """Several clients at a time."""


class ThreadedUnixServer(Threads, UnixServer):
    """Several clients at a time."""


def serve_at(address: TelemetryAddress, threads: bool = False) -> WSGIServer:
    """A server that is bound to an address, and listens.

    :raises OSError: when the address cannot be bound
    """
    handler = PatientHandler if threads else TimedHandler
    if address.path:
        kind = ThreadedUnixServer if threads else UnixServer
        return kind(address.path, handler)  # type: ignore[arg-type]
    if ":" in address.host:
        return (ThreadedTcp6Server if threads else Tcp6Server)((address.host, address.port), handler)
    return (ThreadedTcpServer if threads else TcpServer)((address.host, address.port), handler)
