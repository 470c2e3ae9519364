# SPDX-License-Identifier: Apache-2.0
"""One run: a world, faults for a while, healing, rest, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.network import Weather
from shared_scheduler.sim.workload import Habits
from shared_scheduler.sim.world import Sizes, World

#: nothing breaks in the first seconds, so that every run has something to lose
FAULTS_FROM_S = 5.0
#: virtual time after the last request in which the last instances are deleted and the world settles
SETTLE_S = 120.0
#: then this long nothing but beats may be sent
REST_S = 20.0
#: a progress report for each of so many parts of a run
STEPS = 50


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything that a run depends on."""

    seed: int
    duration_s: float = 60.0
    sizes: Sizes = field(default_factory=Sizes)
    habits: Habits = field(default_factory=Habits)
    weather: Weather = field(default_factory=Weather)
    fault_every_s: float = 0.0  # 0: nothing breaks
    rows_every: int = 20

    def command(self) -> str:
        """The one command that replays it."""
        sizes, weather = self.sizes, self.weather
        return (
            f"shared-scheduler-manage simulate --seed {self.seed} --nodes {sizes.nodes}"
            f" --schedulers {sizes.schedulers} --rate {self.habits.rate_per_s:g}"
            f" --duration {self.duration_s:g} --loss {weather.loss:g}"
            f" --duplicates {weather.duplicates:g} --late {weather.late:g}"
            f" --agentless {sizes.agentless:g} --fault-every {self.fault_every_s:g}"
        )


def drawn(seed: int, duration_s: float = 30.0) -> RunPlan:
    """A plan whose parameters are drawn from the seed (swarm testing)."""
    rng = Random(f"{seed}/plan")
    return RunPlan(
        seed=seed,
        duration_s=duration_s,
        sizes=Sizes(
            nodes=rng.choice((2, 3, 5, 10, 20)),
            schedulers=rng.choice((1, 2, 3, 4)),
            agentless=rng.choice((0.0, 0.0, 0.0, 0.5)),
            beat_interval_s=rng.choice((2.0, 5.0)),
        ),
        habits=Habits(rate_per_s=rng.choice((1.0, 5.0, 20.0)), lifetime_s=rng.choice((5.0, 20.0, 60.0))),
        weather=Weather(
            loss=rng.choice((0.0, 0.0, 0.01, 0.1, 0.3)),
            duplicates=rng.choice((0.0, 0.0, 0.1, 0.5)),
            late=rng.choice((0.0, 0.0, 0.2, 1.0)),
            late_max_s=rng.choice((0.05, 1.0, 5.0)),
        ),
        fault_every_s=rng.choice((0.0, 2.0, 5.0)),
    )


def run(plan: RunPlan, progress: Callable[[float], None] | None = None) -> World:
    """Run a plan to its end.  The world's checkers hold what was broken; nothing is raised."""
    world = World(plan.seed, plan.sizes, plan.habits, replace(plan.weather))
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


def heal(world: World) -> None:
    """No more requests, good weather, everybody lives; then time to settle, and the last checks."""
    world.close()
    calm = Weather(delay_s=world.network.weather.delay_s, jitter_s=world.network.weather.jitter_s)
    world.network.weather = calm
    world.run(SETTLE_S)
    world.checkers.at_rest()
    before = Counter(world.network.counters)
    world.run(REST_S)
    world.checkers.quiet(world.network.counters - before)
