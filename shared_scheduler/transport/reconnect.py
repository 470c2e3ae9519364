# SPDX-License-Identifier: Apache-2.0
"""Keeps a connection: back-off with jitter, the next broker after each failure, one log line for each outage."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from amqp.exceptions import AMQPError
from kombu import Connection
from kombu.exceptions import KombuError

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.plain_messages import plain_frames
from shared_scheduler.transport.read_ahead import read_ahead
from shared_scheduler.transport.urls import BrokerUrl

LOG = logging.getLogger(__name__)

#: The errors that a broker, a network or an administrator can cause.
LOST = (OSError, AMQPError, KombuError)


class Reconnector:
    """Runs ``serve`` on one connection after the other until it is stopped.

    ``name`` and ``what`` ("receives", "sends") are for logs and for the broker's list of connections; ``rng`` selects
    the order of the brokers and the waits.
    """

    def __init__(self, url: BrokerUrl, name: str, what: str, stopping: threading.Event, rng: random.Random) -> None:
        self._url = url
        self._rng = rng
        self._name = name
        self._what = what
        self._stopping = stopping
        self._told = ""  # the error that was logged last; empty while the connection works
        self._keep_alive_at_s = 0.0

    def run(self, serve: Callable[[Connection], None], lost: Callable[[], None]) -> None:
        """Connect and serve; ``serve`` returns when stopping, or raises; ``lost`` is called after each connection."""
        attempts = 0
        for arguments in self._url.connections(self._rng):
            if self._stopping.is_set():
                return
            attempts = 0 if self._serve_once(arguments, serve) else attempts + 1
            lost()
            self._stopping.wait(transport_settings.RECONNECT_BACKOFF.wait_s(self._rng, attempts))

    def _serve_once(self, arguments: Mapping[str, Any], serve: Callable[[Connection], None]) -> bool:
        """Serve one connection; returns whether it held for a while."""
        served_since_s = None
        try:
            with self._connected(arguments) as connection:
                served_since_s = time.monotonic()
                self._note_return()
                serve(connection)
        except LOST as problem:
            self._note_loss(problem, served_since_s is not None)
        except Exception:  # a bug must not end the thread, because nothing would report that
            LOG.exception("%s stopped %s; connecting again", self._name, self._what)
        return (
            served_since_s is not None
            and time.monotonic() - served_since_s > transport_settings.RECONNECT_BACKOFF.max_s
        )

    @contextmanager
    def _connected(self, arguments: Mapping[str, Any]) -> Iterator[Connection]:
        connection = self._connect(arguments)
        try:
            _bound_answers(connection, transport_settings.ANSWER_TIMEOUT_S)
            _read_ahead(connection)
            yield connection
        finally:
            _bound_answers(connection, transport_settings.FAREWELL_TIMEOUT_S)
            connection.release()

    def _connect(self, arguments: Mapping[str, Any]) -> Connection:
        connection = Connection(
            **arguments,
            connect_timeout=transport_settings.CONNECT_TIMEOUT_S,
            heartbeat=transport_settings.AMQP_HEARTBEAT_S,
            transport_options=_transport_options(f"{self._name} {self._what}"),
        )
        try:
            connection.connect()
        except BaseException:
            connection.release()
            raise
        return connection

    def keep_alive(self, connection: Connection) -> None:
        """Send heartbeats; must be called often, after reading.  Raises if the broker has sent none for too long."""
        now_s = time.monotonic()
        if now_s >= self._keep_alive_at_s and connection.supports_heartbeats and connection.heartbeat:
            self._keep_alive_at_s = now_s + 1.0
            connection.heartbeat_check(rate=2)

    def _note_return(self) -> None:
        if self._told:
            LOG.info("%s %s again with the message queue at %s", self._name, self._what, self._url)
            self._told = ""

    def _note_loss(self, problem: BaseException, was_connected: bool) -> None:
        """Log one line for an outage, not one for each attempt."""
        reason = str(problem).strip().replace("\n", " ") or type(problem).__name__
        if self._stopping.is_set() or self._told:
            return
        self._told = reason
        if was_connected:
            LOG.warning("%s lost the message queue at %s (%s); reconnecting", self._name, self._url, reason)
        else:
            LOG.error(
                "%s cannot reach the message queue at %s (%s); retrying until it answers. "
                "Check transport_url, and that the broker runs and accepts this user",
                self._name,
                self._url,
                reason,
            )


def read_one(connection: Connection, timeout_s: float) -> bool:
    """Handle one frame; False when none arrived in time."""
    try:
        connection.drain_events(timeout=timeout_s)
    except TimeoutError:  # socket.timeout is an alias
        return False
    return True


def _bound_answers(connection: Connection, timeout_s: float) -> None:
    """Limit the wait for answers of the broker, which is otherwise endless while TCP stays connected."""
    if connection.connected:
        sock = getattr(connection.connection, "sock", None)  # None with kombu's memory transport
        if sock is not None:
            sock.settimeout(timeout_s)


def _read_ahead(connection: Connection) -> None:
    if connection.transport.driver_type == "amqp":  # kombu's memory transport has no socket
        read_ahead(connection.connection)


def _transport_options(connection_name: str) -> dict[str, Any]:
    return {
        "polling_interval": 0.01,  # of kombu's memory transport, in seconds
        "client_properties": {"connection_name": connection_name},
        "frame_handler": plain_frames,
    }
