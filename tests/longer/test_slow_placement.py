# SPDX-License-Identifier: Apache-2.0
"""A Placement that is slow for longer than in ``tests/unit/sim/test_slow_placement.py``, and without our remedies."""

from __future__ import annotations

import pytest

from shared_scheduler.core import write_queue
from shared_scheduler.core.write_pace import WritePace
from tests.unit.sim.test_slow_placement import (
    SLOW_S,
    assert_a_burst_leaves_nothing_behind,
    assert_used_to_its_capacity_and_well_soon_after,
    crowded_world,
    share_answered,
)


def test_a_placement_that_is_slow_for_two_minutes_is_used_to_its_capacity_and_is_well_soon_after() -> None:
    assert_used_to_its_capacity_and_well_soon_after(120.0)


def test_a_queue_that_keeps_its_order_collapses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "OVERLOADED_AFTER_S", float("inf"))
    monkeypatch.setattr(WritePace, "is_too_late", lambda self, deadline_s, now: now >= deadline_s)
    world = crowded_world(1)
    world.slow_placement(SLOW_S)
    world.run(40.0)
    assert share_answered(world, world.now - 15.0, world.now - 5.0) == 0.0


def test_the_largest_burst_leaves_nothing_behind_when_placement_fails_in_the_middle() -> None:
    assert_a_burst_leaves_nothing_behind(1_404)
