# SPDX-License-Identifier: Apache-2.0
"""An agent's reason forges lines of ``why``."""

from __future__ import annotations

from typing import Any

from shared_scheduler.cmd import why

FORGED = "bad\x1b[2K\r"


def test_each_line_is_printable() -> None:
    answer: dict[str, Any] = {
        "at": 1.0, "request_id": "req-1", "scheduler": "s", "pid": 1, "failure": FORGED, "text": FORGED, "hosts": [],
        "asked": {"forms": [], "instances": ["i"], "flavor": FORGED}, "counts_now": {},
        "decisions": [{"survivors": 1, "hosts": 2, "reasons": {FORGED: 1}}],
        "attempts": [{"host": FORGED, "outcome": FORGED, "detail": {FORGED: FORGED}}], "unexplained": FORGED,
    }  # fmt: skip
    lines = why.lines(answer)
    assert all(line.isprintable() for line in lines)
    assert sum("bad\\x1b[2K\\r" in line for line in lines) == 5
