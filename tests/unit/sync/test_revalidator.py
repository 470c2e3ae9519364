# SPDX-License-Identifier: Apache-2.0
"""The engine that runs every read: one in flight for each key, shared, bounded, and never in a storm."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from shared_scheduler.core.events import AggregatesRead, Event
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.sync import bounded_reads, cost, revalidator
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.flight import Key, ReadRequest
from shared_scheduler.sync.read_registry import AGGREGATES, CONSUMER, NODE, RETRY_MOST_S, SERVICES, SHARING, SOURCES
from shared_scheduler.sync.revalidator import Revalidator

WAIT_S = 60.0
CLOUD = (AGGREGATES, ())


class SchedulerDriver:
    """A revalidator without threads, on a clock that the test moves."""

    def __init__(self, **more: Any) -> None:
        self.now_s = 100.0
        self.heard: list[Event] = []
        self.read_at: list[tuple[Key, float]] = []
        self.answer: Callable[[Key], Any] = lambda key: ()
        self.sut = Revalidator(self.heard.append, lambda: self.now_s, random.Random(1), **more)

    def provide(self, *names: str) -> Revalidator:
        self.sut.provide({name: self.read for name in names})
        return self.sut

    def read(self, key: Key, began_s: float) -> Iterator[Any]:
        self.read_at.append((key, began_s))
        yield from self.answer(key)

    def work_off(self, seconds: float) -> int:
        """How many reads there are in this time."""
        self.read_at.clear()
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 0.25
            self.sut.work_off()
        return len(self.read_at)


def found(number: int = 0) -> AggregatesRead:
    return AggregatesRead((), frozenset({number}))


# -- polls -----------------------------------------------------------------------------------------


def test_a_source_is_polled_at_its_interval() -> None:
    driver = SchedulerDriver()
    driver.provide(AGGREGATES)
    assert 8 <= driver.work_off(600.0) <= 13  # every 60 s, and a fifth to both sides


def test_a_requested_read_postpones_the_poll() -> None:
    # given a source that is read on request every 20 s
    driver = SchedulerDriver()
    sut = driver.provide(AGGREGATES)
    for _ in range(30):
        sut.wait_for([CLOUD], 0.0)
        # then its poll of 60 s is never due
        assert driver.work_off(20.0) == 0 or driver.now_s < 160.0


def test_the_age_is_that_of_the_beginning_of_a_read() -> None:
    # given a read that takes 5 s
    driver = SchedulerDriver()
    sut = driver.provide(AGGREGATES)

    def slowly(_: Key) -> list[Event]:
        driver.now_s += 5.0
        return [found()]

    driver.answer = slowly
    sut.wait_for([CLOUD], 0.0)
    # then it is not good for somebody who wants one of the last 5 s, but for one who is content with 6
    sut.wait_for([CLOUD], 6.0)
    assert len(driver.read_at) == 1
    sut.wait_for([CLOUD], 5.0)
    assert [began_s for _, began_s in driver.read_at] == [100.0, 105.0]
    assert row(sut, AGGREGATES)["oldest_s"] == 5.0


def test_a_cell_that_leaves_is_polled_no_more() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(SERVICES)
    sut.add_cell("cell-1")
    sut.add_cell("cell-2")
    sut.remove_cell("cell-1")
    driver.work_off(10.0)
    assert {key for key, _ in driver.read_at} == {("cell-2",)}


# -- requests --------------------------------------------------------------------------------------


def test_what_a_read_finds_after_its_cell_has_left_does_not_count() -> None:
    # given a read of a cell that takes long
    driver = SchedulerDriver()
    sut = driver.provide(SERVICES)
    sut.add_cell("cell-1")

    def leaves(_: Key) -> Iterator[Any]:
        yield found(1)
        sut.remove_cell("cell-1")
        yield found(2)

    driver.answer = leaves
    # when the cell leaves meanwhile
    driver.work_off(5.0)
    # then only what it found before is heard
    assert driver.heard == [found(1)]


def test_a_key_waits_once_and_for_the_soonest() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(NODE)
    for in_s in (20.0, 10.0, 30.0):
        sut.request(ReadRequest(NODE, ("cell", "node"), in_s))
    assert driver.work_off(9.0) == 0
    assert driver.work_off(1.0) == 1
    assert driver.work_off(60.0) == 0


def test_a_key_that_is_wanted_again_while_it_is_read_is_read_again() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(NODE)
    wanted = ReadRequest(NODE, ("cell", "node"))
    driver.answer = lambda key: [wanted] if len(driver.read_at) == 1 else []
    sut.request(wanted)
    assert driver.work_off(1.0) == 2


def test_a_node_that_was_read_is_forgotten() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(NODE)
    for number in range(100):
        sut.request(ReadRequest(NODE, ("cell", f"node-{number}")))
    assert row(sut, NODE)["keys"] == row(sut, NODE)["due"] == 100
    assert driver.work_off(1.0) == 100
    assert row(sut, NODE)["keys"] == 0


def test_too_many_nodes_are_not_taken_in(caplog: pytest.LogCaptureFixture) -> None:
    driver = SchedulerDriver(max_waiting=2)
    sut = driver.provide(NODE)
    for number in range(5):
        sut.request(ReadRequest(NODE, ("cell", f"node-{number}")))
    assert driver.work_off(1.0) == 2
    assert caplog.text.count("more than 2 keys wait") == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 3)), max_size=40))
def test_every_request_is_served_at_or_after_its_time(requests: list[tuple[str, int, int]]) -> None:
    driver = SchedulerDriver()
    sut = driver.provide(NODE)
    due_s: dict[str, float] = {}
    for node, in_s, then_s in requests:
        sut.request(ReadRequest(NODE, ("cell", node), float(in_s)))
        due_s[node] = min(driver.now_s + in_s, due_s.get(node, float("inf")))
        driver.work_off(float(then_s))
        served = {key[1] for key, _ in driver.read_at}
        assert served == {each for each, when in due_s.items() if when <= driver.now_s and (then_s or each in served)}
        due_s = {each: when for each, when in due_s.items() if each not in served}
    driver.work_off(20.0)
    assert {key[1] for key, _ in driver.read_at} == set(due_s)


# -- failures --------------------------------------------------------------------------------------


def test_an_outage_is_asked_rarely_logged_once_a_minute_and_holds_up_one_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = SchedulerDriver()
    sut = driver.provide(AGGREGATES)

    def away(_: Key) -> list[Event]:
        raise DatabaseError("the database is away")

    driver.answer = away
    for _ in range(10):
        sut.wait_for([CLOUD], 0.0)
    assert len(driver.read_at) == 1
    reads = driver.work_off(150.0)
    assert 150.0 / RETRY_MOST_S <= reads <= 75
    assert caplog.text.count("the database is away") == 3  # at 0 s and a minute after each
    assert row(sut, AGGREGATES)["failing"] == 1

    driver.answer = lambda key: [found()]
    with caplog.at_level("INFO"):
        driver.work_off(RETRY_MOST_S)
    assert "works again" in caplog.text
    sut.wait_for([CLOUD], 0.0)
    assert row(sut, AGGREGATES)["oldest_s"] == 0.0


def test_events_before_the_failure_of_a_read_stay_valid() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(AGGREGATES)

    def half(_: Key) -> Iterator[Event]:
        yield found()
        raise DatabaseError("the second query is refused")

    driver.answer = half
    sut.wait_for([CLOUD], 0.0)
    assert driver.heard == [found()]
    assert row(sut, AGGREGATES)["failures"] == 1


def test_a_mistake_is_logged_and_the_source_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    driver = SchedulerDriver()
    sut = driver.provide(AGGREGATES)

    def broken(_: Key) -> list[Event]:
        raise RuntimeError("a bug")

    driver.answer = broken
    sut.wait_for([CLOUD], 0.0)
    assert "a bug" in caplog.text
    assert driver.work_off(2 * RETRY_MOST_S) >= 1


def test_a_read_that_fails_again_and_again_with_an_unexpected_error_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # given nodes whose reads fail, because Placement answers with another shape
    driver = SchedulerDriver()
    sut = driver.provide(NODE)
    driver.answer = lambda key: {}["resource_providers"]
    for number in range(50):
        sut.request(ReadRequest(NODE, ("cell-1", f"node-{number}")))
    # when they are tried for a while
    assert driver.work_off(50.0) > 100
    # then the log has the error once
    assert len(caplog.records) == 1
    assert "reading node cell-1 failed" in caplog.text and "KeyError: 'resource_providers'" in caplog.text


def test_nodes_that_cannot_be_read_among_others_that_can_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # given a Placement that answers for all nodes of a cell but a few
    driver = SchedulerDriver()
    sut = driver.provide(NODE)
    broken = {("cell-1", f"node-{number}") for number in range(3)}

    def answer(key: Key) -> list[Event]:
        if key in broken:
            raise PlacementError("no answer")
        return []

    driver.answer = answer
    with caplog.at_level("INFO"):
        # when they are read for a minute
        for _ in range(50):
            for number in range(10):
                sut.request(ReadRequest(NODE, ("cell-1", f"node-{number}")))
            driver.work_off(1.0)
        # then the log has it once
        assert [one.getMessage() for one in caplog.records] == ["node cell-1 cannot be read: no answer"]
        # and once that all of them can be read
        broken.clear()
        driver.work_off(2 * RETRY_MOST_S)
        assert len(caplog.records) == 2 and "node cell-1: works again" in caplog.text


def test_an_error_is_raised_to_a_direct_reader() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(AGGREGATES)
    driver.answer = lambda key: iter_error()
    with pytest.raises(DatabaseError):
        sut.read(AGGREGATES)


def iter_error() -> Iterator[Event]:
    raise DatabaseError("away")
    yield


# -- who waits -------------------------------------------------------------------------------------


def test_waiting_callers_get_the_requests_of_the_read() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(SERVICES, NODE)
    sut.add_cell("cell-1")
    nodes = {(NODE, ("cell-1", name)) for name in "ab"}
    driver.answer = lambda key: [ReadRequest(*place) for place in nodes] if len(key) == 1 else [found()]
    requested = sut.wait_for([(SERVICES, ("cell-1",))], 0.0)
    assert requested == nodes
    sut.wait_for_requested(requested)
    assert sorted(key for key, _ in driver.read_at) == [("cell-1",), ("cell-1", "a"), ("cell-1", "b")]
    assert sut.news == 2


def test_requests_that_come_together_share_a_read_that_began_after_all_of_them() -> None:
    begun, go_on = threading.Semaphore(0), threading.Semaphore(0)
    reads: list[int] = []

    def read(*_: object) -> tuple[()]:
        reads.append(len(reads))
        begun.release()
        assert go_on.acquire(timeout=WAIT_S)
        return ()

    sut = Revalidator(lambda event: None, max_wait_s=WAIT_S)
    sut.provide({AGGREGATES: read})
    first = threading.Thread(target=sut.wait_for, args=([CLOUD], 0.0))
    first.start()
    assert begun.acquire(timeout=WAIT_S)
    late = [threading.Thread(target=sut.wait_for, args=([CLOUD], 0.0)) for _ in range(5)]
    for thread in late:
        thread.start()
    while row(sut, AGGREGATES)["waiting"] < 5:
        time.sleep(0.01)

    go_on.release()
    assert begun.acquire(timeout=WAIT_S)
    go_on.release()
    for thread in (first, *late):
        thread.join(WAIT_S)

    assert not any(thread.is_alive() for thread in (first, *late))
    assert reads == [0, 1]


def test_a_read_that_hangs_delays_one_request_and_no_later_one() -> None:
    begun, answer = threading.Event(), threading.Event()

    def hang(*_: object) -> tuple[()]:
        begun.set()
        assert answer.wait(WAIT_S)
        return ()

    # given a source that does not answer
    sut = Revalidator(lambda event: None, max_wait_s=0.05)
    sut.provide({AGGREGATES: hang})
    first = threading.Thread(target=sut.wait_for, args=([CLOUD], 0.0))
    first.start()
    assert begun.wait(WAIT_S)
    # when others come
    late = [threading.Thread(target=sut.wait_for, args=([CLOUD], 0.0), daemon=True) for _ in range(3)]
    for thread in late:
        thread.start()
    for thread in (first, *late):
        thread.join(WAIT_S / 2)
    # then all go on without it
    assert not any(thread.is_alive() for thread in (first, *late))
    assert (row(sut, AGGREGATES)["waiting"], row(sut, AGGREGATES)["in_flight"]) == (0, 1)
    answer.set()


def test_a_read_for_which_no_thread_can_be_started_is_carried_out_by_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(revalidator, "begin", no_thread)
    driver = SchedulerDriver()
    sut = driver.provide(AGGREGATES)
    sut.wait_for([CLOUD], 0.0)
    # then it is not in flight for ever
    assert len(driver.read_at) == 1 and row(sut, AGGREGATES)["in_flight"] == 0


def test_a_cell_that_is_opened_again_before_the_thread_of_a_read_runs_is_not_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads, read_again, answer = list[Key](), threading.Event(), threading.Event()
    place = (SERVICES, ("cell-1",))

    def read(key: Key, _began_s: float) -> tuple[()]:
        reads.append(key)
        if len(reads) == 2:
            read_again.set()
        answer.wait(WAIT_S)
        return ()

    def begin(name: str, function: Callable[..., None], *arguments: Any) -> Future[None]:
        sut.remove_cell("cell-1")
        sut.add_cell("cell-1")
        return bounded_reads.begin(name, function, *arguments)

    sut = Revalidator(lambda event: None, max_wait_s=0.05)
    sut.provide({SERVICES: read})
    sut.add_cell("cell-1")
    # given a read that hangs, and whose thread does not run yet when its cell is opened again
    with monkeypatch.context() as before:
        before.setattr(revalidator, "begin", begin)
        sut.wait_for([place], 0.0)
    # when the next decision comes, then the cell is read
    sut.wait_for([place], 0.0)
    is_read = read_again.wait(WAIT_S)
    answer.set()
    assert is_read


# -- threads ---------------------------------------------------------------------------------------


def test_an_idle_revalidator_rests() -> None:
    # given a source that is polled once an hour
    slow = [replace(each, poll_s=each.poll_s and 3600.0) for each in SOURCES]
    asked: list[float] = []

    def clock() -> float:
        asked.append(time.monotonic())
        return asked[-1]

    sut = Revalidator(lambda event: None, clock, random.Random(1), sources=slow)
    sut.provide({AGGREGATES: lambda *_: (), SHARING: lambda *_: ()})
    sut.start()
    time.sleep(0.2)
    sut.stop()
    # then its threads have looked at the clock a few times each, and not again and again
    assert len(asked) < 40


def test_a_lane_that_hangs_does_not_hold_up_the_others() -> None:
    begun, answer, read = threading.Event(), threading.Event(), threading.Event()

    def hang(*_: object) -> tuple[()]:
        begun.set()
        assert answer.wait(WAIT_S)
        return ()

    def quick(*_: object) -> tuple[()]:
        read.set()
        return ()

    sut = Revalidator(lambda event: None)
    sut.provide({AGGREGATES: hang, NODE: quick})
    sut.start()
    sut.request(ReadRequest(AGGREGATES, ()))
    assert begun.wait(WAIT_S)
    sut.request(ReadRequest(NODE, ("cell", "node")))
    assert read.wait(WAIT_S)
    answer.set()
    sut.stop()


def test_when_the_polls_have_ended_a_decision_has_it_read_and_questions_are_answered() -> None:
    # given a source that is polled all the time
    quick = [replace(each, poll_s=each.poll_s and 0.001) for each in SOURCES]
    readers: list[threading.Thread] = []
    answered = threading.Event()

    def read(*_: object) -> tuple[()]:
        readers.append(threading.current_thread())
        return ()

    def answer(*_: object) -> tuple[()]:
        answered.set()
        return ()

    sut = Revalidator(lambda event: None, sources=quick, max_wait_s=WAIT_S)
    sut.provide({AGGREGATES: read, CONSUMER: answer})
    sut.start()
    sut.wait_for([CLOUD], 0.0)

    sut.stop_polls()

    # then nobody reads any more
    readers.clear()
    time.sleep(0.05)
    assert readers == []
    # but for a decision
    sut.wait_for([CLOUD], 0.0)
    assert len(readers) == 1
    # and the core's questions are answered
    sut.request(ReadRequest(CONSUMER, ("server",)))
    assert answered.wait(WAIT_S)
    sut.stop()


def test_a_source_that_hangs_does_not_hold_up_the_end_of_the_polls() -> None:
    begun, answer = threading.Event(), threading.Event()

    def hang(*_: object) -> tuple[()]:
        begun.set()
        assert answer.wait(WAIT_S)
        return ()

    sut = Revalidator(lambda event: None, max_wait_s=0.05)
    sut.provide({AGGREGATES: hang})
    sut.start()
    sut.request(ReadRequest(AGGREGATES, ()))
    assert begun.wait(WAIT_S)
    ending = threading.Thread(target=sut.stop_polls)
    ending.start()
    ending.join(WAIT_S / 2)
    assert not ending.is_alive()
    answer.set()
    sut.stop()


# -- costs -----------------------------------------------------------------------------------------


def test_the_report_has_ages_and_costs() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(AGGREGATES)

    def three_queries(_: Key) -> list[Event]:
        for rows in (1, 10, 100):
            cost.count(rows)
        driver.now_s += 0.5
        return [found()]

    driver.answer = three_queries
    for _ in range(2):
        sut.wait_for([CLOUD], 0.0)
    driver.now_s += 2.0
    told = row(sut, AGGREGATES)
    assert {name: told[name] for name in ("reads", "failures", "seconds", "queries", "rows", "oldest_s")} == {
        "reads": 2, "failures": 0, "seconds": 1.0, "queries": 6, "rows": 222, "oldest_s": 2.5,
    }  # fmt: skip
    assert [each["source"] for each in sut.report()] == [source.name for source in SOURCES]


def row(sut: Revalidator, source: str) -> dict[str, Any]:
    return next(each for each in sut.report() if each["source"] == source)
