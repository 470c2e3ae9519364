# SPDX-License-Identifier: Apache-2.0
"""Eight schedulers rarely claim the same last resources of a host, also where all of them prefer the fullest host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.schedulers import DECISIONS
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World

pytestmark = pytest.mark.long

SCHEDULERS = 8
#: with a few hosts for each scheduler; servers that only collide when schedulers do not know of each other's claims
WORKLOAD = Workload(rate_per_s=30.0, lifetime_s=30.0, several=0.0, build_fails=0.0, phantoms=0.0, asks_again=0.0)
PACKED = replace(
    DECISIONS, ram_weight_multiplier=-1.0, cpu_weight_multiplier=-1.0, disk_weight_multiplier=-1.0, near_tie=2.0
)


def lost_in_a_hundred(decisions: DecisionSettings) -> float:
    """The claims that were refused or overtaken."""
    sizes = Sizes(nodes=160, schedulers=SCHEDULERS, heartbeat_interval_s=15.0, decisions=decisions)
    world = World(1, sizes, WORKLOAD, NetworkFaults())
    world.checkers.rows_every = 10**9
    world.run(12.0)
    counted = [scheduler.core.counters() for scheduler in world.schedulers.values()]
    lost = sum(each.get("refused", 0) + each.get("conflicts", 0) for each in counted)
    ended = sum(sum(scheduler.core.claims.endings.values()) for scheduler in world.schedulers.values())
    assert ended > 250
    return 100 * lost / ended


@pytest.mark.parametrize("decisions", [DECISIONS, PACKED], ids=["spread", "pack"])
def test_at_most_one_claim_in_a_hundred_is_lost_to_another_scheduler(decisions: DecisionSettings) -> None:
    assert lost_in_a_hundred(decisions) <= 1.0


def test_the_measure_notices_schedulers_that_prefer_the_same_host() -> None:
    assert lost_in_a_hundred(replace(PACKED, near_tie=0.0)) > 1.0
