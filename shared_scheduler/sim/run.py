# SPDX-License-Identifier: Apache-2.0
"""One run: a world, faults for a while, healing, rest, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from random import Random

from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.network import Weather
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.topology import Board
from shared_scheduler.sim.workload import Habits
from shared_scheduler.sim.world import Sizes, World

#: nothing breaks in the first seconds, so that every run has something to lose
FAULTS_FROM_S = 3.0
#: a progress report for each of so many parts of a run
STEPS = 50

#: part of the drawn worlds in which every receiver decodes for itself
DECODE_EACH = 0.25

#: what replays a world; the arguments of the one run follow, or ``--seeds 1``
PROGRAM = "shared-scheduler-manage simulate"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything that a run depends on.  ``swarm``: all of it was drawn from the seed."""

    seed: int
    duration_s: float = 60.0
    sizes: Sizes = field(default_factory=Sizes)
    habits: Habits = field(default_factory=Habits)
    weather: Weather = field(default_factory=Weather)
    fault_every_s: float = 0.0  # 0: nothing breaks
    rows_every: int = 20
    decode_each: bool = False  # each receiver of a broadcast decodes it for itself
    swarm: bool = False

    def command(self) -> str:
        """The one command that replays it."""
        if self.swarm:
            return f"{PROGRAM} --seeds 1 --seed {self.seed}"
        sizes, habits, weather = self.sizes, self.habits, self.weather
        return (
            f"{PROGRAM} --seed {self.seed} --nodes {sizes.nodes} --schedulers {sizes.schedulers}"
            f" --rate {habits.rate_per_s:g} --lifetime {habits.lifetime_s:g}"
            f" --topologies {habits.topologies:g} --migrations {habits.migrations_per_s:g}"
            f" --duration {self.duration_s:g} --loss {weather.loss:g}"
            f" --duplicates {weather.duplicates:g} --garbled {weather.garbled:g}"
            f" --late {weather.late:g} --agentless {sizes.agentless:g} --newer {sizes.newer:g}"
            f" --beat {sizes.beat_interval_s:g} --fault-every {self.fault_every_s:g}"
        )


def drawn(seed: int) -> RunPlan:
    """A plan whose parameters are drawn from the seed (swarm testing): small worlds, and many."""
    rng = Random(f"{seed}/plan")
    nodes = rng.choice((2, 3, 3, 5, 8, 15))
    board = rng.choice((None, Board()))
    return RunPlan(
        seed=seed,
        duration_s=rng.choice((8.0, 12.0, 20.0)),
        sizes=Sizes(
            nodes=nodes,
            schedulers=rng.choice((1, 2, 2, 3, 4)),
            agentless=rng.choice((0.0, 0.0, 0.0, 0.5)),
            newer=rng.choice((0.0, 0.0, 0.3)),
            size=Size(board=board),
            beat_interval_s=rng.choice((2.0, 5.0)),
        ),
        habits=Habits(
            rate_per_s=rng.choice((1.0, 3.0, 6.0, 15.0)),
            lifetime_s=rng.choice((5.0, 20.0, 60.0)),
            topologies=rng.choice((0.0, 0.3, 0.8)) if board is not None else 0.0,
            migrations_per_s=rng.choice((0.0, 0.0, 1.0)),
        ),
        weather=Weather(
            loss=rng.choice((0.0, 0.0, 0.01, 0.1, 0.3)),
            duplicates=rng.choice((0.0, 0.0, 0.1, 0.5)),
            garbled=rng.choice((0.0, 0.0, 0.05)),
            late=rng.choice((0.0, 0.0, 0.2, 1.0)),
            late_max_s=rng.choice((0.05, 1.0, 5.0)),
        ),
        fault_every_s=rng.choice((0.0, 1.0, 2.0, 5.0)),
        rows_every=rng.choice((1, 5, 20)),
        decode_each=rng.random() < DECODE_EACH,
        swarm=True,
    )


def run(
    plan: RunPlan, progress: Callable[[float], None] | None = None, lines: int = 0
) -> World:
    """Run a plan to its end.  The world's checkers hold what was broken; nothing is raised.

    ``lines``: keep a detailed trace of so many.
    """
    world = World(
        plan.seed,
        plan.sizes,
        plan.habits,
        replace(plan.weather),
        detailed_lines=lines,
        decode_each=plan.decode_each,
    )
    world.checkers.rows_every = plan.rows_every
    if plan.fault_every_s:
        faults = Faults(world, world.rng("faults"))
        faults.draw(FAULTS_FROM_S, plan.duration_s, plan.fault_every_s)
    for step in range(STEPS):
        world.run(plan.duration_s / STEPS)
        if progress is not None:
            progress((step + 1) / STEPS)
    heal(world)
    return world


def story(plan: RunPlan, world: World) -> Iterator[str]:
    """The trace for people: what was asked for, what broke, and everything that happened."""
    yield plan.command()
    yield from (f"{item.name}: {getattr(plan, item.name)}" for item in fields(plan))
    yield from (violation.line() for violation in world.checkers.violations)
    yield from world.trace.lines()
