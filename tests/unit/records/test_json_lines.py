# SPDX-License-Identifier: Apache-2.0
"""Files of records that are moved, cut, left half written, or shared."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.records import line_index
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.line_index import LineIndex
from shared_scheduler.records.store import Record, RecordConditions
from tests.unit.records.test_stores import numbers, record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


def large(number: int) -> dict[str, Any]:
    return record(number, filler="x" * 600_000)


def test_records_are_found_in_rotated_files_too(path: Path) -> None:
    store = JsonLines(path, max_mb=1, kept=3)
    for number in range(5):
        store.write([large(number)])

    assert [len(store.find(f"req-{number}")) for number in range(5)] == [0, 0, 1, 1, 1]
    assert numbers(store.last(10, RecordConditions())) == [2, 3, 4]


def test_the_indexes_of_deleted_files_are_deleted(path: Path) -> None:
    store = JsonLines(path, max_mb=1, kept=2)
    with ExitStack() as readers:  # so that no new file gets the number of one that was deleted
        for number in range(20):
            store.write([large(number)])
            readers.enter_context(path.open())

    kept = {str(each.stat().st_ino) for each in path.parent.iterdir() if each.is_file()}
    indexes = {each.stem for each in (path.parent / "records.jsonl.index").iterdir()} - {"lock"}
    assert len(indexes) <= 3 and kept <= indexes


def meanwhile(act: Callable[[], None]) -> RecordConditions:
    """Conditions that every record meets, and ``act`` happens when the first one is read."""
    waiting = [act]

    class Watched(RecordConditions):
        def accepts(self, record: Record) -> bool:
            while waiting:
                waiting.pop()()
            return super().accepts(record)

    return Watched(kind="decision")


@pytest.mark.parametrize("more", [1, 2])
def test_files_that_are_rotated_in_the_middle_of_a_read_are_read_once(path: Path, more: int) -> None:
    # given four files with a record in each
    writer = JsonLines(path, max_mb=1, kept=9)
    for number in range(4):
        writer.write([large(number)])

    # when the writer begins others while they are read
    found = numbers(JsonLines(path).last(10, meanwhile(lambda: writer.write([large(9)] * more))))

    # then each of the four is found, and none is there twice
    assert [number for number in found if number != 9] == [0, 1, 2, 3]


def test_a_file_that_leaves_in_the_middle_of_a_read_is_no_error(path: Path) -> None:
    writer = JsonLines(path, max_mb=1, kept=2)
    writer.write([large(0)])
    writer.write([large(1)])

    found = numbers(JsonLines(path).last(10, meanwhile(lambda: writer.write([large(9)]))))

    assert [number for number in found if number != 9] == [1]


def test_a_file_that_logrotate_moves_is_opened_again_and_still_found(path: Path) -> None:
    store = JsonLines(path)
    store.write([record(1)])
    path.rename(path.with_name("records.jsonl-20261123"))

    store.write([record(2)])

    assert numbers([*JsonLines(path).find("req-1"), *JsonLines(path).find("req-2")]) == [1, 2]
    assert '"req-2"' in path.read_text() and '"req-1"' not in path.read_text()


def test_a_file_that_logrotate_moves_and_creates_again(path: Path) -> None:
    store = JsonLines(path)
    store.write([record(1)])
    path.rename(path.with_name("records.jsonl.1"))
    path.touch(0o640)

    store.write([record(2)])

    assert numbers(JsonLines(path).last(10, RecordConditions())) == [1, 2]


def test_a_file_that_is_truncated_is_indexed_anew(path: Path) -> None:
    store = JsonLines(path)
    store.write([record(number) for number in range(10)])
    with path.open("w"):
        pass

    store.write([record(11), record(12)])

    assert [len(JsonLines(path).find(f"req-{number}")) for number in (5, 11, 12)] == [0, 1, 1]


def test_a_file_that_is_truncated_in_the_middle_of_a_read_ends_no_reader(path: Path) -> None:
    # given a file of many pages, and a reader of its own that has read the last record when logrotate cuts the file
    JsonLines(path).write([record(number, filler="x" * 20_000) for number in range(20)])
    script = f"""
import os
from pathlib import Path
from shared_scheduler.records.json_lines import JsonLines
from tests.unit.records.test_json_lines import meanwhile
found = JsonLines(Path({str(path)!r})).last(50, meanwhile(lambda: os.truncate({str(path)!r}, 0)))
print(len(found))
"""

    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)

    # then it goes on with what is there
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_the_newest_records_are_found_after_the_clock_was_set_back(path: Path) -> None:
    """The file that was rotated while the clock was ahead once counted as the newest one until the clock was there."""
    # given a file of a time when the clock was an hour ahead, and records that were written after it was corrected
    store = JsonLines(path, max_mb=1, kept=3)
    store.write([record(3600 + number) for number in range(10)])
    store.write([record(number, filler="x" * 1_000_000) for number in range(2)])
    oldest = path.with_name(f"{path.name}.2")
    ahead_s = path.stat().st_mtime + 3600
    os.utime(oldest, (ahead_s, ahead_s))
    # then those are the newest
    assert numbers(JsonLines(path).last(2, RecordConditions())) == [0, 1]
    assert numbers(JsonLines(path).last(4, RecordConditions())) == [0, 1, 3608, 3609]


def test_records_are_found_by_time_after_the_clock_was_set_back(path: Path) -> None:
    # given a clock that is set back by ten minutes, and records before and after that
    times = (*range(0, 2_000, 100), *range(1_400, 1_800, 100))
    JsonLines(path).write([record(number) for number in times])
    at = record(1_450)["at"]

    # then a question for a time finds those of both
    assert numbers(JsonLines(path).last(50, RecordConditions(since_s=at))) == sorted(
        one for one in times if one > 1_450
    )
    assert numbers(JsonLines(path).last(50, RecordConditions(since_s=at, until_s=at + 100))) == [1_500, 1_500]


def test_a_line_that_was_written_half_harms_no_other(path: Path) -> None:
    JsonLines(path).write([record(1)])
    with path.open("a") as file:
        file.write('{"kind": "decision", "at": 17600')

    assert numbers(JsonLines(path).find("req-1")) == [1]
    JsonLines(path).write([record(2)])

    assert numbers(JsonLines(path).last(10, RecordConditions())) == [1, 2]
    assert numbers(JsonLines(path).find("req-2")) == [2]


def test_lines_without_an_index_are_found_and_then_indexed(path: Path) -> None:
    JsonLines(path).write([record(1), record(2)])
    for each in (path.parent / "records.jsonl.index").iterdir():
        each.unlink()

    assert numbers(JsonLines(path).find("req-1")) == [1]
    JsonLines(path).write([record(3)])

    index = LineIndex(path.parent / "records.jsonl.index", path.stat().st_ino)
    assert index.covered() == path.stat().st_size
    assert numbers(JsonLines(path).find("req-1")) == [1]


def test_an_index_that_ends_in_the_middle_of_an_entry_is_continued(path: Path) -> None:
    JsonLines(path).write([record(1)])
    index = path.parent / "records.jsonl.index" / f"{path.stat().st_ino}.marks"
    with index.open("ab") as file:
        file.write(b"12345")

    JsonLines(path).write([record(2)])

    assert numbers([*JsonLines(path).find("req-1"), *JsonLines(path).find("req-2")]) == [1, 2]


def test_names_with_equal_digests_are_distinguished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "_digest", lambda mark: 1)
    JsonLines(path).write([record(1), record(2)])

    assert numbers(JsonLines(path).find("req-2")) == [2]


def test_a_name_is_found_without_reading_other_lines(path: Path) -> None:
    JsonLines(path).write([record(1), record(2), record(3)])
    text = path.read_text()
    path.write_text(text.replace('"req-2"', '"req-3"'))  # same length; only the index knows where req-3 was

    assert numbers(JsonLines(path).find("req-3")) == [3]


def test_a_time_is_found_without_reading_what_is_far_from_it(path: Path) -> None:
    JsonLines(path).write([record(100 * number, filler="x" * number) for number in range(50)])
    at = record(2_000)["at"]
    text = path.read_text()
    path.write_text(text.replace('"req-4900"', '"req-2000"'))

    assert numbers(JsonLines(path).last(5, RecordConditions(since_s=at, until_s=at + 250))) == [2000, 2100, 2200]
    assert numbers(JsonLines(path).last(1, RecordConditions(until_s=at + 199))) == [2100]


def test_a_record_that_was_stored_late_is_found_by_its_time(path: Path) -> None:
    JsonLines(path).write([record(number) for number in (0, 100, 230, 200, 300)])
    at = record(200)["at"]

    assert numbers(JsonLines(path).last(5, RecordConditions(since_s=at, until_s=at))) == [200]
    assert numbers(JsonLines(path).last(5, RecordConditions(since_s=at + 1))) == [230, 300]


def test_reasons_that_a_killed_writer_left_half_hide_no_other(path: Path) -> None:
    JsonLines(path).write([record(1, reason="full")])
    index = path.parent / "records.jsonl.index" / f"{path.stat().st_ino}.reasons"
    with index.open("a") as file:
        file.write('99 ["half')

    JsonLines(path).write([record(2, reason="away")])

    assert numbers(JsonLines(path).last(5, RecordConditions(reason="away"))) == [2]
    assert JsonLines(path).last(5, RecordConditions(reason="half")) == []


def test_many_writers_lose_nothing_while_files_are_rotated(path: Path) -> None:
    def write(first: int) -> None:
        store = JsonLines(path, max_mb=1, kept=50)
        for number in range(first, first + 50):
            store.write([record(number, filler="x" * 30_000)])
        store.close()

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 50, 100, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    store = JsonLines(path)
    assert numbers(store.last(1000, RecordConditions())) == list(range(200))
    assert all(len(store.find(f"req-{number}")) == 1 for number in range(200))


def test_a_reader_needs_no_right_to_write(path: Path) -> None:
    JsonLines(path).write([record(1)])
    before = sorted(each.stat().st_mtime_ns for each in path.parent.rglob("*"))
    JsonLines(path).find("req-1")
    JsonLines(path).last(1, RecordConditions())

    assert sorted(each.stat().st_mtime_ns for each in path.parent.rglob("*")) == before
