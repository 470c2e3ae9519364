# SPDX-License-Identifier: Apache-2.0
"""The simulated network carries a broadcast to whom the product's exchanges would."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.protocol import codec
from shared_scheduler.protocol.messages import Heartbeat, Hello, Increment, Message, Role, Want
from shared_scheduler.sim.agenda import Agenda, Trace
from shared_scheduler.sim.network import Network, NetworkFaults

EVERYBODY = ("scheduler-1", "scheduler-2", "agent-1", "agent-2")


def heard_by(sender: str, message: Message) -> list[str]:
    agenda = Agenda()
    network = Network(agenda, Random(1), NetworkFaults(), Trace(agenda))
    heard: list[str] = []
    for name in EVERYBODY:
        network.join(name, name.startswith("scheduler"), lambda _, name=name: heard.append(name))  # type: ignore[misc]
    network.broadcast(sender, message)
    agenda.run_until(1.0)
    return sorted(heard)


def hello(want: Want) -> Hello:
    return Hello(Role.SCHEDULER, "scheduler-1", 1, "", "", want, 0)


@pytest.mark.parametrize("want", [Want.HEARTBEAT, Want.SNAPSHOT])
def test_a_scheduler_that_wants_something_is_heard_by_all_others(want: Want) -> None:
    assert heard_by("scheduler-1", hello(want)) == ["agent-1", "agent-2", "scheduler-2"]


def test_messages_between_schedulers_reach_no_agent() -> None:
    assert heard_by("scheduler-1", hello(Want.NOTHING)) == ["scheduler-2"]


def test_an_agents_broadcast_reaches_schedulers_only() -> None:
    assert heard_by("agent-1", Heartbeat("node-1", 1, 1, "host-1", 0)) == ["scheduler-1", "scheduler-2"]


def bodies_decoded(decode_each: bool, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the codec reads one increment that is for three schedulers."""
    agenda, decoded = Agenda(), list[bytes]()

    def decode(body: bytes) -> Message:
        decoded.append(body)
        return real(body)

    real = codec.decode
    monkeypatch.setattr(codec, "decode", decode)
    network = Network(agenda, Random(1), NetworkFaults(), Trace(agenda), decode_each)
    for name in ("scheduler-1", "scheduler-2", "scheduler-3"):
        network.join(name, True, lambda _: None)
    network.broadcast("agent-1", Increment("node-1", 1, 1, {"cn.vcpus": 4}, {}, {}))
    agenda.run_until(1.0)
    return len(decoded)


def test_a_broadcast_is_decoded_once_or_by_each_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bodies_decoded(False, monkeypatch) == 1
    assert bodies_decoded(True, monkeypatch) == 3
