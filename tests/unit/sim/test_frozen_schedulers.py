# SPDX-License-Identifier: Apache-2.0
"""A scheduler that stands still blames no agent for it: the verdicts that came meanwhile are in time."""

from __future__ import annotations

import pytest

from shared_scheduler.core import claims
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import FLAVORS, Workload
from shared_scheduler.sim.world import Sizes, World


def missed_while_frozen() -> int:
    """The verdicts that schedulers missed in a world whose only fault is that one of them is frozen for five seconds.

    Half of the messages take up to 1.4 seconds, so claims wait for their verdicts when it begins.
    """
    workload = Workload(
        10.0, lifetime_s=2.0, several=0.0, not_root_only=0.0, build_fails=0.0, asks_again=0.0, flavors=FLAVORS[:1]
    )
    size = Size(vcpus=256, memory_mb=1_048_576, disk_gb=32_000)
    world = World(1, Sizes(nodes=4, schedulers=2, size=size), workload, NetworkFaults(late=0.5, late_max_s=1.4))
    Faults(world, world.rng("faults")).plan("scheduler_freezes", 4.0, 5.0)
    world.run(11.0)
    assert not world.checkers.violations
    return sum(one.core.counters().get("verdicts_missed", 0) for one in world.schedulers.values())


def test_no_verdict_counts_as_missed_because_its_scheduler_was_frozen() -> None:
    assert missed_while_frozen() == 0


def test_a_scheduler_that_does_not_notice_that_it_stood_still_misses_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "STOOD_STILL_S", float("inf"))
    assert missed_while_frozen() > 0
