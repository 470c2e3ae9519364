# SPDX-License-Identifier: Apache-2.0
"""The gate before oslo.messaging's RPC server, while a broker lets it wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from oslo_messaging.conffixture import ConfFixture
from oslo_messaging.rpc.server import RPCServer

from shared_scheduler.nova.serving import Gate
from shared_scheduler.transport.rpc_waiting import listener_of

WAIT_S = 30.0


class Endpoint:
    """Answers once it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def ask(self, _context: object) -> bool:
        self.asked.set()
        return self.may_answer.wait(WAIT_S)


class Nova:
    """Makes RPC servers of one target, and calls them."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.endpoint = Endpoint()
        self._transport = messaging.get_rpc_transport(conf, "kombu+memory:////")

    def server(self) -> Any:
        target = messaging.Target(topic="scheduler", server="one")
        return messaging.get_rpc_server(self._transport, target, [self.endpoint])

    def call(self) -> Any:
        return messaging.get_rpc_client(self._transport, messaging.Target(topic="scheduler")).call({}, "ask")


@pytest.fixture
def nova() -> Iterator[Nova]:
    """On kombu's memory transport."""
    conf = cfg.ConfigOpts()
    conf([])
    with ConfFixture(conf):
        yield Nova(conf)


class Broker:
    """Lets servers wait from now on until it ``answers``, as an absent one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.asked = threading.Event()
        listen = RPCServer._create_listener

        def late(server: Any) -> Any:
            self.asked.set()
            self.answers.wait()
            return listen(server)

        monkeypatch.setattr(RPCServer, "_create_listener", late)


def in_background(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_a_stop_while_the_gate_opens_does_not_wait_for_an_absent_broker(
    nova: Nova, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a gate that another thread opens while the broker is away
    gate = Gate(nova.server(), is_open=False, another=nova.server)
    gate.start()
    broker = Broker(monkeypatch)
    opening = in_background(lambda: gate.set_open(True))
    assert broker.asked.wait(WAIT_S)

    # when it stops, then the rest of the stop is not delayed for ever
    stopping = in_background(gate.stop)
    stopping.join(WAIT_S)
    is_delayed = stopping.is_alive()

    # and the server stops when the broker answers
    broker.answers.set()
    for thread in (opening, stopping):
        thread.join(WAIT_S)
    gate.wait()
    assert not is_delayed
    assert not gate._server._started


def test_a_server_that_waits_for_its_last_request_does_not_look_for_work(nova: Nova) -> None:
    # given a server with a request that takes its time
    gate = Gate(nova.server(), is_open=True, another=nova.server)
    gate.start()
    caller = in_background(nova.call)
    assert nova.endpoint.asked.wait(WAIT_S)
    background = listener_of(gate._server)._message_operations_handler._shutdown_thread

    # when it stops, then the thread that oslo.messaging starts for acknowledgements ends
    gate.stop()
    background.join(WAIT_S / 2)
    has_ended = not background.is_alive()
    nova.endpoint.may_answer.set()
    gate.wait()
    caller.join(WAIT_S)
    assert has_ended
