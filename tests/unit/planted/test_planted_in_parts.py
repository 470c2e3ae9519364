# SPDX-License-Identifier: Apache-2.0
"""Every bug that is planted in a part is noticed by that part's machine.

One that survives is a check that is missing.  Those that only a whole world shows are planted in
``tests/unit/sim/planted.py``.
"""

from __future__ import annotations

import pytest

from tests.unit.planted import in_core, in_ledger, in_protocol, in_table
from tests.unit.planted.planting import Planted, notices

pytestmark = pytest.mark.long

PLANTED = [
    found
    for module in (in_protocol, in_ledger, in_table, in_core)
    for found in vars(module).values()
    if isinstance(found, Planted)
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_bug_is_noticed(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.patch(monkeypatch)
    assert notices(planted.machine) is not None, f"nobody noticed: {planted.name}"


def test_there_are_enough_of_them() -> None:
    assert len(PLANTED) >= 20
