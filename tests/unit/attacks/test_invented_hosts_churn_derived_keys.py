# SPDX-License-Identifier: Apache-2.0
"""Envelopes without a valid code name a new host each.  All channels of a scheduler share its keys, and a cache that
always evicts raised in one thread what another one was just reading: whole batches of honest messages were lost."""

from __future__ import annotations

from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, Kind, MasterKeys, agent_line, parse_agent_keys
from shared_scheduler.protocol.signing import parse_keyring

MASTER = bytes(range(32))
HOST = "compute-1"


def test_only_hosts_whose_code_is_right_are_remembered() -> None:
    masters = MasterKeys(parse_keyring(f"one:{MASTER.hex()}"))
    scheduler = HostKeys(HostKeysMode.REQUIRE, masters)
    thief = HostKeys(HostKeysMode.REQUIRE, parse_agent_keys(agent_line("one", bytes(32), HOST), HOST))

    for number in range(100):
        forged = thief.seal(Kind.AGENT, b"x").replace(HOST.encode(), f"{number:09}".encode())
        assert scheduler.open(forged)[1] is None
    assert masters.remembered == 0

    agent = HostKeys(HostKeysMode.REQUIRE, parse_agent_keys(agent_line("one", MASTER, HOST), HOST))
    for _ in range(2):
        _, sender, _ = scheduler.open(agent.seal(Kind.AGENT, b"x"))
        assert sender is not None and sender.host == HOST
    assert masters.remembered == 1


def test_a_host_that_is_written_to_is_remembered() -> None:
    masters = MasterKeys(parse_keyring(f"one:{MASTER.hex()}"))
    scheduler = HostKeys(HostKeysMode.REQUIRE, masters)

    for _ in range(2):
        scheduler.seal(Kind.TO_AGENT, b"x", HOST)

    assert masters.remembered == 1
