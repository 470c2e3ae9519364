# SPDX-License-Identifier: Apache-2.0
"""Serves metrics and health of one process over HTTP.

============  =====================================================================================================
``/metrics``  the metrics, in the formats of Prometheus
``/live``     200 while the process handles events; a service manager may restart a process that does not answer
``/ready``    200 if it can do its work; 503 with one line for each reason if not
============  =====================================================================================================

One thread serves one client at a time.  A client that is slow is disconnected after ``CLIENT_TIMEOUT_S``.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from shared_scheduler.service.telemetry_address import TelemetryAddress, TelemetryError
from shared_scheduler.transport.unix_sockets import remove_socket

LOG = logging.getLogger(__name__)

#: How long a client may take to ask, and to take its answer: others wait for it.
CLIENT_TIMEOUT_S = 5.0
SOCKET_MODE = 0o660

#: what is wrong, one line each; empty if nothing is
Problems = Callable[[], Iterable[str]]
StartResponse = Callable[..., Any]


class Telemetry:
    """One HTTP server in one thread.  ``registry`` takes collectors and metrics before ``start``."""

    def __init__(self, address: TelemetryAddress, live: Problems, ready: Problems) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._address = address
        self._health: Mapping[str, Problems] = {"/live": live, "/ready": ready}
        self._metrics = make_wsgi_app(self.registry)
        self._server: WSGIServer | None = None

    def start(self) -> None:
        """Bind, and answer in a thread.  Call it after the last fork.

        :raises TelemetryError: when the address cannot be bound
        """
        try:
            self._server = _server(self._address)
        except OSError as error:
            raise TelemetryError(f"metrics_listen = {self._address}: {error.strerror or error}") from error
        self._server.set_app(self._answer)
        threading.Thread(target=self._server.serve_forever, name="telemetry", daemon=True).start()
        LOG.info("Metrics and health are served at %s", self._address)

    def stop(self) -> None:
        """Stop answering.  Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    @property
    def port(self) -> int:
        """The port that is served."""
        assert self._server is not None, "call start() first"
        return int(self._server.server_port)

    def _answer(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics(environ, start_response)
            return found
        problems = self._health.get(path)
        if problems is None:
            return _text(start_response, "404 Not Found", ["/metrics, /live and /ready are served here"])
        try:
            wrong = [*problems()]
        except Exception as error:
            LOG.exception("The health of %s is not known", path)
            wrong = [f"{type(error).__name__}: {error}"]
        return _text(start_response, "503 Service Unavailable" if wrong else "200 OK", wrong or ["ok"])


def _text(start_response: StartResponse, status: str, lines: Iterable[str]) -> list[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return ["".join(f"{line}\n" for line in lines).encode()]


class _Handler(WSGIRequestHandler):
    """Quiet, and bounded in time."""

    timeout = CLIENT_TIMEOUT_S  # of each read; a client that sends byte by byte meets the bound of ``handle``

    def handle(self) -> None:
        """Answer one client, or disconnect it."""
        bound = threading.Timer(CLIENT_TIMEOUT_S, self._disconnect)
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


class _TcpServer(WSGIServer):
    """Without a look-up of the machine's own name, which may hang."""

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Tcp6Server(_TcpServer):
    address_family = socket.AF_INET6


class _UnixServer(WSGIServer):
    """On a path that only user and group of the process may use; removed at the end."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        path = str(self.server_address)
        remove_socket(path)
        self.socket.bind(path)
        os.chmod(path, SOCKET_MODE)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        client, _ = self.socket.accept()
        return client, ("client", 0)  # a client of a Unix socket has no address

    def server_close(self) -> None:
        super().server_close()
        remove_socket(str(self.server_address))


def _server(address: TelemetryAddress) -> WSGIServer:
    """:raises OSError: when the address cannot be bound"""
    if address.path:
        return _UnixServer(address.path, _Handler)  # type: ignore[arg-type]
    kind = _Tcp6Server if ":" in address.host else _TcpServer
    return kind((address.host, address.port), _Handler)
