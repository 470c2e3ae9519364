# SPDX-License-Identifier: Apache-2.0
"""What schedulers and agents say again is told once by ``why`` and ``story``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.core.effects import NodeChange, RecordNode
from shared_scheduler.records import entries
from shared_scheduler.records.json_lines import JsonLines
from tests.unit.cmd.test_questions_to_records import build
from tests.unit.records.test_entries import record


def test_what_schedulers_repeat_of_a_host_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = RecordNode("c7", NodeChange.RESYNC, 0, 0, 0, cause="")
    heard = RecordNode("c7", NodeChange.SNAPSHOT, 3, 1, 0, cause="")
    said = [(asked, "s1"), (asked, "s2"), (asked, "s1"), (asked, "s2"), (asked, "s1"), (heard, "s1"), (asked, "s1")]
    JsonLines(tmp_path / "records.jsonl").write(
        entries.node_entry(change, name, 1_760_000_000.0 + n) for n, (change, name) in enumerate(said)
    )
    place = ["--records", str(tmp_path / "records.jsonl"), "--format", "json"]

    assert manage.main(["story", "c7", *place]) == 0
    told = [one["text"] for one in json.loads(capsys.readouterr().out)]
    assert told == [
        "s1: asked for its whole state (3 times until 2025-10-09 08:53:24.000Z)",
        "s2: asked for its whole state (2 times until 2025-10-09 08:53:23.000Z)",
        "s1: a snapshot: state at epoch 3, sequence 1",
        "s1: asked for its whole state",
    ]
    assert manage.main(["story", "c7", "--last", "2", *place]) == 0
    assert [one["text"] for one in json.loads(capsys.readouterr().out)] == told[2:]


def test_an_end_that_is_told_again_after_a_restart_of_the_schedulers_is_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given two servers of one global request, and an end that was recorded again behind the decision of the other
    first, second = (
        entries.entry(record((f"server-{n}",), request_id="req-global", local_request_id=f"req-{n}"), "s1", at)
        for n, at in ((1, 1_760_000_000.0), (2, 1_760_000_002.0))
    )  # fmt: skip
    ends = [build("cmp2", 1_760_000_001.0 + after, "server-1", "") for after in (0.0, 120.0)]
    JsonLines(tmp_path / "r").write([first, ends[0], second, ends[1]])
    place = ["--records", str(tmp_path / "r"), "--format", "json"]

    # then its story, and that of its host, have it once, with its first time
    assert manage.main(["why", "req-global", *place]) == 0
    told = json.loads(capsys.readouterr().out)["records"]
    assert [one["at"] for one in told if one["kind"] == "build"] == [ends[0]["at"]]
    assert manage.main(["story", "cmp2", *place]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["at"] for one in told if "the build on" in one["text"]] == [ends[0]["at"]]


def test_the_build_of_a_server_that_comes_back_to_a_host_is_shown_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = [entries.entry(record(("server-1",)), "s1", 1_760_000_000.0 + after) for after in (0.0, 60.0)]
    ends = [build("cmp2", 1_760_000_001.0 + after, "server-1", "") for after in (0.0, 60.0)]
    JsonLines(tmp_path / "r").write([placed[0], ends[0], placed[1], ends[1]])

    for question in (["why", "server-1"], ["story", "cmp2"]):
        assert manage.main([*question, "--records", str(tmp_path / "r")]) == 0
        out = capsys.readouterr().out
        assert out.count("build of server-1 on cmp2: active") + out.count("the build on cmp2 ended: active") == 2
