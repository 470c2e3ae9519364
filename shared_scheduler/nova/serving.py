# SPDX-License-Identifier: Apache-2.0
"""Nova's Service with an RPC server that runs only while the mode serves requests.

Nova's Service creates its RPC server and starts it in one method.  ``ModalService`` puts a ``Gate`` in the place of the
server.  The gate starts a new RPC server each time that it opens, because the one before may still answer requests.

At any time one server at least gets the casts to all schedulers, until the gate stops: nova-compute sends them while it
builds and deletes servers, and a build fails if the exchange is gone (``transport/rpc_consumers.py``).  Therefore a
gate that closes goes on to listen to casts, and a new server starts before the one before it ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import oslo_messaging as messaging
from nova import rpc, service
from nova.objects import base as objects_base
from nova.scheduler import rpcapi

from shared_scheduler.conf.mode import CurrentMode, Mode
from shared_scheduler.nova.call_heartbeats import CallHeartbeats
from shared_scheduler.transport.rpc_consumers import cancel_consumers
from shared_scheduler.transport.rpc_waiting import look_no_more, wait_longer

LOG = logging.getLogger(__name__)

#: longest wait for the broker to confirm that it sends no more requests; without a broker there is no answer
CANCEL_TIMEOUT_S = 5.0
#: longest wait for an RPC server to stop; one that waits for the broker stops when the broker answers
STOP_TIMEOUT_S = 5.0
#: Maximum number of closed RPC servers that still answer requests; the next one waits for the oldest.
CLOSING_MAX = 16


class Gate:
    """The RPC server of one Service.  One thread at a time opens and closes it."""

    def __init__(self, server: Any, is_open: bool, another: Callable[[], Any]) -> None:
        """``server``: an RPC server that is not started yet; ``another`` makes one with the same target."""
        self._server = server
        self._another = another
        self._is_open = is_open
        self._is_started = False
        self._listens = False  # closed, and the server still gets casts
        self._closing: deque[threading.Thread] = deque()

    def start(self) -> None:
        """Begin to serve, if the gate is open."""
        self._is_started = True
        if self._is_open:
            _start(self._server)

    def set_open(self, is_open: bool) -> None:
        """Take requests from now on, or take no more; those that were taken are answered in any case."""
        if is_open == self._is_open:
            return
        self._is_open = is_open
        if not self._is_started:
            return
        if is_open:
            self._replace()
        elif cancel_consumers(self._server, CANCEL_TIMEOUT_S, keep_fanout=True):
            self._listens = True
        else:
            self._end(self._server)

    def renew(self) -> None:
        """Serve with new threads, because those of the present server may wait for somebody else."""
        if self._is_open and self._is_started:
            self._listens = True
            self._replace()

    def stop(self) -> None:
        """Take no more requests and casts.  While the broker does not answer, the server stops later.  Idempotent."""
        if self._is_started and (self._is_open or self._listens):
            self._end(self._server)
        self._is_open = self._listens = False

    def wait(self, timeout_s: float = float("inf")) -> None:
        """Return when every request that was taken is answered, or after this time: while the broker is away, no answer
        can be sent."""
        until_s = time.monotonic() + timeout_s
        while self._closing:
            left_s = max(0.0, until_s - time.monotonic())
            self._closing.popleft().join(min(left_s, threading.TIMEOUT_MAX))

    def _replace(self) -> None:
        """Start a server, and then end the one before, if it has not ended."""
        before, self._server = self._server, self._another()
        _start(self._server)
        if self._listens:
            self._listens = False
            self._end(before)

    def _end(self, server: Any) -> None:
        while len(self._closing) >= CLOSING_MAX or (self._closing and not self._closing[0].is_alive()):
            self._closing.popleft().join()
        cancel_consumers(server, CANCEL_TIMEOUT_S)
        stopped = threading.Event()
        ending = threading.Thread(target=_close, args=(server, stopped), name="rpc-closing", daemon=True)
        ending.start()
        self._closing.append(ending)
        stopped.wait(STOP_TIMEOUT_S)


class ModalService(service.Service):
    """Nova's Service, which consumes its topic only in the modes that serve."""

    _gate: Gate | None = None

    @property
    def rpcserver(self) -> Gate | None:
        """The gate, once the Service has created its RPC server."""
        return self._gate

    @rpcserver.setter
    def rpcserver(self, server: Any) -> None:
        if server is None:
            self._gate = None
        else:
            another = partial(self._another, server)
            self._gate = Gate(_with_heartbeats(server), self.manager.mode.serves, another)

    def _another(self, server: Any) -> Any:
        target = messaging.Target(topic=rpcapi.RPC_TOPIC, server=self.host)
        return _with_heartbeats(
            rpc.get_server(target, server.dispatcher.endpoints, objects_base.NovaObjectSerializer())
        )

    def enter(self, mode: Mode) -> None:
        """Change the mode.  Requests that were taken before are answered as they began.

        :raises StockAwayError: when no nova-scheduler answers to which requests could be passed on; nothing changes
        """
        current: CurrentMode = self.manager.mode
        if mode is current.value:
            return
        if mode is Mode.SHADOW:
            self.manager.stock.check()
        before = current.value
        LOG.info("Mode: %s, until now %s", mode, before)
        if self._gate is not None and mode is Mode.OBSERVE:
            self._gate.set_open(False)  # before the mode is told: it takes no request any more
        current.change(mode)
        if self._gate is not None:
            self._gate.set_open(current.serves)
            if before is Mode.SHADOW:  # its requests may wait long for a nova-scheduler that is away
                self._gate.renew()


def _start(server: Any) -> None:
    server.start()
    wait_longer(server)


def _close(server: Any, stopped: threading.Event) -> None:
    server.stop()
    look_no_more(server)
    stopped.set()
    server.wait()


def _with_heartbeats(server: Any) -> Any:
    """The RPC server, with one thread for the heartbeats of all its calls."""
    server.dispatcher = CallHeartbeats(server.dispatcher)
    return server
