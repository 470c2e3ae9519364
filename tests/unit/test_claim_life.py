# SPDX-License-Identifier: Apache-2.0
"""The page of a claim's life shows the steps of real cores: every step that occurs, and no other."""

from __future__ import annotations

from tools.drawings.claim_life import RARE, SETTINGS, STEPS, Joint, listed, page, watched
from tools.drawings.machines import REFERENCE

#: worlds of each setting that are watched
WORLDS = 5
#: worlds in which messages are lost, which show the rest of the steps, that are watched at most
WORLDS_MAX = 60


def shown(step: tuple[Joint, Joint]) -> str:
    """A step as the list has it."""
    return " > ".join("/".join(state) for state in step)


def test_the_page_is_drawn_from_the_list_of_steps() -> None:
    assert (REFERENCE / "claim_life.rst").read_text() == page(), "run tools/draw"


def test_every_step_that_occurs_is_listed_and_every_listed_one_occurs() -> None:
    # given the steps that are on the page
    expected, allowed = listed(STEPS), listed(STEPS) | listed(RARE)

    # when worlds are watched until all of them have been seen
    seed = 0
    while seed < WORLDS or (expected and seed < WORLDS_MAX):
        for setting in SETTINGS if seed < WORLDS else [one for one in SETTINGS if one.loss]:
            seen = set(watched(setting, seed))
            # then no claim does anything else
            assert not seen - allowed, sorted(map(shown, seen - allowed))
            expected -= seen
        seed += 1

    # and nothing is on the page that never happens
    assert not expected, sorted(map(shown, expected))
