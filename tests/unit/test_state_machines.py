# SPDX-License-Identifier: Apache-2.0
"""The documentation draws the machines that the code runs, and each state is in its table."""

from __future__ import annotations

from enum import Enum

import pytest

from compute_agent.claim_ledger import ClaimEnd
from shared_scheduler.core.claim_state import ClaimState
from shared_scheduler.core.recheck import RecheckState
from shared_scheduler.core.request_state import RequestPhase
from shared_scheduler.protocol.phases import WindowPhase
from shared_scheduler.protocol.window import WindowFreshness
from tools.drawings.machines import DOCUMENT, MACHINES, MalformedTable, checked, document, tables_of, window


def test_the_documentation_is_drawn_from_the_code() -> None:
    assert DOCUMENT.read_text() == document(), "run tools/draw"


@pytest.mark.parametrize(
    ("module", "states"),
    [
        ("shared_scheduler.core.requests", RequestPhase),
        ("shared_scheduler.core.claims", ClaimState),
        ("shared_scheduler.core.recheck", RecheckState),
        ("compute_agent.claim_ledger", ClaimEnd),
    ],
)
def test_every_state_is_in_the_table_of_its_module(module: str, states: type[Enum]) -> None:
    (text, *_) = tables_of(module)
    words = set(text.lower().replace(",", " ").split())
    assert {str(state.value) for state in states} <= words


def test_the_windows_states_are_all_drawn() -> None:
    words = set(window().split())
    assert {phase.value for phase in WindowPhase} | {one.value for one in WindowFreshness} <= words


def test_a_module_that_loses_its_table_is_missed() -> None:
    for machine in MACHINES:
        assert len(tables_of(machine.module)) > machine.table, machine.module


@pytest.mark.parametrize(
    "row",
    [
        "PLACING   host found and it runs into the margin  PLACING",
        "PLACING,",
    ],
)
def test_a_malformed_table_is_refused(row: str) -> None:
    ruler = "========  ==================  ======="
    lines = [ruler, "phase     event               next", ruler, row, ruler]

    with pytest.raises(MalformedTable, match="a_module"):
        checked("a_module", lines)
