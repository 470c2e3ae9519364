# SPDX-License-Identifier: Apache-2.0
"""Lines that have several marks are found, in whatever order and however often writers have indexed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.records.line_index import LineIndex


def entry(offset: int, kind: str, result: str) -> tuple[int, dict[str, Any]]:
    return offset, {"at": 0.0, "kind": kind, "result": result, "reason": "no room" if result == "failed" else ""}


@pytest.mark.parametrize(
    ("marks", "reason", "found"),
    [
        (["kind:build"], "", [10, 30, 50]),
        (["kind:build", "result:failed"], "", [30, 50]),
        (["result:failed", "kind:build"], "room", [30, 50]),
        (["result:failed"], "", [30, 40, 50]),
        ([], "no room", [30, 40, 50]),
        (["kind:decision", "result:active"], "", []),
        (["kind:nothing", "result:failed"], "", []),
        (["kind:build"], "nothing", []),
    ],
)
def test_lines_with_all_marks_are_found_in_order(
    tmp_path: Path, marks: list[str], reason: str, found: list[int]
) -> None:
    index = LineIndex(tmp_path, 7)
    index.add([entry(40, "decision", "failed"), entry(50, "build", "failed")], 60)  # by a writer that was late
    index.add([entry(10, "build", "active"), entry(20, "decision", "placed"), entry(30, "build", "failed")], 60)
    index.add([entry(30, "build", "failed")], 60)  # by one that did it again

    assert list(index.offsets(marks, reason)) == found
