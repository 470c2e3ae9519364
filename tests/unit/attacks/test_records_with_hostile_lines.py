# SPDX-License-Identifier: Apache-2.0
"""A file of records that somebody has sent, or that a broken disk has changed: its other records are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import RecordConditions
from tests.unit.records.test_stores import record

GOOD = record(1)


def line(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


HOSTILE = {
    "deeper than a parser goes": '{"at": 1760000000, "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "no number": '{"at": NaN, "instances": ["server-1"]}',
    "a time that no calendar has": line(at=1e300),
    "an endless time": '{"at": 1e999, "kind": "decision", "instances": ["server-1"]}',
    "a time before all others": line(at=-1e18),
    "more digits than Python reads": '{"at": 1760000000, "x": ' + "9" * 5000 + "}",
    "instances that are no list": line(instances=7),
    "hosts that are no texts": line(hosts=[["cmp1"]]),
    "reasons that are no counts": line(reasons="no_room"),
    "a kind that is no text": line(kind={"decision": 1}),
    "a try without a host": line(attempts=[{"outcome": "written"}]),
    "an answer of numbers": line(answer=[[1]]),
    "no text": "\udcff\udcfe",
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_the_other_records_are_read(hostile: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes("\n".join([hostile, line(), hostile, ""]).encode("utf-8", "surrogateescape"))
    store = JsonLines(path)

    assert store.find("server-1") == [GOOD]
    assert store.last(10, RecordConditions(reason="no_room")) == []
    store.write([record(2)])
    assert store.last(10, RecordConditions(kind="decision")) == [GOOD, record(2)]


@pytest.mark.parametrize("command", [("why", "server-1"), ("records", "last", "9"), ("story", "cmp1")])
def test_a_record_without_a_field_is_one_line(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(line(decisions=[{}], attempts=[]) + "\n")

    assert manage.main([*command, "--records", str(path)]) in (0, 2)

    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert shown.err.count("\n") <= 1
