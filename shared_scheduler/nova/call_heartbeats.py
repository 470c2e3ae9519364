# SPDX-License-Identifier: Apache-2.0
"""Heartbeats of calls that last long, sent by one thread.

nova-conductor waits up to half an hour for an answer, but only while it hears heartbeats of the call.  oslo.messaging
starts a thread for each call that may have to send them, and waits for its end before it answers.  A call is answered
long before its first heartbeat is due, so here one thread watches all calls.  It wakes up when the first heartbeat of a
call would be due, and not for each call.  If there is no call then, it ends, because another server may have begun.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOG = logging.getLogger(__name__)

#: Heartbeats within the time for which the caller waits for one.
HEARTBEATS = 2
#: The shortest interval; oslo.messaging sends none to a caller that waits less than two seconds.
INTERVAL_MIN_S = 1.0


@dataclass(slots=True, eq=False)
class _Call:
    incoming: Any
    interval_s: float
    due_s: float


class CallHeartbeats:
    """Stands before the dispatcher of an RPC server."""

    def __init__(self, dispatcher: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._calls: set[_Call] = set()
        self._changed = threading.Condition()
        self._wakes_s = 0.0  # while a thread waits
        self._thread: threading.Thread | None = None

    @property
    def endpoints(self) -> Any:
        """The objects whose methods are called."""
        return self._dispatcher.endpoints

    def dispatch(self, incoming: Any) -> Any:
        """Call the method of a message and return its result.  Raises what the method raises."""
        call = self._call_of(incoming)
        if call is None:
            return self._dispatcher.dispatch(incoming)
        self._add(call)
        incoming.client_timeout = None  # otherwise the dispatcher starts a thread
        try:
            return self._dispatcher.dispatch(incoming)
        finally:
            with self._changed:
                self._calls.discard(call)

    def _call_of(self, incoming: Any) -> _Call | None:
        """None: the caller waits for no heartbeats, or the dispatcher has to refuse the time."""
        try:
            interval_s = int(incoming.client_timeout or 0) / HEARTBEATS
        except ValueError:
            return None
        return None if interval_s < INTERVAL_MIN_S else _Call(incoming, interval_s, self._clock() + interval_s)

    def _add(self, call: _Call) -> None:
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="call-heartbeats", daemon=True)
                thread.start()
                self._thread = thread
            elif call.due_s < self._wakes_s:
                self._changed.notify()
            self._calls.add(call)

    def _work(self) -> None:
        while (due := self._due()) is not None:
            for call in due:
                self._send_heartbeat(call)

    def _due(self) -> list[_Call] | None:
        """Wait until the first heartbeat is due; returns the calls that need one.  None: there are no calls."""
        with self._changed:
            if not self._calls:
                self._thread = None
                return None
            self._wakes_s = min(call.due_s for call in self._calls)
            self._changed.wait(max(0.0, self._wakes_s - self._clock()))
            now = self._clock()
            due = [call for call in self._calls if call.due_s <= now]
            for call in due:
                call.due_s = now + call.interval_s
        return due

    def _send_heartbeat(self, call: _Call) -> None:
        """Send one; its failure is no reason to send no more, because the broker may come back."""
        try:
            call.incoming.heartbeat()
        except Exception as error:
            LOG.debug("A heartbeat of a call was not sent: %s", error)
