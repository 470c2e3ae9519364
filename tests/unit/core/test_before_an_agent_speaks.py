# SPDX-License-Identifier: Apache-2.0
"""What was claimed on a node before its agent spoke is lost by none of its older messages."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.messages import Consumer
from tests.unit.core.desk import Desk, node_read, of_kind, only, snapshot, taken

NODE, SERVER = "node-1", "server-1"


def booted_and_read_again() -> Desk:
    """A node without an agent, a server that was put there, and the databases that show it by now."""
    desk = Desk().without_agents(NODE)
    desk.written(only(ef.WriteAllocation, desk.ask()))
    read(desk, {SERVER: taken(NODE)}, {SERVER})
    return desk


def read(desk: Desk, consumers: dict[str, dict[str, dict[str, int]]], members: set[str]) -> None:
    found = replace(node_read(NODE), consumers=consumers, members=frozenset(members), read_at_s=desk.now)
    desk.give(found)


def test_a_snapshot_that_is_older_than_the_claim_does_not_lose_it() -> None:
    desk = booted_and_read_again()

    # when the agent comes up, with what it had read before
    desk.hear(snapshot(NODE, sequence=1))

    assert desk.table.view(NODE).used == taken(NODE)


def test_it_is_the_agents_once_the_agent_shows_it() -> None:
    desk = booted_and_read_again()
    desk.hear(snapshot(NODE, sequence=1))

    desk.hear(replace(snapshot(NODE, sequence=2), consumers={SERVER: Consumer(taken(NODE), True)}))

    assert desk.table.view(NODE).used == taken(NODE)
    assert desk.table.outstanding(NODE) == ()


def test_what_the_databases_show_no_more_is_gone_at_once() -> None:
    desk = booted_and_read_again()

    read(desk, {}, set())

    assert desk.table.view(NODE).used.get(NODE, {}).get("VCPU", 0) == 0
    assert desk.table.outstanding(NODE) == ()


def test_after_a_while_it_is_theirs_without_a_look_at_placement() -> None:
    desk = booted_and_read_again()

    effects = desk.wait(desk.core.settings.look_after_s)

    assert of_kind(ef.LookUpConsumer, effects) == []
    assert desk.table.outstanding(NODE) == ()
    assert desk.table.view(NODE).used == taken(NODE)
