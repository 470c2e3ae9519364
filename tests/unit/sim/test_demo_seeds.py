# SPDX-License-Identifier: Apache-2.0
"""Demos, seed by seed and without their screen: none may end with a broken invariant, for it would be shown.

``tests/longer/test_demo_seeds.py`` runs 160 more seeds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.sim.exhibition import DemoPlan
from tests.support.demos import run_demo

#: small ones, of about a fifth of a CPU second each, most of which is the wait for rest, in which each node costs;
#: the requests, the faults and the times are those of any demo
SMALL = DemoPlan(seed=0, nodes=8, schedulers=3, duration_s=4.0, rate_per_s=10.0)
SEEDS = range(40)
#: enough to show most mistakes (`tools/test --quick`)
FIRST = SEEDS[:20]
OTHERS = [pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[len(FIRST) :]]
#: of the demo as it is without arguments, each of which was broken once; about five CPU seconds each
ONCE_BROKEN = (1323357580,)


@pytest.mark.parametrize("seed", (*FIRST, *OTHERS))
def test_a_small_demo_breaks_nothing(seed: int) -> None:
    plan = replace(SMALL, seed=seed)
    assert run_demo(plan).checkers.violations == [], plan.command()


@pytest.mark.long
@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_the_demo_without_arguments_breaks_nothing(seed: int) -> None:
    plan = DemoPlan(seed)
    assert run_demo(plan).checkers.violations == [], plan.command()


def test_a_demo_gives_the_same_trace_with_and_without_details() -> None:
    assert run_demo(SMALL).trace.digest() == run_demo(SMALL, lines=1_000).trace.digest()
