# SPDX-License-Identifier: Apache-2.0
"""More small demos than each run of the tests has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.sim.exhibition import DemoPlan
from tests.support.demos import run_demo
from tests.unit.sim.test_demo_seeds import SEEDS, SMALL

MORE = range(len(SEEDS), 200)
#: of the demo as it is without arguments, each of which was broken once
ONCE_BROKEN = (1323357580,)


@pytest.mark.parametrize("seed", MORE)
def test_a_small_demo_breaks_nothing(seed: int) -> None:
    plan = replace(SMALL, seed=seed)
    assert run_demo(plan).checkers.violations == [], plan.command()


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_the_demo_without_arguments_breaks_nothing(seed: int) -> None:
    plan = DemoPlan(seed)
    assert run_demo(plan).checkers.violations == [], plan.command()
