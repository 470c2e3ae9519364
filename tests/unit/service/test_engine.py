# SPDX-License-Identifier: Apache-2.0
"""Events go through the core one at a time, effects find their sinks, callers get their answer."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler import SchedulerCore, StepFailedError
from shared_scheduler.decision.request import Flavor, Request
from shared_scheduler.protocol.messages import Leave, Usage
from shared_scheduler.service import engine
from shared_scheduler.service.engine import Engine, EngineBrokenError, RequestOverdueError, Sinks


class Scripted:
    """Stands in for the core: does what the test says."""

    def __init__(self) -> None:
        self.seen: list[ev.Event] = []
        self.deadline_s: float | None = None
        self.script: Callable[[ev.Event], list[ef.Effect]] = lambda event: []
        self.inside = 0
        self.claims = SimpleNamespace(ending_by=lambda at_s: [], open=list)

    def step(self, event: ev.Event, now: float) -> list[ef.Effect]:
        self.inside += 1
        assert self.inside == 1, "two threads at once"
        self.seen.append(event)
        try:
            return self.script(event)
        finally:
            self.inside -= 1

    def next_deadline_s(self) -> float | None:
        return self.deadline_s


class Sink:
    """Stores the effects that it gets."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.taken = threading.Event()
        self.life: list[str] = []
        self.on_submit: Callable[[Any], None] = lambda effect: None

    def start(self) -> None:
        self.life.append("start")

    def stop(self) -> None:
        self.life.append("stop")

    def submit(self, effect: Any) -> None:
        self.given.append(effect)
        self.taken.set()
        self.on_submit(effect)


class Bench:
    def __init__(self) -> None:
        self.core = Scripted()
        self.writer, self.reader = Sink(), Sink()
        self.engine = Engine(cast(SchedulerCore, self.core))
        self.engine.start(Sinks(self.writer, self.reader))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.engine.stop()


def test_every_engine_searches_for_garbage_as_rarely_as_the_service() -> None:
    # given Python's own settings
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        # when an engine runs, in the service or in an experiment
        made = Bench()
        made.engine.stop()
        # then the thousands of objects of a request, or of a snapshot, cause few searches
        assert gc.get_threshold() == (20_000, 20, 20)
    finally:
        gc.set_threshold(*before)


def request(name: str = "req-1") -> Request:
    return Request(
        request_id=name,
        project_id="p",
        user_id="u",
        flavor=Flavor(),
        forms=(),
        usage=Usage(),
        instance_uuids=("i",),
    )


WRITE = ef.WriteAllocation("c1", "i", {}, {}, "p", "u", ef.ConsumerPolicy.NEW, False, "req-1", 10.0)
TAKE_BACK = ef.DeleteAllocation("c1", "i", {}, "req-1")
ASK = ef.AskCandidates("a1", "node", (), "req-1")
ASK_CONSUMER = ef.AskConsumer("i", cause="req-1")
REFRESH = ef.RefreshNode("cell", "node", "why", cause="req-1")


def test_each_effect_goes_to_its_sink_in_order(bench: Bench) -> None:
    bench.core.script = lambda event: [WRITE, ASK, REFRESH, ASK_CONSUMER, TAKE_BACK]

    bench.engine.handle(ev.Tick())

    assert bench.writer.given == [WRITE, TAKE_BACK]
    assert bench.reader.given == [ASK, REFRESH, ASK_CONSUMER]


def test_the_caller_gets_the_answer_to_its_own_request(bench: Bench) -> None:
    # two callers with the same request id (a live migration that tries again) are two requests
    first, second = request(), request()
    arrived: list[Request] = []
    both_arrived = threading.Event()

    def script(event: ev.Event) -> list[ef.Effect]:
        if isinstance(event, ev.RequestArrived):
            arrived.append(event.request)
            if len(arrived) == 2:
                both_arrived.set()
            return []
        return [
            ef.Answer(first, (), "of the first"),
            ef.Fail(second, ef.FailureCode.NO_VALID_HOST, "", "of the second"),
        ]

    bench.core.script = script
    answers: dict[int, Any] = {}

    def call(asked: Request) -> None:
        answers[id(asked)] = bench.engine.decide(asked, 30.0).record

    callers = [threading.Thread(target=call, args=(each,)) for each in (first, second)]
    for caller in callers:
        caller.start()
    both_arrived.wait()
    bench.engine.handle(ev.Tick())
    for caller in callers:
        caller.join()

    assert answers == {id(first): "of the first", id(second): "of the second"}
    assert bench.engine.in_flight == 0


def test_a_sink_that_answers_at_once_does_not_lock_up(bench: Bench) -> None:
    written = ev.AllocationWritten("c1", ev.WriteCode.WRITTEN, cause="req-1")
    bench.writer.on_submit = lambda effect: bench.engine.handle(written)
    bench.core.script = lambda event: [WRITE] if isinstance(event, ev.Tick) else []

    bench.engine.handle(ev.Tick())

    assert [type(each) for each in bench.core.seen] == [ev.Tick, ev.AllocationWritten]


def test_many_threads_one_core(bench: Bench) -> None:
    def feed() -> None:
        for _ in range(200):
            bench.engine.handle(ev.Draining())

    feeders = [threading.Thread(target=feed) for _ in range(8)]
    for feeder in feeders:
        feeder.start()
    for feeder in feeders:
        feeder.join()

    assert len(bench.core.seen) == 1600


def test_the_core_is_woken_when_it_wants_to_be(bench: Bench) -> None:
    ticked = threading.Event()

    def script(event: ev.Event) -> list[ef.Effect]:
        if isinstance(event, ev.Tick):
            bench.core.deadline_s = None
            ticked.set()
        else:
            bench.core.deadline_s = bench.engine.clock()
        return []

    bench.core.script = script
    bench.engine.handle(ev.Draining())

    assert ticked.wait(30)


def test_a_bug_in_the_core_costs_that_request_only(bench: Bench) -> None:
    def script(event: ev.Event) -> list[ef.Effect]:
        if isinstance(event, ev.RequestArrived) and event.request.request_id == "bad":
            raise AssertionError("a claim needs a candidate")
        if isinstance(event, ev.RequestArrived):
            return [ef.Answer(event.request, (), None)]
        return []

    bench.core.script = script

    with pytest.raises(EngineBrokenError, match="a claim needs a candidate"):
        bench.engine.decide(request("bad"), 30.0)
    assert isinstance(bench.engine.decide(request("good"), 30.0), ef.Answer)


def test_a_sink_that_breaks_does_not_keep_the_others_from_their_effects(bench: Bench) -> None:
    def broken(effect: Any) -> None:
        raise RuntimeError("queue is gone")

    bench.writer.on_submit = broken
    bench.core.script = lambda event: [WRITE, ASK]

    bench.engine.handle(ev.Tick())

    assert bench.reader.given == [ASK]


def test_messages_to_a_cell_without_a_channel_are_nothing(bench: Bench) -> None:
    bench.core.script = lambda event: [ef.Broadcast("cell", Leave("n", 1, 1), cause="req-1"), ASK]

    bench.engine.handle(ev.Tick())

    assert bench.reader.given == [ASK]


def test_draining_waits_for_requests_in_flight_and_refuses_new_ones(bench: Bench) -> None:
    waiting = request()
    arrived = threading.Event()

    def script(event: ev.Event) -> list[ef.Effect]:
        if isinstance(event, ev.RequestArrived):
            arrived.set()
        if isinstance(event, ev.Draining):
            threading.Thread(target=bench.engine.handle, args=(ev.Tick(),)).start()
        if isinstance(event, ev.Tick):
            return [ef.Answer(waiting, (), None)]
        return []

    bench.core.script = script
    caller = threading.Thread(target=bench.engine.decide, args=(waiting, 30.0))
    caller.start()
    arrived.wait()

    assert bench.engine.drain(30.0)
    caller.join()
    assert ev.Draining() in bench.core.seen


def test_a_stop_ends_all_waiting_callers(bench: Bench) -> None:
    arrived = threading.Event()
    bench.core.script = lambda event: arrived.set() or []  # type: ignore[func-returns-value]
    outcome: list[Any] = []

    def call() -> None:
        try:
            bench.engine.decide(request(), 600.0)
        except EngineBrokenError as error:
            outcome.append(str(error))

    caller = threading.Thread(target=call)
    caller.start()
    arrived.wait()
    bench.engine.stop()
    caller.join()

    assert outcome == ["the scheduler has stopped"]
    assert bench.writer.life == bench.reader.life == ["start", "stop"]


def test_a_request_whose_core_is_held_until_its_time_is_over_is_overdue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a core that does not answer before the caller stops waiting
    monkeypatch.setattr(engine, "GRACE_S", 0.0)
    asked = request()
    with pytest.raises(RequestOverdueError, match="no answer within"):
        bench.engine.decide(asked, 0.05)
    # when the answer arrives
    bench.core.script = lambda event: [ef.Answer(asked, (), None, ("c1",))] if event == ev.Tick() else []
    bench.engine.handle(ev.Tick())
    # then the host that nobody waits for is given back
    assert bench.core.seen[-1] == ev.AnswerUnheard(("c1",), cause="req-1")


def test_effects_emitted_before_a_failure_of_the_core_are_carried_out(bench: Bench) -> None:
    def script(event: ev.Event) -> list[ef.Effect]:
        raise StepFailedError([WRITE, ASK], [RuntimeError("a bug of ours")])

    bench.core.script = script

    bench.engine.handle(ev.Tick())

    assert bench.writer.given == [WRITE]
    assert bench.reader.given == [ASK]
    assert bench.engine.counters["core_failures"] == 1


def test_an_error_beside_a_request_does_not_fail_it(bench: Bench) -> None:
    # given a timer that fails in the step in which a request arrives and is answered
    asked = request()

    def script(event: ev.Event) -> list[ef.Effect]:
        raise StepFailedError([ef.Answer(asked, (), "its record")], [KeyError("a timer")])

    bench.core.script = script

    assert bench.engine.decide(asked, 30.0).record == "its record"
    assert bench.engine.counters["core_failures"] == 1
    assert bench.engine.counters["outcomes_unheard"] == 0


def test_a_request_for_which_the_core_fails_gets_an_error_at_once(bench: Bench) -> None:
    bug = RuntimeError("a bug of ours")

    def script(event: ev.Event) -> list[ef.Effect]:
        raise StepFailedError([], [KeyError("a timer"), bug], bug)

    bench.core.script = script

    with pytest.raises(EngineBrokenError, match="a bug of ours"):
        bench.engine.decide(request(), 30.0)


def test_an_answer_whose_caller_has_gone_is_given_back_to_the_core(bench: Bench) -> None:
    late = ef.Answer(request(), (), None, ("c1", "c2"))
    bench.core.script = lambda event: [late] if isinstance(event, ev.Tick) else []

    bench.engine.handle(ev.Tick())

    assert bench.core.seen == [ev.Tick(), ev.AnswerUnheard(("c1", "c2"), cause="req-1")]
    assert bench.engine.counters["answers_unheard"] == 1


def test_stopping_leaves_answers_alone_that_are_there(bench: Bench) -> None:
    done: futures.Future[Any] = futures.Future()
    done.set_result(None)
    bench.engine._waiting[1] = done

    bench.engine.stop()

    assert bench.writer.life == ["start", "stop"]
