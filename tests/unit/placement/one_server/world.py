# SPDX-License-Identifier: Apache-2.0
"""One server, asked for up to three times, in a world where calls of Placement and replies are lost and late.

Real are one scheduler's core and ``AllocationWriter`` with its courses.  Placement is a table of consumers with
generations; calls of it time out and are carried out at once, late or never, or get an odd answer.  The same request is
delivered again, answers are not heard, Nova takes its time, the user deletes the server; many of these at once, or on
either side of an edge of time.  ``judge.Law`` has what must hold; ``left_out`` has what does not happen.

One seed determines everything.  ``python -m tests.unit.placement.one_server --kind build --seed 1`` runs one world and
tells its story; ``--seeds 1000`` runs so many, and prints a line for each law that is broken.
"""

from __future__ import annotations

from random import Random

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.foreign_changes import ForeignChange
from shared_scheduler.protocol.messages import Claim
from shared_scheduler.sim.agenda import Agenda
from tests.unit.core.scheduler_driver import SchedulerDriver, taken
from tests.unit.placement.one_server import left_out
from tests.unit.placement.one_server.agents import Agents
from tests.unit.placement.one_server.callers import Callers
from tests.unit.placement.one_server.judge import Judge
from tests.unit.placement.one_server.nova import Nova
from tests.unit.placement.one_server.plan import BEGIN_S, ELSEWHERE, OTHER, SERVER, SOURCE, Kind, drawn
from tests.unit.placement.one_server.story import Story
from tests.unit.placement.one_server.unsure_placement import UnsurePlacement
from tests.unit.placement.one_server.works import Works

#: while things go wrong, and later
SWEEP_S, QUIET_SWEEP_S = 1.0, 10.0
READ_S = 0.01


class World:
    """``steps``: what the core hears, by its clock.  ``beside``: what happens in Placement and Nova, by the clock of
    the calls that are under way (``Works``)."""

    def __init__(self, kind: Kind, seed: int) -> None:
        rng = Random(seed)
        self.story, self.plan = Story(), drawn(rng, kind)
        self.steps, self.beside = Agenda(), Agenda()
        self.steps.now = self.beside.now = BEGIN_S
        self.driver = SchedulerDriver(**self.plan.settings)
        faults, story = self.plan.faults, self.story
        self.placement = UnsurePlacement(rng, faults, self.beside, story, self.is_changed)
        self.nova = Nova(kind, rng, self.beside, story)
        self.callers = Callers(self.plan, rng, self.steps, self.nova, story, self.give)
        self.agents = Agents(self.plan, rng, self.steps, self.placement, self.nova, self.give)
        self.writer = AllocationWriter(
            self.placement,
            self._clock,
            self.placement.pause,
            rng,
            self.nova.locate,
            wall_clock=self._clock,
            record_change=self.is_told,
        )
        self.works = Works(self.writer, self.placement, rng, self.steps, self.beside, story, self.give)
        self.judge = Judge(self.plan, self.placement, self.callers, self.beside, story)

    def _clock(self) -> float:
        return self.beside.now

    # -- the course of a world

    def run(self) -> list[str]:
        """Let everything happen; returns the laws that were broken."""
        self._begin()
        while not self.judge.broken and (at_s := self._next_s()) <= self.plan.end_s:
            self._go_on(at_s)
        if not self.judge.broken:
            self.judge.judge(self.driver, self.writer)
        return self.judge.broken

    def _begin(self) -> None:
        plan, begin = self.plan, self.driver.with_agents if self.plan.agents else self.driver.without_agents
        begin(*plan.nodes, vcpus=plan.vcpus)
        if plan.kind is Kind.EVACUATION:
            self.placement.consumers[SERVER] = ConsumerAllocations(taken(SOURCE), 3, "project", "user")
        if plan.other:
            self.placement.consumers[OTHER] = ConsumerAllocations(taken(ELSEWHERE), 1, "project", "user")
        self.works.loses_answers = plan.faults.of_answers
        for at_s in plan.arrivals_s:
            self.steps.at(at_s, self.callers.arrives)
        if plan.deleted_s is not None:
            self.steps.at(plan.deleted_s, self._delete)
        self.steps.at(plan.arrivals_s[0] + SWEEP_S, self._sweep)
        self.steps.at(plan.quiet_s, self._calm)

    def _next_s(self) -> float:
        beside_s = None if self.works.under_way else self.beside.next_s()
        due = (self.driver.core.next_deadline_s(), self.steps.next_s(), beside_s)
        return min(at_s for at_s in due if at_s is not None)

    def _go_on(self, at_s: float) -> None:
        """The next thing happens."""
        now = self.driver.now = self.steps.now = max(self.driver.now, at_s)
        beside_s, step_s = self.beside.next_s(), self.steps.next_s()
        if not self.works.under_way and beside_s is not None and beside_s <= now:
            self.beside.run_until(now)
        elif step_s is not None and step_s <= now:
            self.steps.do_next(now)
        else:
            self.give(ev.Tick())

    def _calm(self) -> None:
        self.placement.calm()
        self.works.loses_answers = False

    def _delete(self) -> None:
        copies, late_calls = len(self.driver.core.requests), self.placement.late_calls
        if left_out.deletes_before_a_late_call(self.callers.heard, copies, late_calls):
            return
        self.callers.delete()
        if self.callers.deleted:
            self.placement.remove(SERVER)
            self.agents.publish(self.beside.now)

    def _sweep(self) -> None:
        """The writer looks at what is in doubt, and at changes; its calls run ahead as well."""
        if not self.works.under_way:
            self.beside.now = max(self.beside.now, self.steps.now)
        self.writer.sweep(self.works.is_busy)
        self.writer.examiner.examine_due()
        free_s = self.steps.now if self.works.under_way else max(self.steps.now, self.beside.now)
        self.steps.at(free_s + (SWEEP_S if free_s < self.plan.quiet_s else QUIET_SWEEP_S), self._sweep)

    def is_changed(self) -> None:
        """Placement has changed."""
        self.judge.look()
        self.agents.publish(self.beside.now)

    def is_told(self, change: ForeignChange) -> None:
        """The writer tells a change by others."""
        self.judge.hear(change)

    # -- the core

    def give(self, event: ev.Event) -> None:
        """The core hears something."""
        for effect in self.driver.give(event):
            self._take(effect)

    def _take(self, effect: ef.Effect) -> None:
        match effect:
            case ef.WriteAllocation() | ef.DeleteAllocation():
                self.works.add(effect)
            case ef.Answer():
                self.callers.answered(effect)
                self.judge.look()
            case ef.Fail():
                self.callers.failed(effect)
            case ef.ExamineChange():
                self.writer.examiner.found(effect)
            case ef.AskConsumer():
                self.steps.after(READ_S, self._tell_consumer, effect)
            case ef.AskFitting():
                self.steps.after(READ_S, self.give, ev.FittingAnswered(effect.ask_id, frozenset(), cause=effect.cause))
            case ef.Send(message=Claim() as claim):
                self.agents.judge(claim)

    def _tell_consumer(self, asked: ef.AskConsumer) -> None:
        standing = self.placement.stands(asked.consumer)
        self.give(ev.ConsumerAnswered(asked.consumer, dict(standing.allocations), cause=asked.cause))


def broken_in(kind: Kind, seed: int) -> list[str]:
    """The laws that the world of a seed breaks, each with the command that tells its story."""
    try:
        found = World(kind, seed).run()
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"]
    command = f"python -m tests.unit.placement.one_server --kind {kind} --seed {seed}"
    return [f"{one} -- {command}" for one in found]
