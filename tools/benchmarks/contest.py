# SPDX-License-Identifier: Apache-2.0
"""Who is measured when.

For each size, the contestants follow one another and the whole is repeated, so that what else happens on the
machine meets all of them. A contestant's round is a life of its own: empty hosts, a started scheduler, the wait
until it knows what it can know, some idle seconds, one caller, many callers, the check of what was allocated.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..realcloud.lifecycle import memory_mb
from . import checks, fleet, readiness
from .agents_end import AgentProcesses
from .callers import Client, client
from .meters import Meters
from .profiler import profiled
from .results import Measurement, Results, Round, measured
from .world import World

WARM_UP_CALLS = 3


@dataclass(frozen=True)
class Contestant:
    """A scheduler (its program) with or without agents beside the nodes."""

    name: str
    program: str
    agents: bool


FLOOR = Contestant("write alone", "", agents=False)
"""No scheduler at all: what one write to Placement costs."""
STOCK = Contestant("stock", "nova-scheduler", agents=False)
SHARED = Contestant("shared", "shared-scheduler", agents=True)
SHARED_WITHOUT_AGENTS = Contestant("shared, no agents", "shared-scheduler", agents=False)


@dataclass(frozen=True)
class Plan:
    """How much is measured. Times in seconds."""

    sizes: tuple[int, ...]
    contestants: tuple[Contestant, ...]
    repeats: int = 3
    callers: tuple[int, ...] = (1, 8)
    seconds: float = 20.0
    """Each measurement lasts at least so long ..."""
    least: int = 16
    """... and has at least so many requests."""
    idle_s: float = 5.0
    agent_processes: int = 1
    profile: str = ""
    """Directory for stacks of the scheduler, sampled while it is measured; empty for honest figures."""
    takes_over_after_s: float = 1.0
    """How long a simulated nova-compute needs until its tracker counts a new server."""


Progress = Callable[[str], None]


def run(world: World, plan: Plan, results: Results, say: Progress) -> None:
    """Make all rounds of a plan; `results` grows as they end."""
    for size in plan.sizes:
        began = time.monotonic()
        fleet.settle(world.layout, size)
        say(f"{size} hosts in the databases after {time.monotonic() - began:.1f} s")
        with fleet.Heartbeat(world.layout) as heartbeat:
            for repeat in range(1, plan.repeats + 1):
                for contestant in in_turn(plan.contestants, repeat):
                    one = Round(contestant.name, size, repeat)
                    results.rounds.append(one)
                    Life(world, plan, contestant, one, heartbeat, say).live()


def in_turn(contestants: Sequence[Contestant], repeat: int) -> list[Contestant]:
    """Every other repeat goes backwards, so that nobody always comes first."""
    return list(contestants if repeat % 2 else reversed(contestants))


class Life:
    """One round."""

    def __init__(self, world: World, plan: Plan, contestant: Contestant, one: Round,
                 heartbeat: fleet.Heartbeat, say: Progress) -> None:  # fmt: skip
        self.world, self.plan, self.contestant, self.round = world, plan, contestant, one
        self.heartbeat, self.say = heartbeat, say
        self.told: dict[str, str] = {}
        self.agents: AgentProcesses | None = None
        if contestant.agents:
            self.agents = AgentProcesses(world, one.hosts, plan.agent_processes, plan.takes_over_after_s)

    def live(self) -> None:
        fleet.vacate(self.world.layout)
        self.heartbeat.beat()
        try:
            if self.agents:
                self.agents.start()
            if self.contestant.program:
                self._start_scheduler()
            with client(self.world) as caller:
                self._warm(caller)
                self._measure(caller)
            self.round.check = checks.check(self.world.layout, self.told)
            self._say_check()
        finally:
            self.world.stop(["scheduler", *(self.agents.names if self.agents else ())])

    def _start_scheduler(self) -> None:
        began = time.monotonic()
        self.world.start_scheduler(self.contestant.program)
        self.round.ready_s = round(time.monotonic() - began, 1)

    def _warm(self, caller: Client) -> None:
        began = time.monotonic()
        if self.contestant is STOCK:
            readiness.warm_stock(self.world, caller, self.round.hosts)
        elif self.contestant.program:
            readiness.wait_fresh(self.world, self.round.hosts, self.contestant.agents)
        self.round.warm_s = round(time.monotonic() - began, 1)
        self._remember(self._call(caller, 1, 0, WARM_UP_CALLS))

    def _call(self, caller: Client, callers: int, seconds: float, least: int) -> dict[str, Any]:
        if self.contestant.program:
            return caller.call(callers, seconds, least)
        return caller.write(self.world.layout.url("placement"), self.round.hosts, callers, seconds, least)

    def _measure(self, caller: Client) -> None:
        meters = Meters(self.world, caller.pid)
        self._idle(meters)
        for callers in self.plan.callers:
            measurement = self._one(caller, meters, callers)
            self.round.measurements.append(measurement)
            self.say(line(self.contestant, self.round, measurement))
        if self.agents:
            self.round.agents = dict(self.agents.counts())
        for name in ("scheduler", "placement", "mariadb", "rabbitmq"):
            process = self.world.processes.alive(name)
            if process:
                self.round.memory_mb[name] = memory_mb(process)

    def _idle(self, meters: Meters) -> None:
        before = meters.read()
        time.sleep(self.plan.idle_s)
        used = meters.since(before)
        self.round.idle_cpu_share = {name: round(value / used.wall_s, 4) for name, value in used.cpu_s.items()}

    def _one(self, caller: Client, meters: Meters, callers: int) -> Measurement:
        load, before = os.getloadavg()[0], meters.read()
        with self._profiled(callers):
            tally = self._call(caller, callers, self.plan.seconds, self.plan.least)
        used = meters.since(before)
        self._remember(tally)
        return measured(tally, used, callers, (load, os.getloadavg()[0]))

    def _profiled(self, callers: int) -> AbstractContextManager[None]:
        if not (self.plan.profile and self.contestant.program):
            return nullcontext()
        name = f"{self.contestant.name.replace(', ', '-').replace(' ', '-')}-{self.round.hosts}-{callers}.stacks"
        return profiled(self.world, "scheduler", Path(self.plan.profile) / name)

    def _remember(self, tally: dict[str, dict[str, str]]) -> None:
        self.told.update(tally["hosts"])

    def _say_check(self) -> None:
        found = self.round.check
        if not found.good():
            self.say(f"  CHECK FAILED: over {found.over[:3]}, {found.missing} told but not held, "
                     f"{found.surplus} held but not told; {found.examples[:3]}")  # fmt: skip


def line(contestant: Contestant, one: Round, measurement: Measurement) -> str:
    """Progress for people: one measurement."""
    failed = f", {measurement.failures} FAILED" if measurement.failures else ""
    failed += f" ({measurement.errors[0].splitlines()[0]})" if measurement.errors else ""
    return (
        f"  {one.hosts} hosts, repeat {one.repeat}, {contestant.name}, {measurement.callers} callers: "
        f"{measurement.per_second:.2f}/s, {measurement.median_ms:.0f} ms, "
        f"scheduler {1000 * measurement.cpu_s_each.get('scheduler', 0):.1f} ms CPU{failed}"
    )
