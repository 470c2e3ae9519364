# SPDX-License-Identifier: Apache-2.0
"""The worlds of ``tests/unit/sim/test_planted_bugs.py`` without a bug, all but the one that is part of each run."""

from __future__ import annotations

from tests.unit.sim.test_planted_bugs import FIRST, QUICKEST, assert_sound, plans


def test_the_worlds_that_show_a_bug_first_are_sound_without_it() -> None:
    assert_sound(FIRST - {QUICKEST})


def test_the_other_worlds_are_sound_without_a_bug() -> None:
    others = set(range(len(list(plans())))) - FIRST
    assert others
    assert_sound(others)
