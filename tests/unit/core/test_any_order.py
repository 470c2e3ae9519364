# SPDX-License-Identifier: Apache-2.0
"""Events in any order: no step fails, and nobody waits for what will not come."""

from __future__ import annotations

import pytest

from tests.unit.core.any_order import AnyOrder

#: 28 and 61 have shown that a lost write for a removed node was not deleted, 31 and 78 that a server waited for an
#: answer of Placement for ever
SEEDS = (*range(8), 28, 31, 61, 78)


@pytest.mark.parametrize("seed", SEEDS)
def test_events_in_any_order_end_well(seed: int) -> None:
    AnyOrder(seed).run(300)
