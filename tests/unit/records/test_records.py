# SPDX-License-Identifier: Apache-2.0
"""Records are kept in bounded space, and never in the way of decisions."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from shared_scheduler.nova import process
from shared_scheduler.records import database, recorder
from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.recorder import Recorder
from shared_scheduler.records.store import Record, RecordConditions


def record(number: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "decision",
        "at": 1_760_000_000.5 + number,
        "scheduler": "sched1",
        "request_id": f"req-{number}",
        "project_id": "demo",
        "result": "placed",
        "hosts": ["cmp1"],
        **more,
    }


class TestWrongOptions:
    """One line that names the option, instead of a traceback at the start."""

    @pytest.mark.parametrize("url", ["nonsense", "what://h/d"])
    def test_a_url_that_names_no_database(self, url: str) -> None:
        with pytest.raises(RecordsError, match=r"\[shared_scheduler\] records_connection: "):
            RecordTable(url, 100)

    def test_the_process_refuses_to_start_with_them(self) -> None:
        assert RecordsError in process.CORRECTABLE


class TestADatabaseThatIsAway:
    """Decisions go on without it; each record that it misses is counted and told."""

    def test_the_scheduler_starts_without_it(self) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # nobody listens
            port = closed.getsockname()[1]
            table = RecordTable(f"mysql+pymysql://user:secret@127.0.0.1:{port}/records", 100)

            with pytest.raises(SQLAlchemyError):
                table.write([record(1)])

    @pytest.mark.parametrize("driver", ["mysql+pymysql", "mariadb+pymysql"])
    def test_one_that_accepts_and_does_not_answer_is_given_up(
        self, driver: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As one that has lost its power: the next connection may reach the one that replaces it."""
        monkeypatch.setattr(database, "ANSWER_WAIT_S", 0.1, raising=False)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            table = RecordTable(f"{driver}://user:secret@127.0.0.1:{silent.getsockname()[1]}/records", 100)
            counters, ended = Counter[str](), threading.Event()

            def keep() -> None:
                Recorder([table], counters).keep([record(1)])
                ended.set()

            threading.Thread(target=keep, daemon=True).start()

            assert ended.wait(20)
        assert counters == {"records_lost": 1}

    def test_records_resume_when_it_is_back(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        url = f"sqlite:///{tmp_path}/mounted/r.db"
        table, now, counters = RecordTable(url, 100), Now(), Counter[str]()
        carrier = Recorder([table], counters, clock=now)

        for number in range(3):  # the second is not tried, the third is
            carrier.keep([record(number)])
            now.s += recorder.PAUSE_AFTER_FAILURE_S / 2
        assert counters == {"records_lost": 3}
        (tmp_path / "mounted").mkdir()
        carrier.keep([record(3)])
        now.s += recorder.PAUSE_AFTER_FAILURE_S
        carrier.keep([record(4)])
        carrier.keep([record(5)])

        assert table.find("req-4") == [record(4)]
        assert counters == {"records_lost": 4}
        table.close()
        said = [line.getMessage() for line in caplog.records if line.name == recorder.__name__]
        assert ["1 lost so far" in said[0], "3 lost so far" in said[1]] == [True, True]
        assert said[2:] == ["Records are written to RecordTable again; 4 were lost"]

    def test_tables_that_were_dropped_are_made_again(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/r.db"
        table = RecordTable(url, 100)
        table.write([record(1)])
        with create_engine(url).begin() as connection:
            for name in inspect(connection).get_table_names():
                connection.exec_driver_sql(f"DROP TABLE {name}")

        with pytest.raises(SQLAlchemyError):
            table.write([record(2)])
        table.write([record(3)])

        assert table.find("req-3") == [record(3)]
        table.close()


class Now:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class TestStop:
    def test_a_sink_that_hangs_does_not_hold_up_the_stop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Hanging:
            def __init__(self) -> None:
                self.begun, self.go_on = threading.Event(), threading.Event()

            def write(self, records: Sequence[Record]) -> None:
                self.begun.set()
                self.go_on.wait()

            def retain(self, now_s: float) -> bool:
                return False

            def close(self) -> None:
                assert self.go_on.is_set(), "closed while it was written to"

        monkeypatch.setattr(recorder, "STOP_WAIT_S", 0.05)
        monkeypatch.setattr(recorder, "QUEUE_MAX", 1)
        hanging = Hanging()
        records = Recorder([hanging], Counter())
        records.start()
        records.add(record(1))
        hanging.begun.wait()
        records.add(record(2))  # the queue is full now

        records.stop()

        hanging.go_on.set()


class TestJsonLines:
    def test_one_line_a_record(self, tmp_path: Path) -> None:
        lines = JsonLines(tmp_path / "made" / "records.jsonl", max_mb=1, kept=2)

        lines.write([record(1), record(2)])
        lines.close()

        text = (tmp_path / "made" / "records.jsonl").read_text().splitlines()
        assert [json.loads(line)["request_id"] for line in text] == ["req-1", "req-2"]

    def test_a_restart_appends_to_the_same_file(self, tmp_path: Path) -> None:
        for number in (1, 2):
            lines = JsonLines(tmp_path / "r", max_mb=1, kept=2)
            lines.write([record(number)])
            lines.close()

        assert len((tmp_path / "r").read_text().splitlines()) == 2

    def test_files_are_put_aside_and_the_oldest_go(self, tmp_path: Path) -> None:
        lines = JsonLines(tmp_path / "r", max_mb=1, kept=3)

        for number in range(5):
            lines.write([record(number, filler="x" * 600_000)])
        lines.close()

        kept = [json.loads((tmp_path / name).read_text())["request_id"] for name in ("r", "r.1", "r.2")]
        assert kept == ["req-4", "req-3", "req-2"]
        assert sorted(p.name for p in tmp_path.iterdir()) == ["r", "r.1", "r.2", "r.index"]

    def test_a_file_that_cannot_be_put_aside_is_written_again_when_it_can(self, tmp_path: Path) -> None:
        aside = tmp_path / "r.jsonl.1"
        (aside / "in the way").mkdir(parents=True)
        sink = JsonLines(tmp_path / "r.jsonl", max_mb=1, kept=2)
        sink.write([record(1, text="x" * 900_000)])
        with pytest.raises(OSError):
            sink.write([record(2, text="x" * 900_000)])

        (aside / "in the way").rmdir()
        aside.rmdir()
        sink.write([record(3)])
        sink.close()

        assert '"req-3"' in (tmp_path / "r.jsonl").read_text()

    def test_one_file_alone_begins_anew(self, tmp_path: Path) -> None:
        lines = JsonLines(tmp_path / "r", max_mb=1, kept=1)
        lines.write([record(n, filler="x" * 600_000) for n in range(3)])
        lines.close()

        assert json.loads((tmp_path / "r").read_text())["request_id"] == "req-2"


class Kept:
    """A sink that can be held up and can fail."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.go = threading.Event()
        self.go.set()
        self.reached = threading.Event()
        self.fail = False
        self.tries = 0
        self.closed = False
        self.retained: list[float] = []

    def write(self, records: Sequence[Record]) -> None:
        self.reached.set()
        self.go.wait()
        self.tries += 1
        if self.fail:
            raise OSError("No space left on device")
        self.records += records

    def retain(self, now_s: float) -> bool:
        self.retained.append(now_s)
        return len(self.retained) < 3

    def close(self) -> None:
        self.closed = True


class Full(Kept):
    """A file whose last lines do not fit on the disk."""

    def close(self) -> None:
        raise OSError("No space left on device")


class TestRecorder:
    def test_queued_records_are_written_before_the_stop(self) -> None:
        sink = Kept()
        carrier = Recorder([sink], Counter())
        carrier.start()

        for number in range(250):
            carrier.add(record(number))
        carrier.stop()

        assert [r["request_id"] for r in sink.records] == [f"req-{n}" for n in range(250)]
        assert sink.closed

    def test_a_slow_sink_costs_records_not_time(self) -> None:
        sink = Kept()
        sink.go.clear()
        counters = Counter[str]()
        carrier = Recorder([sink], counters)
        carrier.start()
        carrier.add(record(0))
        sink.reached.wait()

        for number in range(recorder.QUEUE_MAX + 10):
            carrier.add(record(number))

        assert counters == {"records_dropped": 10}
        sink.go.set()
        carrier.stop()
        assert len(sink.records) == recorder.QUEUE_MAX + 1

    def test_records_that_are_dropped_are_told_again_after_a_while(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Only the first one of a process was, so that a database that hung a second time lost them in silence."""
        # given a queue that is full, because nobody writes
        monkeypatch.setattr(recorder, "QUEUE_MAX", 1)
        now = Now()
        carrier = Recorder([Kept()], Counter(), clock=now)
        for number in range(3):
            carrier.add(record(number))
        # when it is full a while later
        now.s += recorder.DROPPED_EVERY_S
        for number in range(3, 6):
            carrier.add(record(number))
        # then both times are told, with the number
        said = [line.getMessage() for line in caplog.records if line.name == recorder.__name__]
        assert [int(text) for line in said for text in re.findall(r"\d+", line)] == [1, 3]

    def test_records_that_follow_each_other_fast_are_written_together(self) -> None:
        # given a record that was written at once, at a time that stands still
        batches: list[int] = []
        written, goes_on = threading.Event(), threading.Event()

        class Batches(Kept):
            def write(self, records: Sequence[Record]) -> None:
                super().write(records)
                batches.append(len(records))
                written.set()

        def pause(_left_s: float) -> None:
            assert goes_on.wait(60)

        carrier = Recorder([Batches()], Counter[str](), clock=lambda: 0.0, pause=pause)
        carrier.start()
        carrier.add(record(0))
        assert written.wait(60)
        # when more come a moment later, one after the other
        for number in range(1, 4):
            carrier.add(record(number))
        goes_on.set()
        carrier.stop()
        # then they share a write
        assert batches == [1, 3]

    def test_a_failing_sink_does_not_stop_the_other(self) -> None:
        broken, good = Kept(), Kept()
        broken.fail = True
        now = [0.0]
        counters = Counter[str]()
        carrier = Recorder([broken, good], counters, clock=lambda: now[0])
        carrier.start()
        for number in range(3 * recorder.BATCH_MAX):
            carrier.add(record(number))
        carrier.stop()

        assert broken.tries == 1
        assert counters == {"records_lost": 3 * recorder.BATCH_MAX}
        assert len(good.records) == 3 * recorder.BATCH_MAX

    @pytest.mark.parametrize("kind", ["file", "database"])
    def test_a_record_that_is_refused_costs_no_other(
        self, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = JsonLines(tmp_path / "r") if kind == "file" else RecordTable(f"sqlite:///{tmp_path}/r.db")
        counters = Counter[str]()
        refused = {**record(2), "asked": {("no", "JSON"): 1}}

        Recorder([store], counters).keep([record(1), refused, record(3)])

        assert store.last(10, RecordConditions()) == [record(1), record(3)]
        assert counters == {"records_lost": 1}
        assert "refuses the record of req-2, which is lost: TypeError" in caplog.text
        store.close()

    def test_a_name_that_the_driver_cannot_encode_costs_no_other_record(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """JSON may hold half of a surrogate pair, which no encoding of a database has."""
        table, counters = RecordTable(f"sqlite:///{tmp_path}/r.db"), Counter[str]()

        Recorder([table], counters).keep([record(1), record(2, request_id="req-\ud800"), record(3)])

        assert table.last(10, RecordConditions()) == [record(1), record(3)]
        assert counters == {"records_lost": 1}
        assert "refuses the record" in caplog.text
        table.close()

    def test_retention_goes_on_step_by_step_and_then_begins_again_after_a_while(self) -> None:
        store, now = Kept(), Now()
        carrier = Recorder([store], Counter(), clock=now)

        for at_s in range(5):
            carrier.retain(float(at_s))
        assert store.retained == [0.0, 1.0, 2.0], "two steps that left more to do, and one that did not"

        now.s += recorder.RETAIN_EVERY_S
        carrier.retain(100.0)
        assert store.retained[3:] == [100.0]

    def test_a_store_that_fails_is_waited_for_in_peace(self) -> None:
        """Retention that is due in a store that is not used at present once kept a processor busy."""
        # given a store that fails shortly before its retention is due
        store, now, spins, reads = Kept(), Now(), threading.Event(), Counter[str]()
        store.retained = [0.0] * 3  # so that each step is the last one

        def clock() -> float:
            reads["clock"] += 1
            if reads["clock"] > 1_000:
                spins.set()
            return now.s

        carrier = Recorder([store], Counter(), clock=clock, pause=lambda _: None)
        carrier.retain(0.0)
        store.fail = True
        now.s = recorder.RETAIN_EVERY_S - 1
        carrier.keep([record(1)])
        # when it is due, and the store is not used for a while
        now.s = recorder.RETAIN_EVERY_S + 1
        carrier.start()
        # then nobody looks at the clock again and again
        assert not spins.wait(1)
        carrier.stop()

    def test_an_archive_that_is_away_costs_no_record(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "archive").write_text("not a directory")
        table = RecordTable(f"sqlite:///{tmp_path}/r.db", rows_max=1, archive=tmp_path / "archive")
        counters = Counter[str]()
        carrier = Recorder([table], counters)
        carrier.keep([record(1), record(2)])

        carrier.retain(0.0)

        assert table.last(5, RecordConditions()) == [record(1), record(2)] and not counters
        assert "Old records stay in RecordTable" in caplog.text
        table.close()

    def test_a_sink_that_cannot_be_closed_does_not_keep_the_other_open(self, caplog: pytest.LogCaptureFixture) -> None:
        full, other = Full(), Kept()
        carrier = Recorder([full, other], Counter())
        carrier.start()
        carrier.add(record(1))

        carrier.stop()

        assert other.closed and len(other.records) == 1
        assert "may be lost in Full: No space left on device" in caplog.text

    def test_a_file_that_cannot_be_opened_costs_records_and_nothing_else(self, tmp_path: Path) -> None:
        counters = Counter[str]()
        carrier = Recorder([JsonLines(tmp_path)], counters)  # a directory
        carrier.start()
        carrier.add(record(1))
        carrier.stop()

        assert counters == {"records_lost": 1}

    def test_without_sinks_nothing_is_kept_and_nothing_waits(self) -> None:
        counters = Counter[str]()
        carrier = Recorder([], counters)
        carrier.start()
        for number in range(recorder.QUEUE_MAX + 1):
            carrier.add(record(number))
        carrier.stop()

        assert not carrier
        assert not counters
