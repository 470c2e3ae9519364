# SPDX-License-Identifier: Apache-2.0
"""``story`` of a host that was only an alternate tells how a server came there by a retry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.core.effects import RecordBuild
from shared_scheduler.records import entries
from shared_scheduler.records.askers import NOBODY
from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import RecordWriter
from tests.unit.records.test_entries import record

SELECTED = 1_760_000_000.0


def placed(server: str, *hosts: str, at_s: float = SELECTED) -> dict[str, Any]:
    return entries.entry(record((server,), request_id=f"req-{server}", answer=(hosts,), attempts=()), "sched1", at_s)


def built(server: str, host: str, at_s: float, reason: str = "") -> dict[str, Any]:
    return entries.build_entry(
        RecordBuild("n", host, server, not reason, reason, cause="test"), NOBODY, "sched2", SELECTED + at_s
    )


@pytest.fixture(params=["file", "database"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[RecordWriter, str]:
    place = str(tmp_path / "r") if request.param == "file" else f"sqlite:///{tmp_path}/records.sqlite"
    return JsonLines(Path(place)) if request.param == "file" else RecordTable(place), place


def story(host: str, place: str, capsys: pytest.CaptureFixture[str], *more: str) -> list[tuple[str, str]]:
    assert manage.main(["story", host, "--format", "json", "--records", place, *more]) == 0
    return [(one["request_id"], one["text"]) for one in json.loads(capsys.readouterr().out)]


def test_a_server_that_came_by_a_retry_has_its_decision_and_its_request(
    store: tuple[RecordWriter, str], capsys: pytest.CaptureFixture[str]
) -> None:
    # given a server whose build failed on the selected host, and a request that named the alternate in vain
    records, place = store
    records.write([placed("moved", "c1", "c2"), placed("stayed", "c1", "c2", at_s=SELECTED + 1),
                   built("moved", "c1", 2.0, "NoMoreFixedIps: none left"), built("stayed", "c1", 3.0),
                   built("moved", "c2", 4.0)])  # fmt: skip

    # then the story of the alternate begins with the decision that named it, and has no other one
    assert story("c2", place, capsys) == [
        ("req-moved", "alternate of c1"), ("req-moved", "the build on c2 ended: active"),
    ]  # fmt: skip


def test_a_host_that_was_selected_is_told_once(
    store: tuple[RecordWriter, str], capsys: pytest.CaptureFixture[str]
) -> None:
    records, place = store
    records.write([placed("moved", "c1", "c2"), built("moved", "c1", 2.0)])

    assert [text for _, text in story("c1", place, capsys)] == ["selected", "the build on c1 ended: active"]


def test_a_build_without_a_recorded_decision_stands_alone(
    store: tuple[RecordWriter, str], capsys: pytest.CaptureFixture[str]
) -> None:
    records, place = store
    records.write([placed("other", "c1", "c3"), built("stranger", "c2", 2.0)])

    assert story("c2", place, capsys) == [("", "the build on c2 ended: active")]


def test_only_as_many_servers_are_looked_up_as_are_shown(
    store: tuple[RecordWriter, str], capsys: pytest.CaptureFixture[str]
) -> None:
    records, place = store
    records.write([placed(f"vm-{number}", "c1", "c2", at_s=SELECTED + number) for number in range(5)])
    records.write([built(f"vm-{number}", "c2", 10.0 + number) for number in range(5)])

    shown = story("c2", place, capsys, "--last", "2")

    assert [text for _, text in shown] == ["the build on c2 ended: active"] * 2, "the newest records, as for any host"
