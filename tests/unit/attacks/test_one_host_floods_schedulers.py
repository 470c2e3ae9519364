# SPDX-License-Identifier: Apache-2.0
"""A compromised host sends valid messages of its own node as fast as it can: schedulers must not decode them all."""

from __future__ import annotations

import logging

import pytest

from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, Kind, MasterKeys, agent_line, parse_agent_keys
from shared_scheduler.protocol.limits import HOST_BURST_KIB, HOST_KIB_PER_S
from shared_scheduler.protocol.messages import Heartbeat, Message, Snapshot
from shared_scheduler.protocol.signing import parse_keyring
from shared_scheduler.transport.channel import Channel
from tests.support.memory_bus import MemoryBus

MASTER = bytes(range(32))
EVIL, OTHER = "compute-evil", "compute-other"
FLOOD_S = 10


class Cell:
    """A scheduler that requires host keys, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.heard: list[Message] = []
        keys = HostKeys(HostKeysMode.REQUIRE, MasterKeys(parse_keyring(f"one:{MASTER.hex()}")))
        self.bus = MemoryBus()
        self.channel = Channel(self.bus.scheduler_endpoint("a"), clock=lambda: self.now, host_keys=keys)
        self.channel.start(self.heard.extend, lambda connected: None)
        self.endpoints = {host: self.bus.agent_endpoint(host) for host in (EVIL, OTHER)}
        for endpoint in self.endpoints.values():
            endpoint.start(lambda bodies: None, lambda connected: None)

    def send(self, host: str, *messages: Message) -> int:
        """Sign and deliver; returns how many of them were heard."""
        keys = HostKeys(HostKeysMode.REQUIRE, parse_agent_keys(agent_line("one", MASTER, host), host))
        before = len(self.heard)
        for message in messages:
            self.endpoints[host].broadcast(keys.seal(Kind.AGENT, encode(message)))
        self.bus.deliver(self.now)
        return len(self.heard) - before


def beat(host: str, sequence: int) -> Heartbeat:
    return Heartbeat(f"node of {host}", 1, sequence, host, 0)


def large(sequence: int) -> Snapshot:
    leaves = {f"cn.{n}": "y" * 16_000 for n in range(60)}
    return Snapshot(f"node of {EVIL}", 1, sequence, EVIL, leaves, {}, {}, 0)


def test_large_messages_of_one_host_are_bounded_in_bytes() -> None:
    cell, heard = Cell(), 0

    for second in range(FLOOD_S):
        heard += cell.send(EVIL, *(large(second * 20 + n) for n in range(20)))
        cell.now += 1.0

    allowed_kib = HOST_BURST_KIB + FLOOD_S * HOST_KIB_PER_S
    assert heard <= allowed_kib / (len(encode(large(1))) / 1024)
    assert cell.channel.counters["SenderTooFast"] == FLOOD_S * 20 - heard


def test_small_messages_of_one_host_are_bounded_in_number() -> None:
    cell = Cell()

    heard = cell.send(EVIL, *(beat(EVIL, n) for n in range(5_000)))

    assert heard <= HOST_BURST_KIB / 4


def test_others_are_heard_meanwhile_and_it_is_heard_again_later(caplog: pytest.LogCaptureFixture) -> None:
    cell = Cell()
    with caplog.at_level(logging.WARNING):
        cell.send(EVIL, *(large(n) for n in range(20)))

    assert cell.send(OTHER, beat(OTHER, 1)) == 1
    assert cell.send(EVIL, large(21)) == 0
    assert f"host {EVIL}" in caplog.text
    cell.now += FLOOD_S
    assert cell.send(EVIL, large(22)) == 1


def test_a_busy_host_is_heard() -> None:
    """A hundred claims a second with their increments, for a minute."""
    cell = Cell()
    for second in range(60):
        assert cell.send(EVIL, *(beat(EVIL, second * 200 + n) for n in range(200))) == 200
        cell.now += 1.0
