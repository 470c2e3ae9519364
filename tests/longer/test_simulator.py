# SPDX-License-Identifier: Apache-2.0
"""More seeds of the simulator than each run of the tests has."""

from __future__ import annotations

import pytest

from shared_scheduler.sim.run import drawn, run
from tests.unit.sim.test_simulator import SEEDS, outcome

MORE = range(len(SEEDS), 300)


@pytest.mark.parametrize("seed", MORE)
def test_no_invariant_breaks(seed: int) -> None:
    plan = drawn(seed)
    assert run(plan).checkers.violations == [], plan.command()


@pytest.mark.parametrize("seed", (0, *SEEDS[5:12]))
def test_no_receiver_changes_a_shared_message(seed: int) -> None:
    assert outcome(seed, decode_each=False).digest == outcome(seed, decode_each=True).digest
