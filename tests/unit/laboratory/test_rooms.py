# SPDX-License-Identifier: Apache-2.0
"""The rooms of the laboratory that others share import none of those."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.laboratory import ROOT

LABORATORY = ROOT / "tools" / "laboratory"
#: what each shared room may import of the laboratory beside itself
SHARED = {
    "processes": {"errors"},
    "fleet": {"errors", "placement", "processes"},
    "placement.py": {"errors", "fleet", "processes"},
    "cloud": {"errors", "manual", "processes", "report"},
    "report.py": {"errors"},
    "manual.py": set(),
}


def rooms_imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tools.laboratory."):
            yield node.module.split(".")[2]


@pytest.mark.parametrize("room", SHARED)
def test_a_shared_package_does_not_import_its_users(room: str) -> None:
    place = LABORATORY / room
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    found = {(path.name, name) for path in files for name in rooms_imported(path)}
    assert files and {(path, name) for path, name in found if name not in SHARED[room] | {place.stem}} == set()
