# SPDX-License-Identifier: Apache-2.0
"""Heartbeats of calls: one thread for all, and oslo.messaging's own dispatcher behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_messaging.rpc.dispatcher import RPCDispatcher

from shared_scheduler.nova.call_heartbeats import CallHeartbeats

WAIT_S = 30.0


class Incoming:
    """A call as the driver hands it over; ``beaten`` is set with its second heartbeat."""

    def __init__(self, client_timeout: object, method: str = "select") -> None:
        self.client_timeout = client_timeout
        self.ctxt: dict[str, Any] = {}
        self.message = {"method": method, "args": {}}
        self.heartbeats = 0
        self.beaten = threading.Event()

    def heartbeat(self) -> None:
        self.heartbeats += 1
        if self.heartbeats == 1:
            raise ConnectionError("the broker is away")
        self.beaten.set()


class Endpoint:
    """``select`` runs what the test gives it."""

    target = messaging.Target(version="1.0")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def select(self, _context: object) -> object:
        return self._work()


def calls(work: Callable[[], object]) -> CallHeartbeats:
    return CallHeartbeats(RPCDispatcher([Endpoint(work)], None))


def test_a_call_that_lasts_long_sends_heartbeats_although_one_fails() -> None:
    incoming = Incoming(2)
    assert calls(lambda: incoming.beaten.wait(WAIT_S)).dispatch(incoming) is True
    assert incoming.heartbeats >= 2


def test_calls_need_one_thread_altogether(monkeypatch: pytest.MonkeyPatch) -> None:
    # given calls of a caller that waits for heartbeats: one that lasts, because the thread ends without calls
    started, start, here = list[str](), threading.Thread.start, threading.current_thread()

    def noted(thread: threading.Thread) -> None:
        if threading.current_thread() is here:  # others may work beside this test
            started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    heartbeats = calls(lambda: "answer")
    lasts = heartbeats._call_of(Incoming(600))
    assert lasts is not None
    heartbeats._add(lasts)
    # when many come that are answered at once
    answers = {heartbeats.dispatch(Incoming(60)) for _ in range(20)}
    # then one thread was started for all
    assert (answers, started) == ({"answer"}, ["call-heartbeats"])


def test_a_server_without_calls_keeps_no_thread_and_the_next_call_gets_heartbeats() -> None:
    # given a server that has answered a call, and may get no more
    first, second = Incoming(2), Incoming(2)
    heartbeats = calls(lambda: second.beaten.wait(WAIT_S))
    second.beaten.set()
    heartbeats.dispatch(first)
    # when the first heartbeat would be due, then its thread ends
    thread = heartbeats._thread
    if thread is not None:  # it has not ended yet
        thread.join(WAIT_S)
    assert heartbeats._thread is None
    # and another one watches the next call
    second.beaten.clear()
    assert heartbeats.dispatch(second) is True


@pytest.mark.parametrize("client_timeout", [None, 0, 1, "soon"])
def test_a_caller_that_waits_for_no_heartbeats_gets_none(client_timeout: object) -> None:
    incoming = Incoming(client_timeout)
    assert calls(lambda: "answer").dispatch(incoming) == "answer"
    assert incoming.client_timeout == client_timeout and incoming.heartbeats == 0


def test_errors_are_those_of_the_dispatcher() -> None:
    def fail() -> object:
        raise ZeroDivisionError

    heartbeats = calls(fail)
    with pytest.raises(ZeroDivisionError):
        heartbeats.dispatch(Incoming(60))
    with pytest.raises(messaging.NoSuchMethod):
        heartbeats.dispatch(Incoming(60, "unknown"))
