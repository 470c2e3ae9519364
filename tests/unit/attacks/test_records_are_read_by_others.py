# SPDX-License-Identifier: Apache-2.0
"""Any user of the machine reads who has asked for which servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.json_lines import JsonLines

RECORD: dict[str, Any] = {
    "kind": "decision", "at": 1.0, "scheduler": "s", "request_id": "req-1", "project_id": "p", "result": "placed",
}  # fmt: skip


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_files_of_lines_are_not_for_others(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "r.jsonl", max_mb=1, kept=2)
    for _ in range(2):
        lines.write([{**RECORD, "filler": "x" * 600_000}])
    lines.close()

    modes = {path.name: path.stat().st_mode & 0o007 for path in tmp_path.rglob("*") if path.parent == tmp_path}
    assert modes == {"r.jsonl": 0, "r.jsonl.1": 0, "r.jsonl.index": 0}
    assert {path.stat().st_mode & 0o007 for path in (tmp_path / "r.jsonl.index").iterdir()} == {0}


def test_a_sqlite_file_is_not_for_others(tmp_path: Path) -> None:
    table = RecordTable(f"sqlite:///{tmp_path}/r.sqlite", 100)
    table.write([RECORD])
    table.close()

    assert (tmp_path / "r.sqlite").stat().st_mode & 0o007 == 0
