# SPDX-License-Identifier: Apache-2.0
"""A compromised compute has the keys of its host.  It must not speak for another host, nor for a scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import pytest

from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, Kind, MasterKeys, agent_line, parse_agent_keys
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Release,
    Resync,
    Role,
    Snapshot,
    Usage,
    Verdict,
    Want,
    agent_address,
)
from shared_scheduler.protocol.signing import parse_keyring
from shared_scheduler.transport.channel import Channel
from tests.support.memory_bus import MemoryBus

MASTER = bytes(range(32))
VICTIM, EVIL = "compute-victim", "compute-evil"
HOSTS = {"node-victim": VICTIM, "node-evil": EVIL}
SCHEDULER = "ssched.scheduler.a"


def keys_of(host: str) -> HostKeys:
    return HostKeys(HostKeysMode.REQUIRE, parse_agent_keys(agent_line("one", MASTER, host), host))


def of_node(node: str, host: str) -> Mapping[str, Message]:
    """One message of each type that an agent sends."""
    return {
        "hello": Hello(Role.AGENT, agent_address(host), 7, node, host),
        "snapshot": Snapshot(node, 7, 3, host, {}, {}, {}, 0),
        "increment": Increment(node, 7, 3),
        "heartbeat": Heartbeat(node, 7, 3, host, 0),
        "leave": Leave(node, 7, 3),
        "verdict": Verdict("claim-1", node, 7, True),
        "build result": BuildResult(node, 7, "vm-1", True),
    }


OF_SCHEDULERS: Mapping[str, Message] = {
    "claim": Claim("claim-1", "node-victim", SCHEDULER, "vm-1", {}, Usage()),
    "release": Release("claim-1", "node-victim", SCHEDULER, "vm-1"),
    "resync": Resync("node-victim", SCHEDULER, 7, 3),
    "hello": Hello(Role.SCHEDULER, SCHEDULER, 1, want=Want.SNAPSHOT),
}


class Cell:
    """A scheduler and the victim's agent, which require host keys, and what the compromised host sends."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.at_scheduler: list[Message] = []
        self.at_victim: list[Message] = []
        masters = MasterKeys(parse_keyring(f"one:{MASTER.hex()}"))
        own = HostKeys(HostKeysMode.REQUIRE, masters)
        self.scheduler = Channel(self.bus.scheduler_endpoint("a"), host_keys=own)
        self.scheduler.host_of = lambda node: HOSTS.get(node, "")
        self.scheduler.start(self.at_scheduler.extend, lambda connected: None)
        self.victim = Channel(self.bus.agent_endpoint(VICTIM), host_keys=keys_of(VICTIM))
        self.victim.start(self.at_victim.extend, lambda connected: None)
        self.evil = self.bus.agent_endpoint(EVIL)
        self.evil.start(lambda bodies: None, lambda connected: None)

    def send(self, body: bytes) -> None:
        """By broadcast, and by a cast to each."""
        self.evil.broadcast(body)
        for address in (self.scheduler.address, self.victim.address):
            self.evil.cast(address, body)
        self.bus.deliver(1.0)


@pytest.fixture
def cell() -> Cell:
    return Cell()


def sealed(message: Message) -> bytes:
    return keys_of(EVIL).seal(Kind.AGENT, encode(message))


@pytest.mark.parametrize("kind", of_node("node-evil", EVIL))
def test_messages_for_its_own_node_are_accepted(cell: Cell, kind: str) -> None:
    message = of_node("node-evil", EVIL)[kind]

    cell.send(sealed(message))

    assert cell.at_scheduler == [message, message]
    assert cell.at_victim == []


@pytest.mark.parametrize("named", [VICTIM, EVIL])
@pytest.mark.parametrize("kind", of_node("node-victim", VICTIM))
def test_messages_for_the_node_of_another_host_are_dropped(
    cell: Cell, kind: str, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        cell.send(sealed(of_node("node-victim", named)[kind]))

    assert cell.at_scheduler == []
    assert cell.scheduler.counters["WrongSender"] == 2
    assert f"host {EVIL} has sent a" in caplog.text  # the operator is told who


@pytest.mark.parametrize("kind", OF_SCHEDULERS)
def test_messages_in_the_name_of_a_scheduler_are_dropped(cell: Cell, kind: str) -> None:
    cell.send(sealed(OF_SCHEDULERS[kind]))

    assert cell.at_scheduler == []
    assert cell.at_victim == []


@pytest.mark.parametrize("forge", [lambda body: body, lambda body: b"\xc1\x01\x03old" + b"\0" * 32 + body])
@pytest.mark.parametrize("message", [*of_node("node-victim", VICTIM).values(), *OF_SCHEDULERS.values()])
def test_messages_of_a_broker_user_without_a_key_are_dropped(
    cell: Cell, message: Message, forge: Callable[[bytes], bytes]
) -> None:
    cell.send(forge(encode(message)))

    assert cell.at_scheduler == []
    assert cell.at_victim == []


def test_a_captured_hello_is_answered_once(cell: Cell) -> None:
    """Agents answer it with a snapshot each, so a replay would be amplified."""
    captured = list[bytes]()
    thief = cell.bus.agent_endpoint("thief")
    thief.start(captured.extend, lambda connected: None)
    cell.scheduler.broadcast(OF_SCHEDULERS["hello"])
    cell.bus.deliver(1.0)

    for _ in range(10):
        cell.send(captured[0])

    assert cell.at_victim == [OF_SCHEDULERS["hello"]]
