# SPDX-License-Identifier: Apache-2.0
"""Claims on a node from before its agent's first message are not lost by older messages of the agent."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.confirmed_claims import SHOWN_TIMERS
from shared_scheduler.protocol.messages import Consumer, Leave
from tests.unit.core.scheduler_driver import SchedulerDriver, node_read, of_kind, only, snapshot, taken

NODE, SERVER = "node-1", "server-1"
STOOD_STILL_S = 300.0


def booted_and_read_again() -> SchedulerDriver:
    """A node without an agent, a server that was put there, and the databases that show it by now."""
    driver = SchedulerDriver().without_agents(NODE)
    driver.written(only(ef.WriteAllocation, driver.ask()))
    read(driver, {SERVER: taken(NODE)}, {SERVER})
    return driver


def read(driver: SchedulerDriver, consumers: dict[str, dict[str, dict[str, int]]], members: set[str]) -> None:
    found = replace(node_read(NODE), consumers=consumers, members=frozenset(members), read_at_s=driver.now)
    driver.give(found)


def test_a_snapshot_that_is_older_than_the_claim_does_not_lose_it() -> None:
    driver = booted_and_read_again()

    # when the agent comes up, with what it had read before
    driver.hear(snapshot(NODE, sequence=1))

    assert driver.table.view(NODE).used == taken(NODE)


def test_a_snapshot_delayed_by_a_paused_scheduler_keeps_the_claim() -> None:
    driver = booted_and_read_again()

    # given a scheduler that stands still for longer than any claim is watched: its timers ring before it reads messages
    driver.now += STOOD_STILL_S
    driver.give(ev.Tick())

    # when it handles a snapshot that is older than the claim
    driver.hear(snapshot(NODE, sequence=1))

    assert driver.table.view(NODE).used == taken(NODE)


def test_it_is_the_agents_once_the_agent_shows_it() -> None:
    driver = booted_and_read_again()
    driver.hear(snapshot(NODE, sequence=1))

    driver.hear(replace(snapshot(NODE, sequence=2), consumers={SERVER: Consumer(taken(NODE), True)}))

    assert driver.table.view(NODE).used == taken(NODE)
    assert driver.table.outstanding(NODE) == ()


def test_a_node_that_the_databases_do_not_show_is_removed_at_once() -> None:
    driver = booted_and_read_again()

    read(driver, {}, set())

    assert driver.table.view(NODE).used.get(NODE, {}).get("VCPU", 0) == 0
    assert driver.table.outstanding(NODE) == ()


def test_after_some_timers_the_databases_are_believed_without_a_question_to_placement() -> None:
    driver = booted_and_read_again()

    effects = driver.wait(SHOWN_TIMERS * driver.core.settings.unreported_after_s)

    assert of_kind(ef.AskConsumer, effects) == []
    assert driver.table.outstanding(NODE) == ()
    assert driver.table.view(NODE).used == taken(NODE)


def test_the_databases_are_believed_only_if_they_show_it_at_each_of_these_timers() -> None:
    driver = booted_and_read_again()
    pause_s = driver.core.settings.unreported_after_s

    # given that they have shown it at all of these timers but one
    driver.wait((SHOWN_TIMERS - 1) * pause_s)

    # when an agent does not show it at the next one, leaves, and the databases show it once more
    driver.hear(snapshot(NODE, sequence=1))
    only(ef.AskConsumer, driver.wait(pause_s))
    driver.hear(Leave(NODE, 1, 1))
    read(driver, {SERVER: taken(NODE)}, {SERVER})
    driver.wait(pause_s)

    # then an older snapshot of the agent could still lose it, so it is counted by itself
    assert [own.consumer for own in driver.table.outstanding(NODE)] == [SERVER]
