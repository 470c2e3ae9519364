# SPDX-License-Identifier: Apache-2.0
"""A new compute reports before the database is read.  Until then, a compromised host must not change its row, although
nobody but messages has told yet whose node it is.  The host keys of both are verified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared_scheduler.core import events as ev
from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, Kind, MasterKeys
from shared_scheduler.protocol.messages import (
    BuildResult,
    Consumer,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Role,
    Verdict,
    agent_address,
)
from shared_scheduler.protocol.signing import parse_keyring
from shared_scheduler.transport.channel import Channel
from tests.support.memory_bus import MemoryBus
from tests.unit.attacks.test_one_host_speaks_for_another import MASTER, keys_of
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, host_of, snapshot

NEW, VICTIM, EVIL = "node-1", host_of("node-1"), host_of("node-2")
EPOCH = 5
#: it continues the messages of the new agent, and says that the node is full
FORGED = Increment(NEW, EPOCH, 2, {"cn.vcpus_used": 4, "cn.free_ram_mb": 0}, {"vm-evil": Consumer({NEW: {"VCPU": 4}})})
FIRST = snapshot(NEW, epoch=EPOCH)


class Cell:
    """A scheduler that requires host keys.  Its database was read before the new compute was installed."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.driver = SchedulerDriver()
        self.driver.give(ev.NodesListed(CELL, {}, frozenset(), self.driver.now))
        self._bus = MemoryBus()
        masters = MasterKeys(parse_keyring(f"one:{MASTER.hex()}"))
        own = HostKeys(HostKeysMode.REQUIRE, masters)
        self.channel = Channel(self._bus.scheduler_endpoint("a"), clock=lambda: self.now_s, host_keys=own)
        self.channel.host_of = self.driver.core.nodes.owner_of
        self.channel.start(self._give, lambda connected: None)
        self._senders = {host: self._bus.agent_endpoint(host) for host in (VICTIM, EVIL)}
        for sender in self._senders.values():
            sender.start(lambda bodies: None, lambda connected: None)

    def _give(self, messages: Sequence[Message]) -> None:
        self.driver.hear(*messages)

    def send(self, host: str, *messages: Message) -> None:
        for message in messages:
            self._senders[host].broadcast(keys_of(host).seal(Kind.AGENT, encode(message)))
        self._bus.deliver(1.0)

    def list(self) -> None:
        """The database is read, and has the new node."""
        self.driver.give(ev.NodesListed(CELL, {NEW: VICTIM}, frozenset({NEW}), self.driver.now))

    def row(self) -> str:
        table = self.driver.table
        return json.dumps([table.describe(NEW), table.freshness(NEW).value], default=repr, sort_keys=True)


@pytest.fixture
def cell() -> Cell:
    return Cell()


def after_listing() -> str:
    """The row that the new compute has without an attack."""
    honest = Cell()
    honest.send(VICTIM, FIRST)
    honest.list()
    return honest.row()


HELLO = Hello(Role.AGENT, agent_address(EVIL), EPOCH, NEW, EVIL)
ATTACKS: dict[str, Sequence[Message]] = {
    "an increment": [FORGED],
    "a snapshot": [replace(snapshot(NEW, 2, EPOCH, vcpus=64), host=EVIL)],
    "the end of the agent": [Leave(NEW, EPOCH, 1)],
    "news in a verdict": [Verdict("claim-1", NEW, EPOCH, True, None, 2, (FORGED,))],
    "the end of a build": [BuildResult(NEW, EPOCH, "vm-1", False, "it failed")],
    "a Hello in its own name, then an increment": [HELLO, FORGED],
    "a heartbeat in its own name, then an increment": [Heartbeat(NEW, EPOCH, 1, EVIL, 0), FORGED],
    "a heartbeat of the past, then an increment": [Heartbeat(NEW, EPOCH - 1, 1, EVIL, 0), FORGED],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_its_row_is_as_if_nobody_else_had_spoken(cell: Cell, attack: str) -> None:
    cell.send(VICTIM, FIRST)

    cell.send(EVIL, *ATTACKS[attack])
    cell.send(VICTIM, Heartbeat(NEW, EPOCH, 1, VICTIM, FIRST.digest))
    cell.list()

    assert cell.row() == after_listing()
    assert cell.channel.counters["WrongSender"] == len(ATTACKS[attack])


def test_it_is_heard_although_another_host_has_named_it_first(cell: Cell) -> None:
    # given a host that names the node before its agent does
    cell.send(EVIL, HELLO)
    cell.send(VICTIM, FIRST)

    # when the database is read, its agent is believed
    cell.list()
    cell.send(EVIL, FORGED)
    cell.send(VICTIM, FIRST)

    assert cell.row() == after_listing()


def test_a_host_that_has_fallen_silent_keeps_no_node(cell: Cell) -> None:
    cell.send(EVIL, HELLO)

    cell.now_s += 61.0
    cell.send(VICTIM, FIRST)

    assert cell.driver.core.nodes.host_of(NEW) == VICTIM
