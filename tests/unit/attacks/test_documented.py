# SPDX-License-Identifier: Apache-2.0
"""The table of attacks in the documentation names every test of this folder."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "doc" / "source" / "contributor" / "attacks.rst"


def test_the_table_names_each_attack() -> None:
    named = set(re.findall(r"attacks/(test_\w+)\.py", PAGE.read_text()))

    assert named == {file.stem for file in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).stem}
