# SPDX-License-Identifier: Apache-2.0
"""Two threads that decide never take the same slot, and a decision does not wait for a burst."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.claim_state import OpenClaim
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.service.engine import Engine, Sinks
from shared_scheduler.table.host_table import HostTable
from tests.unit.decision.small_clouds import add_host, small_request

#: how long a thread waits for what must happen anyway
PATIENCE_S = 60.0
BURST = 50


class Sink:
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def submit(self, effect: Any) -> None: ...


class NoClaims:
    """The claims of a core that has none."""

    def open(self) -> list[OpenClaim]:
        return []


class Deciding:
    """Stands in for the core: decides, and between the choice and the claim lets other threads run."""

    def __init__(self, table: HostTable) -> None:
        self.claims = NoClaims()
        self._table = table
        self._decider = Decider(table)
        self.others_had_their_chance: Callable[[], bool] = lambda: True
        self.chosen = 0
        self.taken: list[str] = []

    def step(self, event: ev.Event, now: float) -> list[ef.Effect]:
        assert isinstance(event, ev.RequestArrived)
        request = event.request
        node = next(self._decider.decide(request).nodes(), None)
        if node is None:
            return [ef.Fail(request, ef.FailureCode.NO_VALID_HOST, "", None)]
        self.chosen += 1
        wait_for(self.others_had_their_chance)
        claim = request.instance_uuids[0]
        self._table.assume(node, claim, claim, {node: request.forms[0].resources}, request.usage)
        self.taken.append(node)
        return [ef.Answer(request, (), None)]

    def next_deadline_s(self) -> None:
        return None


class Listing:
    """Stands in for the core: records the events."""

    def __init__(self) -> None:
        self.claims = NoClaims()
        self.seen: list[ev.Event] = []
        self.script: Callable[[], None] = lambda: None

    def step(self, event: ev.Event, now: float) -> list[ef.Effect]:
        self.seen.append(event)
        self.script()
        if isinstance(event, ev.RequestArrived):
            return [ef.Answer(event.request, (), None)]
        return []

    def next_deadline_s(self) -> None:
        return None


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "it never came to that"
        time.sleep(0.001)


def engine_of(core: Any) -> Engine:
    engine = Engine(cast(SchedulerCore, core))
    engine.start(Sinks(Sink(), Sink()))
    return engine


def one_slot_for_two(guarded: bool) -> list[str]:
    """Two threads decide at the same moment; the nodes that they took."""
    table = HostTable()
    add_host(table, "last", used={"DISK_GB": 99})
    core = Deciding(table)
    engine = engine_of(core)
    if not guarded:
        engine._turns = cast(Any, nullcontext())
    core.others_had_their_chance = lambda: (
        core.chosen == 2 or (guarded and engine._turns.waiting == 1) or len(core.taken) == 1
    )
    threads = [
        threading.Thread(target=engine.decide, args=(small_request(instance_uuids=(name,)), 60.0))
        for name in ("server-1", "server-2")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.stop()
    return core.taken


def test_two_threads_never_take_the_same_last_slot():
    assert one_slot_for_two(guarded=True) == ["last"]


def test_without_the_guard_they_would():
    assert one_slot_for_two(guarded=False) == ["last", "last"]


def test_a_decision_waits_for_the_slice_under_way_and_not_for_the_burst():
    # given a thread that applies slice after slice
    core = Listing()
    engine = engine_of(core)
    caller = threading.Thread(target=engine.decide, args=(small_request(), 60.0))

    def a_request_comes_during_the_first_slice() -> None:
        core.script = lambda: None
        caller.start()
        wait_for(lambda: engine._turns.waiting == 1)

    core.script = a_request_comes_during_the_first_slice
    # when
    for _ in range(BURST):
        engine.handle(ev.MessagesArrived("cell1", ()))
    caller.join()
    engine.stop()
    # then it came second
    kinds = [type(event) for event in core.seen]
    assert kinds[:2] == [ev.MessagesArrived, ev.RequestArrived]
    assert len(kinds) == BURST + 1
