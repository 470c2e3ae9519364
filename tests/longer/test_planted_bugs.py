# SPDX-License-Identifier: Apache-2.0
"""The worlds of ``tests/unit/sim/test_planted_bugs.py`` in which no bug is looked for first."""

from __future__ import annotations

from tests.unit.sim.test_planted_bugs import FIRST, assert_sound, plans


def test_worlds_that_show_no_bug_first_are_sound_without_a_bug() -> None:
    turns = set(range(len(list(plans())))) - FIRST
    assert turns
    assert_sound(turns)
