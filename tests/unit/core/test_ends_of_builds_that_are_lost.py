# SPDX-License-Identifier: Apache-2.0
"""The end of a build is recorded, whichever scheduler stops or whichever message is lost.

A real agent and a real scheduler; the scheduler that placed the server is played, and so is the broker: it has a queue
for a scheduler until it notices that the scheduler has stopped, and returns what is cast to it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf

import pytest

from compute_agent import events as agents_ev
from compute_agent.effects import Broadcast, Cast, Effect
from compute_agent.ends_of_builds import AGAIN_AFTER_S
from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.limits import HEARTBEAT_INTERVAL_S, QUIET_INTERVALS
from shared_scheduler.protocol.messages import BuildResult, Heartbeat, Hello, Message, Role, Want
from tests.unit.compute_agent.core_node import EPOCH, SCHEDULER, Node
from tests.unit.compute_agent.node_facts import HOST, NODE, claim
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, of_kind, snapshot

HELLO = Hello(Role.SCHEDULER, SCHEDULER, 1, "", "", Want.NOTHING)
HELLO_EVERY_S = 5
BEGIN_S, END_S = -60, int(AGAIN_AFTER_S + QUIET_INTERVALS * HEARTBEAT_INTERVAL_S) + 60
#: a broker notices a process that has ended at once, and a machine that has stopped after 90 s at most
PROCESS_ENDS, MACHINE_STOPS, LINK_LIVES_ON = 1.0, 90.0, inf


@dataclass
class Cell:
    """The scheduler that placed the server stops at ``stops_s``; its queue is there for ``queue_s`` more.  The build
    ends at 0.  ``lost``: the number of the message that is lost, from 0."""

    stops_s: float = inf
    queue_s: float = PROCESS_ENDS
    lost: int | None = None
    sent: list[Effect] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)

    def live(self) -> None:
        self.node, self.other = Node(), SchedulerDriver()
        self.other.hear(replace(snapshot(NODE, epoch=EPOCH), host=HOST))
        self.node.start()
        self.node.send(claim("c1", "vm-1"))
        self.other.give(ev.ChannelChanged(CELL, True))
        for now in range(BEGIN_S, END_S):
            if now % HELLO_EVERY_S == 0 and now < self.stops_s:
                self.other.hear(HELLO)
            self.other.wait(1.0)
            self._deliver(self.node.tell(agents_ev.BuildEnded("vm-1", True)) if now == 0 else (), now)
            self._deliver(self.node.pass_s(1.0), now)

    def _deliver(self, effects: Iterable[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Broadcast | Cast) and has_end(effect.message):
                self.sent.append(effect)
                if len(self.sent) - 1 != self.lost:
                    self._arrive(effect, now)

    def _arrive(self, effect: Broadcast | Cast, now: float) -> None:
        if now < self.stops_s:
            self.recorded.append("the scheduler that placed it")
        elif isinstance(effect, Cast) and now >= self.stops_s + self.queue_s:
            self._deliver(self.node.tell(agents_ev.CastReturned(effect.message)), now)
        if isinstance(effect, Broadcast) and of_kind(ef.RecordBuild, self.other.hear(effect.message)):
            self.recorded.append("the other one")


def has_end(message: Message) -> bool:
    return isinstance(message, BuildResult) or (isinstance(message, Heartbeat) and bool(message.ends))


def lived(stops_s: float = inf, queue_s: float = PROCESS_ENDS, lost: int | None = None) -> Cell:
    cell = Cell(stops_s, queue_s, lost)
    cell.live()
    return cell


def test_while_its_scheduler_lives_only_the_last_message_goes_to_all() -> None:
    cell = lived()

    assert [type(one) for one in cell.sent] == [Cast, Broadcast]
    assert "the other one" not in cell.recorded


@pytest.mark.parametrize("lost", range(2))
def test_a_scheduler_that_lives_gets_what_was_lost(lost: int) -> None:
    assert lived(lost=lost).recorded


@pytest.mark.parametrize("queue_s", [PROCESS_ENDS, MACHINE_STOPS])
@pytest.mark.parametrize("stops_s", [-40.0, -12.0, -1.0, 0.0])
def test_another_one_records_it_when_its_scheduler_stops(stops_s: float, queue_s: float) -> None:
    """At 0, the scheduler stops while the end is in its queue."""
    assert lived(stops_s, queue_s).recorded == ["the other one"]


@pytest.mark.parametrize("lost", range(3))
def test_another_one_records_it_whichever_message_is_lost_if_all_know_that_its_scheduler_has_ended(lost: int) -> None:
    assert lived(-40.0, PROCESS_ENDS, lost).recorded == ["the other one"]


@pytest.mark.parametrize("stops_s", [-40.0, 0.0])
def test_a_scheduler_that_hangs_while_its_link_lives_is_replaced_by_another_one(stops_s: float) -> None:
    assert lived(stops_s, LINK_LIVES_ON).recorded == ["the other one"]


def test_no_end_is_sent_more_often_than_it_is_repeated_and_returned() -> None:
    for stops_s, queue_s in product((-40.0, 0.0), (PROCESS_ENDS, MACHINE_STOPS)):
        assert len(lived(stops_s, queue_s).sent) <= 3
