# SPDX-License-Identifier: Apache-2.0
"""A question that prints a few of many records reads about as many as it prints."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shared_scheduler.answers import from_records
from shared_scheduler.cmd import manage
from shared_scheduler.core.effects import NodeChange, RecordNode
from shared_scheduler.nova import instance_actions
from shared_scheduler.records import entries
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import DATABASES, Record, RecordConditions
from tests.unit.cmd.test_questions_to_records import build
from tests.unit.cmd.test_screens_for_newcomers import BEGIN_S, placed

MINUTE_S = 60.0


def changed(number: int, at_s: float, change: NodeChange = NodeChange.SNAPSHOT) -> dict[str, Any]:
    return entries.node_entry(RecordNode("c1", change, 3, number, number % 3, cause=""), "sched1", at_s)


def server(number: int) -> str:
    return f"server-{number:04}"


def busy(records: int) -> list[dict[str, Any]]:
    """A server a minute, and the state of the host behind it."""
    moments = [(number, BEGIN_S + MINUTE_S * number) for number in range(records // 2)]
    each = ([placed(server(number), number + 2, at_s, "c1"), changed(number, at_s + 9)] for number, at_s in moments)
    return [one for both in each for one in both]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each question to the store has found."""
    found, last = [], JsonLines.last

    def counted(self: JsonLines, count: int, wanted: RecordConditions) -> list[Record]:
        records = last(self, count, wanted)
        found.append(len(records))
        return records

    monkeypatch.setattr(JsonLines, "last", counted)
    return found


@pytest.mark.parametrize("more", [[], ["--nova"]])
def test_few_lines_take_few_records(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    read: list[int],
    more: list[str],
) -> None:
    deleted = {"at": BEGIN_S + 400 * MINUTE_S, "request_id": "req-9", "instance": server(380), "action": "delete",
               "event": "compute_terminate_instance", "host": "c1", "result": "Success", "details": ""}  # fmt: skip
    monkeypatch.setattr(instance_actions, "read", lambda files, servers: [deleted] * (server(380) in servers))
    JsonLines(tmp_path / "r").write(busy(800))
    words = ["story", "c1", "--last", "5", "--format", "json", *more, "--records", str(tmp_path / "r")]

    assert manage.main(words) == 0

    lines = json.loads(capsys.readouterr().out)
    assert len(lines) == 5 and lines[-1 - len(more)]["text"].startswith("sched1: ")
    assert [one["instances"] for one in lines if "Nova, delete" in one["text"]] == [[server(380)]] * len(more)
    assert sum(read) <= (400 if more else 60)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_printed_does_not_depend_on_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Given a story with repetitions, builds, ends that were found late, and other hosts, in a random order of time."""
    rng, records, at_s = Random(seed), list[dict[str, Any]](), BEGIN_S
    for number in range(120):
        at_s += rng.choice([0.5, 30.0, 300.0, 3000.0])
        change = rng.choice([NodeChange.RESYNC, NodeChange.SNAPSHOT, NodeChange.SILENT])
        late = {**build("c1", at_s - rng.choice([10.0, 2000.0]), server(number - 1), ""), "source": DATABASES}
        records += [rng.choice([placed(server(number), number, at_s, "c1"), changed(number // 4, at_s, change), late])]
    store = JsonLines(tmp_path / "r")
    store.write(records)

    told = {count: from_records.story(store, "c1", count) for count in (1, 3, 10, 40, 200)}

    monkeypatch.setattr(from_records, "READ_PER_LINE", 1000)
    assert told == {count: from_records.story(store, "c1", count) for count in told}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_is_cut_has_begun_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Given schedulers that ask for the same messages again and again."""
    asked = RecordNode("c1", NodeChange.RESYNC, 3, 7, 0, cause="")
    store = JsonLines(tmp_path / "r")
    store.write([
        entries.node_entry(asked, scheduler, BEGIN_S + 30.0 * number + place)
        for number in range(40) for place, scheduler in enumerate(("sched1", "sched2", "sched3"))
    ])  # fmt: skip

    told = from_records.story(store, "c1", count)

    monkeypatch.setattr(from_records, "READ_PER_LINE", 1000)
    assert told == from_records.story(store, "c1", count)
    assert told[-1]["at"] == BEGIN_S + 2 and "(40 times until " in told[-1]["text"]


def test_the_increments_before_many_builds_are_not_left_out(tmp_path: Path) -> None:
    built = [build("c1", BEGIN_S + MINUTE_S * number, server(number), "") for number in range(1, 40)]
    store = JsonLines(tmp_path / "r")
    store.write([placed(server(0), 5, BEGIN_S, "c1"), *built, placed(server(40), 9, BEGIN_S + MINUTE_S * 40, "c1")])

    assert "its agent had sent increments 6 to 9" in [one["text"] for one in from_records.story(store, "c1", 5)]


def of_a_project(seed: int) -> list[dict[str, Any]]:
    """Servers of two projects, most of them built, hours apart or at once; some ends have no ids."""
    rng, records, at_s = Random(seed), list[dict[str, Any]](), BEGIN_S
    for number in range(150):
        at_s += rng.choice([1.0, 60.0, 3000.0])
        decided = placed(server(number), number, at_s, "c1") | {"project_id": rng.choice(["demo", "other"])}
        ids = {name: decided[name] for name in ("request_id", "project_id")} if rng.random() < 0.3 else {}
        records += [decided, *([build("c1", at_s + 0.5, server(number), "") | ids] if rng.random() < 0.9 else [])]
    return records


@pytest.mark.parametrize("conditions", [{}, {"kind": "build"}])
@pytest.mark.parametrize("seed", range(8))
def test_a_few_records_of_a_project_are_the_newest_of_all(
    tmp_path: Path, seed: int, conditions: dict[str, str]
) -> None:
    store = JsonLines(tmp_path / "r")
    store.write(of_a_project(seed))
    wanted = RecordConditions(project="demo", **conditions)

    everything = from_records.last(store, 1000, wanted)

    for count in (1, 2, 7, 30):
        assert from_records.last(store, count, wanted) == everything[-count:]


@pytest.mark.parametrize("since_s", [None, BEGIN_S])
def test_an_end_in_whole_seconds_is_the_newest_record_of_a_project(tmp_path: Path, since_s: float | None) -> None:
    """Nova's databases tell the end of a build in whole seconds, so it may seem to be earlier than its decision."""
    at_s = float(int(BEGIN_S)) + 60.0
    store = JsonLines(tmp_path / "r")
    store.write([
        placed(server(1), 1, at_s + 0.7, "c1") | {"project_id": "demo"},
        build("c1", at_s, server(1), "") | {"source": DATABASES},
    ])  # fmt: skip

    [newest] = from_records.last(store, 1, RecordConditions(project="demo", since_s=since_s))

    assert newest["kind"] == "build"


def test_ends_that_were_stored_late_do_not_hide_a_newer_one(tmp_path: Path) -> None:
    """What Nova's databases tell of other servers is stored a while after its time."""
    at_s = float(int(BEGIN_S))
    late = [build("c1", at_s + 60.0, server(number), "") | {"source": DATABASES} for number in (1, 2)]
    store = JsonLines(tmp_path / "r")
    store.write([
        *(placed(server(number), number, at_s + number, "c1") | {"project_id": "demo"} for number in (1, 2)),
        *(placed(server(number), number, at_s + 70.0 * number, "c1") | {"project_id": "demo"} for number in (0, 3)),
        build("c1", at_s + 211.0, server(3), ""), *late,
    ])  # fmt: skip

    found = from_records.last(store, 2, RecordConditions(project="demo"))

    assert [(one["kind"], one["instances"]) for one in found] == [(kind, [server(3)]) for kind in ("decision", "build")]


class BusyStore(JsonLines):
    """While it is read, a server is placed and its build ends."""

    def __init__(self, path: Path, more: list[dict[str, Any]]) -> None:
        super().__init__(path)
        self._more = more

    def last(self, count: int, wanted: RecordConditions) -> list[Record]:
        found = super().last(count, wanted)
        more, self._more = self._more, []
        self.write(more)
        return found


def test_an_end_that_is_stored_while_a_project_is_read_is_not_told_without_its_decision(tmp_path: Path) -> None:
    new = [placed(server(2), 2, BEGIN_S + 1, "c1") | {"project_id": "demo"}, build("c1", BEGIN_S + 2, server(2), "")]
    store = BusyStore(tmp_path / "r", new)
    store.write([placed(server(1), 1, BEGIN_S, "c1") | {"project_id": "demo"}])

    found = from_records.last(store, 2, RecordConditions(project="demo"))

    assert [(one["kind"], one["instances"]) for one in found] == [(kind, [server(2)]) for kind in ("decision", "build")]


def test_a_few_records_of_a_project_take_few_records(tmp_path: Path, read: list[int]) -> None:
    store = JsonLines(tmp_path / "r")
    store.write([one for number in range(600) for one in (
        placed(server(number), number, BEGIN_S + 10 * MINUTE_S * number, "c1") | {"project_id": "demo"},
        build("c1", BEGIN_S + 10 * MINUTE_S * number + 9, server(number), ""),
    )])  # fmt: skip

    found = from_records.last(store, 5, RecordConditions(project="demo"))

    assert [one["instances"] for one in found[-2:]] == [[server(599)]] * 2
    assert sum(read) <= 60
