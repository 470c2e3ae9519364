# SPDX-License-Identifier: Apache-2.0
"""More of the worlds of ``tests/unit/sim/test_simulator.py``, which has the first and those that were broken once."""

from __future__ import annotations

import pytest

from shared_scheduler.sim.run import drawn, run
from tests.unit.sim.test_simulator import SEEDS

MORE = range(SEEDS.stop, 1_000)


@pytest.mark.parametrize("seed", MORE)
def test_no_invariant_breaks(seed: int) -> None:
    plan = drawn(seed)
    assert run(plan).checkers.violations == [], plan.command()
