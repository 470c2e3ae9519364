# SPDX-License-Identifier: Apache-2.0
"""Which records without allocations a scheduler may take over."""

from __future__ import annotations

from shared_scheduler.placement.own_records import OwnRecord, OwnRecords
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S

SERVER = "server-1"


def test_the_record_of_another_writer_is_none_of_ours() -> None:
    assert OwnRecords().state(SERVER, 100.0) is OwnRecord.NONE


def test_the_record_of_a_refused_write_is_left_at_once() -> None:
    records = OwnRecords()
    records.failed(SERVER, 100.0, may_arrive=False)
    assert records.state(SERVER, 100.0) is OwnRecord.LEFT


def test_a_write_without_an_answer_may_come_for_a_while() -> None:
    records = OwnRecords()
    records.failed(SERVER, 100.0, may_arrive=True)
    assert records.state(SERVER, 100.0 + CARRIED_OUT_WITHIN_S - 0.1) is OwnRecord.COMING
    assert records.state(SERVER, 100.0 + CARRIED_OUT_WITHIN_S) is OwnRecord.LEFT


def test_a_refusal_does_not_end_the_time_of_an_earlier_write_without_an_answer() -> None:
    records = OwnRecords()
    records.failed(SERVER, 100.0, may_arrive=True)
    records.failed(SERVER, 101.0, may_arrive=False)
    assert records.state(SERVER, 102.0) is OwnRecord.COMING


def test_a_record_with_allocations_is_not_taken_over_later() -> None:
    records = OwnRecords()
    records.failed(SERVER, 100.0, may_arrive=False)
    records.written(SERVER)
    assert records.state(SERVER, 101.0) is OwnRecord.NONE


def test_the_oldest_are_forgotten_first() -> None:
    records = OwnRecords(max_consumers=2)
    for consumer in ("server-1", "server-2", "server-1", "server-3"):
        records.failed(consumer, 100.0, may_arrive=False)
    assert [records.state(f"server-{number}", 101.0) for number in (1, 2, 3)] == [
        OwnRecord.LEFT, OwnRecord.NONE, OwnRecord.LEFT,
    ]  # fmt: skip
