# SPDX-License-Identifier: Apache-2.0
"""An engine without work rests."""

from __future__ import annotations

import threading

from shared_scheduler.core import events as ev
from tests.unit.service.test_engine import Bench


def test_after_a_timer_has_rung_an_idle_engine_does_not_tick() -> None:
    # given a core that wants one tick now, and the next one in an hour
    bench = Bench()
    rang = threading.Event()

    def script(event: ev.Event) -> list[object]:
        if isinstance(event, ev.Tick):
            bench.core.deadline_s = bench.engine.clock() + 3600.0
            rang.set()
        return []

    bench.core.script = script  # type: ignore[assignment]
    bench.core.deadline_s = bench.engine.clock()
    try:
        bench.engine.handle(ev.ServicesRead("cell", (), False))
        assert rang.wait(60)
        # when it is left alone for a while
        threading.Event().wait(0.3)
        # then it has ticked once
        assert sum(isinstance(event, ev.Tick) for event in bench.core.seen) == 1
    finally:
        bench.engine.stop()
