# SPDX-License-Identifier: Apache-2.0
"""Random requests beside Placement's own handler; ``tests.support.placement_histories`` runs any number of them."""

from __future__ import annotations

from tests.support.placement_histories import run


def test_answers_and_tables_are_those_of_placement() -> None:
    assert_same_as_placement(seed=1)


def assert_same_as_placement(seed: int) -> None:
    """Assert it of 200 requests (of other seeds: ``tests/longer/test_placement_app.py``)."""
    counted = run(200, seed)
    assert counted["by write path"] > 10 and counted["204"] > 20
