# SPDX-License-Identifier: Apache-2.0
"""``records last --follow`` prints new records until it is interrupted."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.cmd import records as records_command
from shared_scheduler.records.json_lines import JsonLines
from tests.unit.cmd.test_questions_to_records import stored


@dataclass
class FollowedStore:
    """A store in which a script writes records between two reads of ``records last --follow``."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    out: pytest.CaptureFixture[str]

    def follow(self, count: int, *written: list[Any], clock_s: float | None = None) -> list[dict[str, Any]]:
        """All records that are printed until Control-C; ``clock_s`` is the clock of the command."""
        later = list(written)

        def pause(_: float) -> None:
            if not later:
                raise KeyboardInterrupt
            JsonLines(self.path).write(later.pop(0))

        clock = time.time if clock_s is None else lambda: clock_s
        self.monkeypatch.setattr(records_command, "time", SimpleNamespace(sleep=pause, time=clock))
        command = ["records", "last", str(count), "--follow", "--format", "json", "--records", str(self.path)]
        assert manage.main(command) == 130  # by Control-C
        return [json.loads(line) for line in self.out.readouterr().out.splitlines()]


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> FollowedStore:
    return FollowedStore(tmp_path / "r", monkeypatch, capsys)


def test_following_prints_each_new_record_once_even_one_that_is_stored_late(followed: FollowedStore) -> None:
    first, *builds = stored()[:4]
    JsonLines(followed.path).write([first, builds[1]])
    found = followed.follow(5, [builds[2]], [builds[0]], [])
    assert [one["hosts"][0] for one in found] == ["c1", "c2", "c3", "c1"]


def test_following_begins_with_no_more_records_than_were_asked_for(followed: FollowedStore) -> None:
    first, *builds = stored()[:4]
    JsonLines(followed.path).write([first, *builds[:2]])
    assert [one["hosts"][0] for one in followed.follow(1, [], [builds[2]])] == ["c2", "c3"]


def test_following_goes_on_after_the_clock_was_set_back(followed: FollowedStore) -> None:
    # given records of a clock that is an hour ahead
    first, *builds = stored()[:4]
    JsonLines(followed.path).write([{**first, "at": first["at"] + 3_600}])
    # when it is set right
    found = followed.follow(5, [builds[0]], [builds[1]], [], clock_s=builds[1]["at"])
    # then the records after that are printed, once
    assert [one["hosts"][0] for one in found] == ["c1", "c1", "c2"]
