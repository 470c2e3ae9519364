# SPDX-License-Identifier: Apache-2.0
"""An agent's reason forges lines of ``why`` and ``why-now``."""

from __future__ import annotations

from typing import Any, cast

from shared_scheduler.answers.shapes import Why
from shared_scheduler.cmd import why, why_now
from shared_scheduler.records.story import Story

FORGED = "bad\x1b[2K\r"
ESCAPED = "bad\\x1b[2K\\r"


def test_each_line_of_a_running_process_is_printable() -> None:
    answer: dict[str, Any] = {
        "at": 1.0, "request_id": "req-1", "scheduler": "s", "pid": 1, "result": FORGED, "reason": FORGED, "hosts": [],
        "asked": {"forms": [], "instances": ["i"], "flavor": FORGED}, "counts_now": {},
        "decisions": [{"survivors": 1, "hosts": 2, "reasons": {FORGED: 1}}],
        "attempts": [{"host": FORGED, "outcome": FORGED, "detail": {FORGED: FORGED}}], "unexplained": FORGED,
    }  # fmt: skip
    lines = why_now.lines(answer)
    assert all(line.isprintable() for line in lines)
    assert sum(ESCAPED in line for line in lines) == 5


def test_each_line_of_a_record_is_printable() -> None:
    decision: dict[str, Any] = {
        "at": 1.0, "request_id": "req-1", "project_id": "p", "scheduler": FORGED, "result": FORGED, "reason": FORGED,
        "asked": {"forms": [], "instances": ["i"], "flavor": FORGED},
        "decisions": [{"survivors": 1, "hosts": 2, "reasons": {FORGED: 1}, "best": []}],
        "near": [{"host": FORGED, "code": FORGED, "detail": {}}],
        "attempts": [
            {"host": FORGED, "outcome": FORGED, "detail": {FORGED: FORGED}, "verdict_ms": None, "write_ms": None}
        ],
        "answer": [],
    }  # fmt: skip
    build = {"kind": "build", "at": 2.0, "instances": ["i"], "hosts": [FORGED], "result": "failed", "reason": FORGED}
    lines = why.lines(cast(Why, Story("i", (decision, build), FORGED, (FORGED,)).as_dict()))
    assert all(line.isprintable() for line in lines)
    assert sum(ESCAPED in line for line in lines) == 10


def test_a_failed_build_of_which_no_host_is_recorded_is_shown() -> None:
    build = {"kind": "build", "at": 2.0, "instances": ["i"], "hosts": [], "result": "failed", "reason": "lost"}
    lines = why.lines(cast(Why, Story("i", (build,), "the build failed", ("lost",)).as_dict()))
    assert "  cause     lost" in lines
    assert not any("nova-compute" in line for line in lines)
