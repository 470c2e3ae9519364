# SPDX-License-Identifier: Apache-2.0
"""Requests for several servers of groups, at once: each answer obeys its policy, and nothing else is left."""

from __future__ import annotations

import pytest

from tests.unit.core.several_at_once import SeveralAtOnce

#: the last ones show that servers of one request are compared after Placement was asked
SEEDS = (*range(8), 38, 62, 208, 255)


@pytest.mark.parametrize("seed", SEEDS)
def test_several_servers_at_once_end_well(seed: int) -> None:
    SeveralAtOnce(seed).run()
