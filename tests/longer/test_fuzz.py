# SPDX-License-Identifier: Apache-2.0
"""More rounds of the slow targets of ``tests/unit/laboratory/test_fuzz.py``."""

from __future__ import annotations

import pytest

from tests.unit.laboratory.test_fuzz import SLOW, assert_nothing_is_violated

ROUNDS = 40


@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", SLOW)
def test_nothing_is_raised_and_nothing_is_violated(target: str) -> None:
    assert_nothing_is_violated(target, ROUNDS)
