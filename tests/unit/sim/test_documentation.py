# SPDX-License-Identifier: Apache-2.0
"""The documentation tells every invariant as the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_scheduler.sim.invariants import INVARIANTS

TEXT = " ".join(Path("doc/simulator.rst").read_text().split())


@pytest.mark.parametrize("name", INVARIANTS)
def test_an_invariant_is_told_by_its_name_and_its_sentence(name: str) -> None:
    assert f"``{name}`` {INVARIANTS[name]}" in TEXT
