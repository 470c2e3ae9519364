# SPDX-License-Identifier: Apache-2.0
"""A Placement that is slow for longer than in ``tests/unit/sim/test_slow_placement.py``."""

from __future__ import annotations

from tests.unit.sim.test_slow_placement import assert_used_to_its_capacity_and_well_soon_after


def test_a_placement_that_is_slow_for_two_minutes_is_used_to_its_capacity_and_is_well_soon_after() -> None:
    assert_used_to_its_capacity_and_well_soon_after(120.0)
