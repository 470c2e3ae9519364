# SPDX-License-Identifier: Apache-2.0
"""Placement with the write path: a thousand races on each database, random requests, all of Placement's own tests."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.functional import placement_races, placements_tests
from tests.functional.private_placement import PLACEMENTS
from tests.quick import ROOT
from tests.unit.placement_app.test_histories import assert_same_as_placement

ROUNDS = 1000
HOUR_S = 3600


@pytest.mark.timeout(2 * HOUR_S)
@pytest.mark.parametrize("database", PLACEMENTS)
def test_a_thousand_races_without_one_over_commit(database: str) -> None:
    outcome = placement_races.race(ROUNDS, with_write_path=True, database=database)
    assert (outcome.rounds, outcome.over_committed, outcome.untold, outcome.errors) == (ROUNDS, 0, 0, 0), outcome


def placements_own(*options: str) -> Any:
    command = [sys.executable, "-m", placements_tests.__name__, *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=HOUR_S)
    return json.loads(done.stdout)


@pytest.mark.timeout(2 * HOUR_S)
def test_placements_own_tests_end_as_they_do_without_the_write_path() -> None:
    ours, stock = placements_own(), placements_own("--stock")
    for what in ("run", "passed", "skipped", "failed"):
        assert ours[what] == stock[what], what
    assert ours["run"] > 1500 and ours["writes"]["by_write_path"]


@pytest.mark.timeout(HOUR_S)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_answers_and_tables_are_those_of_placement(seed: int) -> None:
    assert_same_as_placement(seed)
