# SPDX-License-Identifier: Apache-2.0
"""Random requests beside Placement's own handler; ``tests.support.placement_histories`` runs any number of them."""

from __future__ import annotations

import pytest

from tests.support.placement_histories import run


@pytest.mark.parametrize("seed", [1, 2])
def test_answers_and_tables_are_those_of_placement(seed: int) -> None:
    counted = run(200, seed)
    assert counted["by write path"] > 10 and counted["204"] > 20
