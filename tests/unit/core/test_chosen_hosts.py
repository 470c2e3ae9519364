# SPDX-License-Identifier: Apache-2.0
"""The record of a decision has the weight of the host that was chosen, also if others weigh as much."""

from __future__ import annotations

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.decision.outcome import BEST_MAX
from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.protocol.messages import Hello, Role, Want
from tests.unit.core.scheduler_driver import Picky, SchedulerDriver, only, only_claim, request

NODES = [f"node-{number:02}" for number in range(40)]
BEST = NODES[:BEST_MAX]


def beside_another_scheduler(*refused: str) -> SchedulerDriver:
    """Forty hosts alike, half of which each of two schedulers prefers."""
    driver = SchedulerDriver(Picky(*refused))
    driver.hear(Hello(Role.SCHEDULER, "scheduler-b", 1, "", "", Want.NOTHING))
    driver.with_agents(*NODES, vcpus=64, free_mb=8192)
    return driver


def decided(driver: SchedulerDriver, server: str) -> tuple[str, DecisionRecord]:
    """The node of a server, and the record of the request."""
    claim = only_claim(driver.ask(request(server)))
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim, 20))))
    return claim.node, answer.record


def test_the_chosen_host_has_its_weight_although_it_is_none_of_the_best() -> None:
    # given a scheduler whose slice has none of the first hosts left
    driver = beside_another_scheduler(*BEST)

    node, record = decided(driver, "server")

    counts = record.decisions[-1]
    assert [one.node for one in counts.best] == BEST and node not in BEST
    assert counts.chosen is not None and counts.chosen.node == node
    assert counts.chosen.weight == pytest.approx(sum(counts.chosen.shares.values()))
    assert counts.chosen.epoch, "the version of its row"


def test_a_chosen_host_that_is_one_of_the_best_is_recorded_once() -> None:
    driver = beside_another_scheduler(*NODES[1:])

    node, record = decided(driver, "server")

    assert node == NODES[0] and record.decisions[-1].chosen is None


def test_a_decision_without_a_host_has_chosen_none() -> None:
    driver = beside_another_scheduler(*NODES)

    fail = only(ef.Fail, driver.ask(request("server")))

    assert [one.chosen for one in fail.record.decisions] == [None] * len(fail.record.decisions)
