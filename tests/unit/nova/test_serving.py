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

WAIT_S = 30.0


@pytest.fixture
def server() -> Iterator[Callable[[], Any]]:
    """Makes RPC servers of one target, on oslo.messaging's transport for tests."""
    conf = cfg.ConfigOpts()
    conf([])
    with ConfFixture(conf):
        transport = messaging.get_rpc_transport(conf, "fake:/")
        yield lambda: messaging.get_rpc_server(transport, messaging.Target(topic="scheduler", server="one"), [])


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


def in_background(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_a_stop_while_the_gate_opens_does_not_wait_for_an_absent_broker(
    server: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a gate that another thread opens while the broker is away
    gate = Gate(server(), is_open=False, another=server)
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
