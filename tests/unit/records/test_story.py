# SPDX-License-Identifier: Apache-2.0
"""What a story tells of records that several schedulers stored, and of repetitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.story import refusing, story_of

SERVER = "server-1"


def decision(at: float) -> dict[str, Any]:
    return {
        "at": at, "request_id": f"req-{at:.0f}", "project_id": "p", "scheduler": "s1", "instances": [SERVER],
        "result": "answered", "reason": "", "hosts": ["host-1"], "decisions": [], "near": [], "attempts": [],
        "asked": {"forms": [], "instances": [SERVER], "flavor": "small"}, "answer": [["host-1"]],
    }  # fmt: skip


def failed_build(at: float, scheduler: str) -> dict[str, Any]:
    return {
        "kind": "build", "at": at, "scheduler": scheduler, "instances": [SERVER], "hosts": ["host-1"],
        "result": "failed", "reason": "no address",
    }  # fmt: skip


def told(path: Path, *records: dict[str, Any]) -> list[float]:
    store = JsonLines(path)
    store.write(records)
    story = story_of(store, SERVER)
    store.close()
    assert story is not None
    return [float(one["at"]) for one in story.records]


def test_the_end_of_a_build_that_two_schedulers_recorded_is_told_once(tmp_path: Path) -> None:
    assert told(tmp_path / "r", decision(1), failed_build(2, "s1"), failed_build(3, "s2")) == [1, 2]


def test_a_build_that_fails_in_the_same_way_after_another_decision_is_told_again(tmp_path: Path) -> None:
    found = told(tmp_path / "r", decision(1), failed_build(2, "s1"), decision(3), failed_build(4, "s1"))
    assert found == [1, 2, 3, 4]


def test_a_host_that_gave_no_answer_in_time_or_took_the_server_later_has_not_refused() -> None:
    outcomes = [("c1", "late"), ("c2", "no_capacity"), ("c3", "group_changed"), ("c2", "topology"), ("c3", "written")]
    tries = [{"host": host, "outcome": outcome, "instance": SERVER} for host, outcome in outcomes]

    assert refusing({"attempts": tries}) == refusing({"attempts": tries}, SERVER) == ["c2"]
    assert refusing({"attempts": tries}, "another server") == refusing({}) == []
