# SPDX-License-Identifier: Apache-2.0
"""A scheduler has a bounded number of resyncs under way.  One host with a thousand nodes, whose messages all have a
gap, makes it ask for a resync of each of them, and answers none, or each at once with a snapshot that has a gap again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.limits import (
    HOST_PROMPT_RESYNCS_BURST,
    HOST_PROMPT_RESYNCS_PER_S,
    UNLISTED_RESYNCS_IN_FLIGHT_MAX,
)
from shared_scheduler.protocol.messages import Heartbeat, Increment, Snapshot
from shared_scheduler.protocol.window import BEHIND_S
from shared_scheduler.table.row import Freshness
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, host_of, resyncs_in, snapshot

EVIL = "host-evil"
EVIL_NODES = [f"evil-{number}" for number in range(1000)]
OTHERS = [f"node-{number}" for number in range(20)]
#: less than an unanswered resync keeps its place
SOON_S = 5


def gap(node: str, sequence: int) -> Increment:
    """An increment after some that are missing."""
    return Increment(node, 1, sequence, {"cn.vcpus_used": sequence})


def evil_snapshot(node: str, number: int, sequence: int = 1, listed: bool = True) -> Snapshot:
    return replace(snapshot(node, sequence), host=EVIL if listed else f"invented-{number}")


def attacked(listed: bool) -> SchedulerDriver:
    """A scheduler that knows the nodes of everybody; the database has those of the attacker if ``listed``."""
    driver = SchedulerDriver().with_agents(*OTHERS)
    hosts = {node: host_of(node) for node in OTHERS} | (dict.fromkeys(EVIL_NODES, EVIL) if listed else {})
    evil = [evil_snapshot(node, number, listed=listed) for number, node in enumerate(EVIL_NODES)]
    if listed:
        driver.hear(*evil)
    driver.give(ev.NodesListed(CELL, hosts, frozenset(), driver.now))
    driver.hear(*evil)
    driver.hear(*(gap(node, 5) for node in EVIL_NODES))
    driver.wait(1.0)
    return driver


def asked_within(driver: SchedulerDriver, attack: Callable[[int, list[str]], list[ef.Effect]]) -> set[str]:
    """The nodes of others that are asked soon while the attack goes on."""
    asked, before = set[str](), list[str]()
    for second in range(SOON_S):
        for _ in range(10):
            before = resyncs_in([*attack(second, before), *driver.wait(0.1)])
            asked.update(node for node in before if node in OTHERS)
    return asked


@pytest.mark.parametrize("listed", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_host_that_does_not_answer(listed: bool) -> None:
    # given a thousand nodes that wait for a resync each
    driver = attacked(listed)

    # when messages of other nodes are lost, too, while those of the thousand go on
    driver.hear(*(gap(node, 5) for node in OTHERS))
    asked = asked_within(driver, lambda second, _: driver.hear(*(gap(node, 9 + 3 * second) for node in EVIL_NODES)))

    # then the others are asked soon
    assert asked == set(OTHERS)


def test_a_host_that_answers_each_resync_with_another_gap() -> None:
    driver, sequences = attacked(True), dict.fromkeys(EVIL_NODES, 10)

    def answer(_second: int, asked: list[str]) -> list[ef.Effect]:
        found: list[ef.Effect] = []
        for node in (node for node in asked if node in sequences):
            sequences[node] += 10
            number = sequences[node]
            found += driver.hear(evil_snapshot(node, 0, number), gap(node, number + 5))
        return found

    driver.hear(*(gap(node, 5) for node in OTHERS))
    assert asked_within(driver, answer) == set(OTHERS)


def test_a_host_whose_heartbeats_make_its_windows_ask_at_once() -> None:
    # given nodes that have been behind their snapshots for a while
    driver = attacked(True)
    driver.hear(*(evil_snapshot(node, 0, 9) for node in EVIL_NODES))
    beats = [Heartbeat(node, 1, 1, EVIL, 0) for node in EVIL_NODES]
    driver.hear(*beats)
    driver.wait(BEHIND_S)

    # when all of them go on
    asked = sum(len(resyncs_in([*driver.hear(*beats), *driver.wait(1.0)])) for _ in range(SOON_S))

    # then the host is asked no more often than any other may be
    assert 0 < asked <= HOST_PROMPT_RESYNCS_BURST + SOON_S * HOST_PROMPT_RESYNCS_PER_S


@pytest.mark.long
def test_an_honest_host_with_a_thousand_nodes_is_soon_up_to_date() -> None:
    """As a nova-compute of Ironic has them."""
    driver = attacked(True)
    began_s, asked = driver.now, list[str]()
    while any(driver.table.freshness(node) is not Freshness.FRESH for node in EVIL_NODES):
        answers = (evil_snapshot(node, 0, 5) for node in asked)
        asked = resyncs_in([*driver.hear(*answers), *driver.wait(0.02)])
        assert driver.now < began_s + 30, "asked too rarely"


def test_a_new_node_is_asked_as_soon_as_the_database_has_it() -> None:
    # given so many invented nodes that a new one, which no database has yet, has to wait
    driver = SchedulerDriver()
    driver.give(ev.NodesListed(CELL, {}, frozenset(), driver.now))
    invented = [f"invented-{number}" for number in range(UNLISTED_RESYNCS_IN_FLIGHT_MAX)]
    driver.hear(*(Heartbeat(node, 1, 5, f"host of {node}", 0) for node in invented))
    assert set(resyncs_in(driver.wait(1.0))) == set(invented)
    driver.hear(Heartbeat("node-1", 1, 5, "host-1", 0))
    assert resyncs_in(driver.wait(1.0)) == []
    # when
    driver.give(ev.NodesListed(CELL, {"node-1": "host-1"}, frozenset(), 0.0))
    # then
    assert resyncs_in(driver.wait(0.1)) == ["node-1"]
