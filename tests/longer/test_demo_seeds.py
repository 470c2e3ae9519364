# SPDX-License-Identifier: Apache-2.0
"""More small demos than each run of the tests has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.demos import run_demo
from tests.unit.sim.test_demo_seeds import SEEDS, SMALL

MORE = range(len(SEEDS), 200)


@pytest.mark.parametrize("seed", MORE)
def test_a_small_demo_breaks_nothing(seed: int) -> None:
    plan = replace(SMALL, seed=seed)
    assert run_demo(plan).checkers.violations == [], plan.command()
