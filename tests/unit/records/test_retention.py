# SPDX-License-Identifier: Apache-2.0
"""The oldest records leave a store by age and by number, in bounded steps, and may be archived."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from shared_scheduler.records import database
from shared_scheduler.records.database import ARCHIVE, RecordTable
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.sql_tables import METADATA, TEXTS
from shared_scheduler.records.store import SECONDS_PER_DAY, RecordConditions, Store
from tests.unit.records.test_stores import numbers, record

#: when the first record of these tests was made
BEGIN_S = record(0)["at"]
#: more than any of these tests needs
STEPS_MAX = 100


def until_done(store: Store, now_s: float) -> int:
    """The number of steps that left more to do."""
    steps = 0
    while store.retain(now_s):
        steps += 1
        assert steps < STEPS_MAX
    return steps


def kept(store: Store) -> list[int]:
    return numbers(store.last(1_000, RecordConditions()))


class TestDatabase:
    @pytest.fixture(autouse=True)
    def small_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(database, "RETAINED_ROWS", 10)

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/records.sqlite"

    def test_the_oldest_rows_leave_in_steps_with_all_that_belongs_to_them(self, url: str) -> None:
        table = RecordTable(url, rows_max=15)
        table.write([record(number) for number in range(40)])

        assert until_done(table, BEGIN_S) == 2
        assert kept(table) == list(range(25, 40))
        with sa.create_engine(url).connect() as connection:
            counts = {
                each.name: connection.execute(sa.select(sa.func.count()).select_from(each)).scalar()
                for each in METADATA.sorted_tables
            }
        assert counts == {
            "shared_scheduler_records": 15,
            "shared_scheduler_record_texts": 15,
            "shared_scheduler_record_names": 15 * len(["request", "global request", "instance", "host"]),
        }

    def test_rows_that_are_too_old_leave(self, url: str) -> None:
        table = RecordTable(url, days_max=1)
        table.write([record(number) for number in range(40)])

        until_done(table, BEGIN_S + SECONDS_PER_DAY + 25)

        assert kept(table) == list(range(25, 40))

    def test_rows_that_leave_are_found_in_the_archive(self, url: str, tmp_path: Path) -> None:
        table = RecordTable(url, rows_max=15, archive=tmp_path / "archive")
        table.write([record(number) for number in range(40)])

        until_done(table, BEGIN_S)

        archive = JsonLines(tmp_path / "archive" / ARCHIVE)
        assert kept(archive) == list(range(25))
        assert archive.find("req-7") == [record(7)]

    @pytest.mark.parametrize("text", ['{"at": 17600', "[]", '{"at": 1760000003.5, "instances": 5}'])
    def test_a_row_that_cannot_be_read_keeps_no_other_from_leaving(self, url: str, tmp_path: Path, text: str) -> None:
        """It once made each search fail, so that the table grew without bound."""
        # given a row that was cut, changed, or written by another release
        table = RecordTable(url, rows_max=15, archive=tmp_path / "archive")
        table.write([record(number) for number in range(40)])
        with sa.create_engine(url).begin() as connection:
            connection.execute(TEXTS.update().where(TEXTS.c.record_id == 4).values(record=text))
        # when rows leave
        until_done(table, BEGIN_S)
        # then it leaves with them, and the archive has what it said
        assert kept(table) == list(range(25, 40))
        archived = JsonLines(tmp_path / "archive" / ARCHIVE).last(100, RecordConditions())
        assert numbers(archived) == list(range(25))
        assert archived[3] == {"kind": "unreadable", "at": record(3)["at"], "text": text}

    def test_schedulers_that_share_the_database_archive_each_row_once(self, url: str, tmp_path: Path) -> None:
        RecordTable(url).write([record(number) for number in range(200)])
        together = threading.Barrier(4)

        def retain() -> None:
            table = RecordTable(url, rows_max=15, archive=tmp_path / "archive")
            table.write([])
            table._is_there = True  # as after its first write
            together.wait()
            until_done(table, BEGIN_S)
            table.close()

        threads = [threading.Thread(target=retain) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert kept(JsonLines(tmp_path / "archive" / ARCHIVE)) == list(range(185))
        assert kept(RecordTable(url)) == list(range(185, 200))


class TestJsonLines:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "records.jsonl"

    def write(self, make: Callable[[], JsonLines]) -> None:
        """Three files, of the days 0, 1 and 2, and the current one, of day 3."""
        store = make()
        for day in range(4):
            store.write([record(day * SECONDS_PER_DAY, filler="x" * 900_000)])
        for back, each in enumerate(sorted(store._path.parent.glob("records.jsonl.?"))):
            at_s = BEGIN_S + (2 - back) * SECONDS_PER_DAY
            os.utime(each, (at_s, at_s))

    def test_files_that_are_too_old_leave_one_in_a_step(self, path: Path) -> None:
        store = JsonLines(path, max_mb=1, kept=9, days_max=2)
        self.write(lambda: store)

        assert until_done(store, BEGIN_S + 3 * SECONDS_PER_DAY - 60) == 1
        assert [number // SECONDS_PER_DAY for number in kept(store)] == [1, 2, 3]

        assert until_done(store, BEGIN_S + 9 * SECONDS_PER_DAY) == 2
        assert [number // SECONDS_PER_DAY for number in kept(store)] == [3], "its file has just been written"

    def test_a_file_is_rotated_when_it_is_old_though_it_is_small(self, path: Path) -> None:
        store = JsonLines(path, days_max=8)
        store.write([record(0)])
        store.retain(BEGIN_S + SECONDS_PER_DAY)
        store.write([record(SECONDS_PER_DAY)])
        assert not path.with_name("records.jsonl.1").exists()

        store.retain(BEGIN_S + 3 * SECONDS_PER_DAY)
        store.write([record(3 * SECONDS_PER_DAY)])

        assert [number // SECONDS_PER_DAY for number in kept(JsonLines(path.with_name("records.jsonl.1")))] == [0, 1]
        assert [number // SECONDS_PER_DAY for number in kept(store)] == [0, 1, 3]

    def test_files_that_leave_by_size_or_age_are_found_in_the_archive(self, path: Path, tmp_path: Path) -> None:
        archive = tmp_path / "archive"
        store = JsonLines(path, max_mb=1, kept=3, days_max=2, archive=archive)
        self.write(lambda: store)
        by_size = JsonLines(archive / "records.jsonl")
        assert [number // SECONDS_PER_DAY for number in kept(by_size)] == [0]

        until_done(store, BEGIN_S + 3.5 * SECONDS_PER_DAY)

        assert [number // SECONDS_PER_DAY for number in kept(JsonLines(archive / "records.jsonl"))] == [0, 1]
        assert by_size.find(record(0)["request_id"])[0]["at"] == BEGIN_S

    def test_an_archive_beside_the_records_is_left_alone(self, path: Path) -> None:
        """Each step of retention once moved an archived file to itself, and there was always more to do."""
        store = JsonLines(path, max_mb=1, kept=9, days_max=2, archive=path.parent)
        self.write(lambda: store)

        assert until_done(store, BEGIN_S + 9 * SECONDS_PER_DAY) == 3
        assert [number // SECONDS_PER_DAY for number in kept(store)] == [0, 1, 2, 3], "they are in the same directory"

    def test_without_a_bound_of_age_nothing_leaves_by_age(self, path: Path) -> None:
        store = JsonLines(path, max_mb=1, kept=9)
        self.write(lambda: store)

        assert until_done(store, BEGIN_S + 1_000 * SECONDS_PER_DAY) == 0
        assert len(kept(store)) == 4
