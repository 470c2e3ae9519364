# SPDX-License-Identifier: Apache-2.0
"""The common behaviour of both stores: keep records, and find them by name, by number and by condition."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import RecordConditions, Store

Open = Callable[[], Store]
STORES: dict[str, Callable[[Path], Store]] = {
    "json_lines": lambda path: JsonLines(path / "records.jsonl", max_mb=1, kept=3),
    "sqlite": lambda path: RecordTable(f"sqlite:///{path}/records.sqlite", rows_max=1_000),
}


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store, each time as another process would."""
    made: list[Store] = []

    def open_store() -> Store:
        made.append(STORES[request.param](tmp_path))
        return made[-1]

    yield open_store
    for store in made:
        store.close()


def record(number: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "decision", "at": 1_760_000_000.5 + number, "scheduler": "sched1", "request_id": f"req-{number}",
        "global_request_id": f"req-global-{number}", "project_id": "demo", "instances": [f"server-{number}"],
        "result": "placed", "reason": "", "reasons": {}, "hosts": ["cmp1"], **more,
    }  # fmt: skip


def numbers(found: list[Any]) -> list[int]:
    return [int(each["at"] - 1_760_000_000) for each in found]


@pytest.mark.parametrize("name", ["req-3", "req-global-3", "server-3"])
def test_a_record_is_found_by_each_of_its_names(opened: Open, name: str) -> None:
    opened().write([record(number) for number in range(10)])

    assert opened().find(name) == [record(3)]


def test_a_name_that_no_record_has_finds_nothing(opened: Open) -> None:
    opened().write([record(1)])

    assert opened().find("req-2") == []
    assert opened().find("cmp1") == [], "hosts have names of their own"


def test_all_records_of_an_instance_are_found_oldest_first(opened: Open) -> None:
    store = opened()
    store.write([record(1), record(2)])
    store.write([record(3, kind="build", instances=["server-1"])])

    assert opened().find("server-1") == [record(1), record(3, kind="build", instances=["server-1"])]


def test_records_of_one_process_can_be_read_by_another_at_once(opened: Open) -> None:
    writer, reader = opened(), opened()
    for number in range(3):
        writer.write([record(number)])

        assert reader.find(f"req-{number}") == [record(number)]
        assert numbers(reader.last(1, RecordConditions())) == [number]


def test_two_processes_write_to_one_store(opened: Open) -> None:
    first, second = opened(), opened()
    for number in range(6):
        (first if number % 2 else second).write([record(number)])

    assert numbers(opened().last(10, RecordConditions())) == [0, 1, 2, 3, 4, 5]
    assert [opened().find(f"req-{number}") for number in range(6)] == [[record(number)] for number in range(6)]


def test_a_line_of_an_earlier_release_is_read_as_one_of_this(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    old = {"at": 5.0, "scheduler": "s", "request_id": "req-1", "project_id": "p", "outcome": "no_valid_host",
           "hosts": [], "text": "no host", "asked": {"instances": ["server-1"]}, "decisions": []}  # fmt: skip
    path.write_text(json.dumps(old) + "\n")

    [found] = JsonLines(path).find("server-1")

    assert (found["kind"], found["result"], found["reason"]) == ("decision", "no_valid_host", "no host")


def test_the_last_records(opened: Open) -> None:
    opened().write([record(number) for number in range(10)])

    assert numbers(opened().last(3, RecordConditions())) == [7, 8, 9]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (RecordConditions(), [0, 1, 2, 3]),
        (RecordConditions(kind="build"), [3]),
        (RecordConditions(project="other"), [1]),
        (RecordConditions(host="cmp2"), [2, 3]),
        (RecordConditions(result="no_valid_host"), [1]),
        (RecordConditions(reason="no_room:MEMORY_MB"), [1]),
        (RecordConditions(reason="IP addresses"), [3]),
        (RecordConditions(since_s=1_760_000_002.0), [2, 3]),
        (RecordConditions(until_s=1_760_000_002.0), [0, 1]),
        (RecordConditions(host="cmp2", kind="decision"), [2]),
        (RecordConditions(names=frozenset({"server-1", "req-3", "server-3", "no"})), [1, 3]),
        (RecordConditions(host="cmp2", names=frozenset({"server-1", "server-3"})), [3]),
    ],
)
def test_the_last_records_with_conditions(opened: Open, wanted: RecordConditions, found: list[int]) -> None:
    opened().write(
        [
            record(0),
            record(1, project_id="other", result="no_valid_host", hosts=[], reasons={"no_room:MEMORY_MB": 7}),
            record(2, hosts=["cmp1", "cmp2"]),
            record(3, kind="build", result="failed", reason="No more IP addresses", hosts=["cmp2"]),
        ]
    )

    assert numbers(opened().last(10, wanted)) == found


@pytest.mark.parametrize("wanted", [
    RecordConditions(), RecordConditions(host="cmp1"), RecordConditions(names=frozenset({"server-0", "server-2"})),
])  # fmt: skip
def test_what_this_release_cannot_read_does_not_count(opened: Open, wanted: RecordConditions) -> None:
    of_another_release = [record(number, sequence="a text", instances=["server-2"]) for number in range(3, 20)]
    opened().write([record(0), record(1, hosts=[]), record(2), *of_another_release])

    assert numbers(opened().last(2, wanted))[-1:] == [2]
    assert numbers(opened().last(9, wanted))[0] == 0
    assert len(opened().last(1, wanted)) == 1


def test_text_of_any_language_is_kept(opened: Open) -> None:
    kept = record(1, reason="kein Platz für „größe“ \U0001f5a5\nnext", project_id="日本")
    opened().write([kept])

    assert opened().find("req-1") == [kept]


def test_written_records_survive_a_kill(opened: Open, tmp_path: Path) -> None:
    store = opened()
    script = f"""
import os, signal
from pathlib import Path
from tests.unit.records.test_stores import STORES, record
store = STORES[{"json_lines" if isinstance(store, JsonLines) else "sqlite"!r}](Path({str(tmp_path)!r}))
store.write([record(1)])
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], check=False)

    assert store.find("req-1") == [record(1)]


def test_a_store_that_does_not_exist_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"\[shared_scheduler\] records_file: there is no file .*/records.jsonl"):
        JsonLines(tmp_path / "nowhere" / "records.jsonl").find("req-1")
    with pytest.raises(RecordsError, match=r"\[shared_scheduler\] records_file: .*no file .*record.jsonl"):
        JsonLines(tmp_path / "record.jsonl").last(1, RecordConditions())
    with pytest.raises(RecordsError, match=r"\[shared_scheduler\] records_connection: .*no file"):
        RecordTable(f"sqlite:///{tmp_path}/nowhere/records.sqlite").find("req-1")


def test_reading_makes_no_file(opened: Open, tmp_path: Path) -> None:
    with suppress(RecordsError):
        opened().last(1, RecordConditions())

    assert list(tmp_path.iterdir()) == []
