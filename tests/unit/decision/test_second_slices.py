# SPDX-License-Identifier: Apache-2.0
"""Slices follow the nodes and the cells, and the order within a slice is that of the weights."""

from __future__ import annotations

import numpy as np

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pick import Slices, order
from tests.unit.core.scheduler_driver import CELL, OTHER_CELL, SchedulerDriver

BOTH = ("scheduler-a", "scheduler-b")


def test_a_node_that_joins_belongs_to_one_of_the_slices() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    slices = [Slices(), Slices()]
    for one, name in zip(slices, BOTH, strict=True):
        one.set(CELL, BOTH, name)
        assert len(one.own(driver.table)) == 2
    driver.with_agents("node-3", "node-4")
    assert (slices[0].own(driver.table) ^ slices[1].own(driver.table)).tolist() == [True] * 4


def test_the_schedulers_of_one_cell_do_not_share_the_hosts_of_another() -> None:
    others = [f"node-{number}" for number in range(10, 30)]
    driver = SchedulerDriver().with_agents("node-1", "node-2").with_agents(*others, cell=OTHER_CELL)
    slices = Slices()
    slices.set(CELL, BOTH, "scheduler-a")
    slices.set(OTHER_CELL, ("scheduler-a",), "scheduler-a")
    assert slices.own(driver.table)[2:].all()


def test_of_the_near_ties_in_the_own_slice_the_best_is_tried_first() -> None:
    weights = np.array([0.97, 1.0, 0.99])
    own = np.array([True, False, True])
    assert list(order(weights, DecisionSettings(near_tie=0.1), own, None))[:2] == [2, 0]
