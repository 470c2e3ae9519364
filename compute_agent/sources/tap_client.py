# SPDX-License-Identifier: Apache-2.0
"""Reads the socket of the tap inside nova-compute, and reconnects when the connection is lost."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from compute_agent.tap_wire import FRAME_MAX_BYTES, Assembler, Busy, TapError, TapHello, TapMessage
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

#: Between two attempts to connect: nova-compute's restart is noticed within this time.
RETRY_S = 0.5


class TapClient:
    """Calls ``heard`` for each message and ``lost`` when the connection ends, from one thread.

    The connection is closed if the tap belongs to a nova-compute on another host than ``host``.
    """

    def __init__(self, path: str, host: str, heard: Callable[[TapMessage], None], lost: Callable[[str], None]) -> None:
        self.path = path
        self._host = host
        self._heard = heard
        self._lost = lost
        self._stop = threading.Event()
        self._socket: socket.socket | None = None
        self._log = RateLimitedLog(LOG)
        self._thread = threading.Thread(target=self._run, name="tap-client", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        open_socket = self._socket
        if open_socket is not None:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=2 * RETRY_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen()
            except (OSError, TapError) as error:
                self._log_error(error)
            except Exception:
                LOG.exception("reading the tap failed")
            self._stop.wait(RETRY_S)

    def _listen(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(self.path)
            self._socket = connection
            try:
                self._read(connection)
            finally:
                self._socket = None

    def _read(self, connection: socket.socket) -> None:
        assembler = Assembler()
        spoke = False
        try:
            while frame := connection.recv(FRAME_MAX_BYTES):
                message = assembler.feed(frame)
                if message is not None:
                    self._check(message)
                    spoke = True
                    self._heard(message)
        finally:
            if spoke:
                self._lost("nova-compute closed the tap's socket")

    def _check(self, message: TapMessage) -> None:
        match message:
            case Busy():
                raise TapError("nova-compute is connected to another agent already: stop one of the two")
            case TapHello(host=host) if host != self._host:
                raise TapError(
                    f"this is the tap of nova-compute on host {host}, and this agent is for "
                    f"{self._host}: give both the same nova.conf"
                )

    def _log_error(self, error: Exception) -> None:
        """Log an error.  An absent socket is logged as INFO, because it is normal while nova-compute is down."""
        kind = type(error).__name__
        if isinstance(error, TapError):
            self._log.write(logging.ERROR, kind, "tap: %s", error)
        else:
            line = "the tap cannot be reached at %s (%s): waiting for nova-compute with [compute_agent] tap_enabled"
            self._log.write(logging.INFO, kind, line, self.path, error)
