# SPDX-License-Identifier: Apache-2.0
"""A pair of Placements for a module of tests, of which one has the write path."""

from __future__ import annotations

import pytest

from tests.support.placement_pair import PlacementPair


@pytest.fixture(scope="module")
def pair() -> PlacementPair:
    return PlacementPair()
