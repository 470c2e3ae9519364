# SPDX-License-Identifier: Apache-2.0
"""The live view of a demo on terminals of more sizes than in ``tests/unit/cmd/test_demo.py``."""

from __future__ import annotations

import pytest

from tests.unit.cmd.test_demo import assert_fits


@pytest.mark.parametrize(("columns", "rows"), [(60, 20), (40, 16)], ids=str)
def test_the_live_view_fits_into_a_small_terminal(columns: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_fits(columns, rows, monkeypatch)
