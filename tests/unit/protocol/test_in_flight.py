# SPDX-License-Identifier: Apache-2.0
"""Unanswered requests must not block all others."""

from __future__ import annotations

from random import Random

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.messages import Heartbeat, Snapshot
from shared_scheduler.protocol.rate_limits import InFlight, TokenBucket
from shared_scheduler.protocol.window import MessageWindow, ResyncWish

NODES = 500
STEP_S = 0.05


class Fleet:
    """Many windows of one scheduler, all of which have heard a heartbeat and hold no state."""

    def __init__(self) -> None:
        self.now = 0.0
        rng, bucket = Random(1), TokenBucket(limits.SCHEDULER_RESYNCS_PER_S, limits.SCHEDULER_RESYNCS_BURST)
        in_flight = InFlight(limits.RESYNCS_IN_FLIGHT_MAX, limits.RESYNC_PATIENCE_S)
        self.windows = [MessageWindow(f"node-{n}", rng, bucket, in_flight=in_flight) for n in range(NODES)]
        for window in self.windows:
            window.receive(Heartbeat(window.node, 7, 3, "host", 0), self.now, lambda: 0)

    def pass_s(self, seconds: float) -> list[MessageWindow]:
        """Time passes; who asked, once for each ask."""
        asked = []
        end_s = self.now + seconds
        while self.now < end_s:
            self.now += STEP_S
            for window in self.windows:
                if isinstance(window.on_tick(self.now).resync, ResyncWish):
                    asked.append(window)
        return asked


def test_asks_without_answers_are_few() -> None:
    fleet = Fleet()
    asked = fleet.pass_s(30.0)
    turns = 1 + 30.0 / limits.RESYNC_PATIENCE_S
    assert 0 < len(asked) <= limits.RESYNCS_IN_FLIGHT_MAX * turns


def test_answers_make_room_for_the_next_asks() -> None:
    fleet = Fleet()
    served: set[str] = set()
    while len(served) < NODES:
        for window in fleet.pass_s(STEP_S):
            served.add(window.node)
            window.receive(Snapshot(window.node, 7, 3, "host", {}, {}, {}, 0), fleet.now, lambda: 0)
        assert fleet.now < 60.0, f"only {len(served)} were asked"


def test_an_unanswered_request_frees_its_slot_after_a_while() -> None:
    in_flight = InFlight(2, 10.0)
    assert [in_flight.begin(at_s) for at_s in (0.0, 1.0, 2.0, 10.5, 10.6, 11.5)] == [
        True, True, False, True, False, True,
    ]  # fmt: skip


def test_an_answer_frees_a_slot_at_once() -> None:
    in_flight = InFlight(1, 10.0)
    assert in_flight.begin(0.0) and not in_flight.begin(0.1)
    in_flight.end()
    assert in_flight.begin(0.2)
    in_flight.end()
    in_flight.end()  # one too many is harmless
