# SPDX-License-Identifier: Apache-2.0
"""Serves metrics and health of one process over HTTP.

============  =====================================================================================================
``/metrics``  the metrics, in the formats of Prometheus
``/live``     200 while the process handles events; a service manager may restart a process that does not answer
``/ready``    200 if it can do its work; 503 with one line for each reason if not
============  =====================================================================================================

One thread serves one client at a time.  A client that is slow is disconnected after some seconds (``http_server.py``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from shared_scheduler.daemon.http_server import serve_at
from shared_scheduler.daemon.telemetry_address import TelemetryAddress, TelemetryError, TelemetryUnavailableError

LOG = logging.getLogger(__name__)

#: what is wrong, one line each; empty if nothing is
Problems = Callable[[], Iterable[str]]
StartResponse = Callable[..., Any]
#: errors of a bind that only an operator can remove: another kind of file has the path, or permissions are missing
WRONG_PLACE = (FileExistsError, NotADirectoryError, PermissionError)


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

        :raises TelemetryUnavailableError: when the address cannot be bound at present
        :raises TelemetryError: when it can never be bound
        """
        try:
            self._server = serve_at(self._address)
        except OverflowError as error:  # of one of several workers
            text = f"metrics_listen = {self._address}: there is no such port; give the first worker a lower one"
            raise TelemetryError(text) from error
        except OSError as error:
            kind = TelemetryError if isinstance(error, WRONG_PLACE) else TelemetryUnavailableError
            raise kind(f"metrics_listen = {self._address}: {error.strerror or error}") from error
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
