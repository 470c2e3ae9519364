# SPDX-License-Identifier: Apache-2.0
"""An engine without work rests."""

from __future__ import annotations

import threading

from shared_scheduler.core import events as ev
from tests.unit.service.test_engine import Bench


def test_after_a_timer_has_rung_an_idle_engine_does_not_tick() -> None:
    # given a core that wants one tick in a moment, and the next one in an hour
    bench = Bench()
    rang = threading.Event()

    def script(event: ev.Event) -> list[object]:
        if isinstance(event, ev.Tick):
            bench.core.deadline_s = bench.engine.clock() + 3600.0
            rang.set()
        return []

    bench.core.script = script  # type: ignore[assignment]
    bench.core.deadline_s = bench.engine.clock() + 0.1
    try:
        bench.engine.handle(ev.ServicesRead("cell", (), False))
        assert rang.wait(60)
        # when it is left alone for a while
        threading.Event().wait(0.3)
        # then it has ticked once
        assert sum(isinstance(event, ev.Tick) for event in bench.core.seen) == 1
    finally:
        bench.engine.stop()


def test_a_timer_that_an_event_sets_for_now_rings_in_the_thread_of_the_event() -> None:
    # given a core that wants a tick as soon as it has seen an event
    bench = Bench()
    rang: list[int] = []

    def script(event: ev.Event) -> list[object]:
        bench.core.deadline_s = bench.engine.clock() + (3600.0 if isinstance(event, ev.Tick) else 0.0)
        if isinstance(event, ev.Tick):
            rang.append(threading.get_ident())
        return []

    bench.core.script = script  # type: ignore[assignment]
    try:
        # when an event has been handled
        bench.engine.handle(ev.ServicesRead("cell", (), False))
        # then the timer has rung, and no other thread was woken for it
        assert rang == [threading.get_ident()]
    finally:
        bench.engine.stop()


def test_an_alarm_that_is_put_off_and_set_again_rings_in_time() -> None:
    # given a timer that sleeps for a while, because the core wanted a tick then, and now wants it much later
    bench = Bench()
    rang = threading.Event()

    def script(event: ev.Event) -> list[object]:
        if isinstance(event, ev.Tick):
            bench.core.deadline_s = None
            rang.set()
        return []

    bench.core.script = script  # type: ignore[assignment]
    try:
        for wait_s in (60.0, 3600.0, 0.2):
            bench.core.deadline_s = bench.engine.clock() + wait_s
            # when it wants the tick sooner than the timer wakes up
            bench.engine.handle(ev.ServicesRead("cell", (), False))
        # then the timer is woken for it
        assert rang.wait(50)
    finally:
        bench.engine.stop()
