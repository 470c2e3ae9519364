# SPDX-License-Identifier: Apache-2.0
"""An engine that is drained waits for the deletes of claims whose requests have failed, as long as it may.

The core is the real one.  The writer answers at once, or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.write_queue import Work
from shared_scheduler.service.engine import Engine, Sinks
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only

#: for a wait that ends much earlier
PATIENCE_S = 180.0


class Reader:
    """Reads nothing."""

    def start(self) -> None: ...
    def submit(self, effect: object) -> None: ...
    def stop(self) -> None: ...


class Deleter:
    """A writer that answers the deletes that it gets until it is stopped; ``gone``: how, one after the other."""

    def __init__(self, *gone: bool) -> None:
        self.gone = list(gone)
        self.deletes: list[ef.DeleteAllocation] = []
        self.answer: Callable[[ev.Event], None] = lambda _: None
        self.stopped = False

    def start(self) -> None: ...

    def submit(self, effect: Work) -> None:
        assert isinstance(effect, ef.DeleteAllocation) and not self.stopped
        self.deletes.append(effect)
        if self.gone:
            self.answer(ev.AllocationDeleted(effect.claim_id, self.gone.pop(0), cause=effect.cause))

    def stop(self) -> None:
        self.stopped = True


class Bench:
    """A scheduler that begins to stop while the write of a failed request is under way."""

    def __init__(self, deleter: Deleter, clock: Callable[[], float] = time.monotonic) -> None:
        self.driver = SchedulerDriver(delete_pause_s=0.2, cleanup_s=1.0).without_agents("node-1")
        self.driver.now = clock() - 5.0
        self.write = only(ef.WriteAllocation, self.driver.ask(within_s=5.0))
        assert len(of_kind(ef.Fail, self.driver.wait(5.0))) == 1
        self.deleter = deleter
        self.engine = Engine(self.driver.core, clock)
        deleter.answer = self.engine.handle
        self.engine.start(Sinks(deleter, Reader()))

    def written(self, may_arrive: bool = False) -> None:
        code = ev.WriteCode.PROVIDER_CONFLICT if may_arrive else ev.WriteCode.WRITTEN
        name, done = self.write.claim_id, {} if may_arrive else self.write.allocations
        self.engine.handle(ev.AllocationWritten(name, code, "", done, may_arrive=may_arrive, cause="req-1"))


@pytest.fixture
def begun() -> Iterator[list[Bench]]:
    benches: list[Bench] = []
    yield benches
    for each in benches:
        each.engine.stop()


def test_a_delete_that_failed_is_repeated_before_the_end(begun: list[Bench]) -> None:
    # given a Placement that does not carry out the first delete
    deleter = Deleter(False, True)
    begun.append(bench := Bench(deleter))
    bench.written()
    assert len(deleter.deletes) == 1

    # when the scheduler stops
    bench.engine.drain(PATIENCE_S)
    bench.engine.stop()

    # then the second one came before the end
    assert len(deleter.deletes) == 2
    assert len(bench.driver.core.claims) == 0


def test_a_delete_that_is_due_after_the_end_is_not_waited_for_and_its_server_is_named(
    begun: list[Bench], caplog: pytest.LogCaptureFixture
) -> None:
    # given a write that may be carried out for a minute, and a clock that stands still
    begun.append(bench := Bench(Deleter(), lambda: 1000.0))
    bench.written(may_arrive=True)
    assert len(bench.driver.core.claims) == 1

    # when the scheduler stops within less than that, then it does not wait
    assert bench.engine.drain(30.0)
    bench.engine.stop()

    # and an operator can find what may be left
    assert bench.deleter.deletes == []
    assert "Allocations may be left of servers server-1" in caplog.messages


def test_a_delete_that_does_not_end_is_waited_for_as_long_as_there_is_time(begun: list[Bench]) -> None:
    # given a Placement that does not answer the delete
    now = iter(range(1000, 1_000_000))
    begun.append(bench := Bench(Deleter(), lambda: float(next(now))))
    bench.written()

    # when the scheduler stops, then it does so in time
    assert bench.engine.drain(30.0)
    assert len(bench.driver.core.claims) == 1


def test_what_may_be_left_is_named_once_and_before_a_writer_that_may_not_end(
    begun: list[Bench], caplog: pytest.LogCaptureFixture
) -> None:
    # given a Placement that hangs, so that the process ends before its writer does
    now = iter(range(1000, 1_000_000))
    begun.append(bench := Bench(Deleter(), lambda: float(next(now))))
    bench.written()

    # when the time for deletes is over
    bench.engine.drain(30.0)

    # then an operator can find what may be left, whether the writer ends or not
    left = "Allocations may be left of servers server-1"
    assert caplog.messages.count(left) == 1
    bench.engine.stop()
    assert caplog.messages.count(left) == 1


def test_an_end_that_leaves_nothing_names_no_server(begun: list[Bench], caplog: pytest.LogCaptureFixture) -> None:
    begun.append(bench := Bench(Deleter(True)))
    bench.written()

    bench.engine.drain(PATIENCE_S)
    bench.engine.stop()

    assert not [line for line in caplog.messages if "may be left" in line]
