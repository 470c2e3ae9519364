# SPDX-License-Identifier: Apache-2.0
"""The faults of the demo, and the story of how the schedulers recover from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.reproduction import PROGRAM, exact
from shared_scheduler.sim.rest import Rest, end_faults
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from shared_scheduler.table.row import Freshness

FRAMES_PER_S = 10
#: short times, so that all effects are visible within seconds
HEARTBEAT_S = 1.0
LIFETIME_S = 15.0
LATE_MAX_S = 0.2
SETTINGS = SchedulerSettings(
    verdict_timeout_s=1.0,
    claim_repeat_s=0.2,
    silent_after_s=3.5,
    silent_after_timeout_s=2.0,
    hello_interval_s=1.0,
)
#: parts of the duration at which the faults begin and end
CUT_AT, CUT_ENDS_AT = 0.25, 0.50
DEATH_AT, REBIRTH_AT = 0.60, 0.68
#: part of the nodes that lose their connection
CUT_PART = 0.05
#: after the end of the requests, every nova-compute audits itself within this virtual time instead of within a
#: minute, so that changes that only an audit finds are found soon
AUDITS_WITHIN_S = 5.0
#: newest lines of the story that are kept
STORY_MAX = 50


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """All parameters of a demo: the same plan gives the same trace, byte for byte."""

    seed: int
    nodes: int = 300
    schedulers: int = 4
    duration_s: float = 20.0
    rate_per_s: float = 40.0
    loss: float = 0.01

    def command(self) -> str:
        """The command that runs the same demo again, as fast as possible."""
        return (
            f"{PROGRAM} demo --seed {self.seed} --nodes {self.nodes} --schedulers {self.schedulers}"
            f" --duration {exact(self.duration_s)} --rate {exact(self.rate_per_s)} --loss {exact(self.loss)} --fast"
        )

    def world(self, stopwatch: Callable[[], float] | None = None, lines: int = 0) -> World:
        """The world at its beginning.  ``lines``: keep a detailed trace of so many."""
        return World(
            self.seed,
            Sizes(nodes=self.nodes, schedulers=self.schedulers, heartbeat_interval_s=HEARTBEAT_S),
            Workload(rate_per_s=self.rate_per_s, lifetime_s=LIFETIME_S),
            NetworkFaults(loss=self.loss, duplicates=self.loss, late=self.loss, late_max_s=LATE_MAX_S),
            SETTINGS,
            stopwatch,
            detailed_lines=lines,
        )


@dataclass(slots=True)
class Healing:
    """The recovery from a fault that ended at ``since_s``; it is complete when every row is fresh."""

    what: str
    since_s: float


class Exhibition:
    """Injects the faults, and records in ``story`` when they begin, when they end and when all rows are fresh again."""

    def __init__(self, world: World, duration_s: float) -> None:
        self.story: list[str] = []
        self._world = world
        self._duration_s = duration_s
        self._healing: list[Healing] = []
        self._grown = False
        rng = world.rng("exhibition")
        nodes = list(world.nodes.values())
        self._victims = rng.sample(nodes, max(1, int(len(nodes) * CUT_PART)))
        agenda = world.agenda
        agenda.at(CUT_AT * duration_s, self._cut)
        agenda.at(CUT_ENDS_AT * duration_s, self._mend)
        agenda.at(DEATH_AT * duration_s, self._kill)
        agenda.at(REBIRTH_AT * duration_s, self._revive)

    def rows(self) -> dict[str, dict[Freshness, int]]:
        """Scheduler name -> freshness -> number of rows."""
        found = {}
        for scheduler in self._world.schedulers.values():
            table = scheduler.core.table
            counts = dict.fromkeys(Freshness, 0)
            for node in self._world.nodes:
                counts[table.freshness(node)] += 1
            found[scheduler.name] = counts
        return found

    def record_recovery(self) -> None:
        """Record the recoveries that are complete now."""
        if self._grown and not self._healing:
            return
        size = len(self._world.nodes)
        rows = self.rows()
        if rows and all(counts[Freshness.FRESH] == size for counts in rows.values()):
            for healing in self._healing:
                after_s = self._world.now - healing.since_s
                self._record(f"{healing.what}: every row is fresh again after {after_s:.1f} s")
            self._healing.clear()
            if not self._grown:
                self._grown = True
                self._record("every scheduler has heard from every node")

    def run(self, show: Callable[[], None] | None = None) -> None:
        """Run the demo frame by frame.  ``show`` is called after each frame and may sleep."""
        for _ in range(int(self._duration_s * FRAMES_PER_S)):
            self._world.run(1 / FRAMES_PER_S)
            self._step(show)
        self._end(show)

    def _step(self, show: Callable[[], None] | None) -> None:
        self.record_recovery()
        if show is not None:
            show()

    def _end(self, show: Callable[[], None] | None) -> None:
        """Stop the requests, let the world come to rest, and check the final invariants."""
        world, rng = self._world, self._world.rng("last audits")
        end_faults(world)
        self._record("requests end; the world comes to rest and is checked")
        for node in world.nodes.values():
            world.agenda.after(AUDITS_WITHIN_S * rng.random(), node.audit)
        rest = Rest(world)
        rest.wait(lambda: self._step(show))
        rest.settled()

    def _record(self, text: str) -> None:
        self.story.append(f"{self._world.now:5.1f} s  {text}")
        del self.story[:-STORY_MAX]

    def _cut(self) -> None:
        for node in self._victims:
            self._world.network.cut(node.address)
        count = len(self._victims)
        self._record(f"{count} {'node is' if count == 1 else 'nodes are'} cut off from the state channel")

    def _mend(self) -> None:
        for node in self._victims:
            self._world.network.heal(node.address)
        self._record("all nodes are connected again")
        self._healing.append(Healing("cut", self._world.now))

    def _kill(self) -> None:
        self._world.kill_scheduler(0)
        self._record("scheduler-0 is killed")

    def _revive(self) -> None:
        self._world.start_scheduler(0)
        self._record("scheduler-0 starts again, with what the databases say")
        self._healing.append(Healing("restart", self._world.now))
