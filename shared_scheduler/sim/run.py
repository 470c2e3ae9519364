# SPDX-License-Identifier: Apache-2.0
"""One run: a world with faults for some time, then repair, rest and the final checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.reproduction import PROGRAM, exact
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.scheduled_moves import EVACUATION, MOVES
from shared_scheduler.sim.topology import Board
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World

#: no faults in the first seconds, so that servers exist when the faults begin
FAULTS_FROM_S = 3.0
#: number of progress reports of a run
STEPS = 50

#: parts of the requests that belong to a server group, as in the production traces of a large public cloud; as half
#: of these are followed by one more member, fewer are drawn
GROUPED = (0.35, 0.48)
#: parts of the requests that are for servers with a label, drawn by a generator of their own
SPREAD = (0.0, 0.0, 0.3)

#: parts of the requests that are for a trait or an aggregate, drawn by a generator of their own
SELECTIONS = (0.0, 0.0, 0.3)

#: whether operators disable hosts, drawn by a generator of its own
DISABLES = (False, False, True)

#: cells, drawn by a generator of their own
CELLS = (1, 1, 2)

#: the option of that name, drawn by a generator of its own
MERGED_MOVES = ((), MOVES, MOVES, MOVES[:1])
#: the same for evacuations
MERGED_EVACUATIONS = ((), (EVACUATION,), (EVACUATION,), (EVACUATION,))

#: part of the random worlds in which each receiver decodes each message
DECODE_EACH = 0.25


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All parameters of a run.  ``swarm``: all of them were drawn from the seed."""

    seed: int
    duration_s: float = 60.0
    sizes: Sizes = field(default_factory=Sizes)
    workload: Workload = field(default_factory=Workload)
    network_faults: NetworkFaults = field(default_factory=NetworkFaults)
    fault_every_s: float = 0.0  # 0: no faults
    fault_kinds: tuple[str, ...] = ()  # empty: drawn from the seed; only tests choose
    rows_every: int = 20
    decode_each: bool = False  # each receiver of a broadcast decodes it for itself
    swarm: bool = False

    def command(self) -> str:
        """The command that replays the run."""
        if self.swarm:
            return f"{PROGRAM} simulate --seeds 1 --seed {self.seed}"
        sizes, workload, network_faults = self.sizes, self.workload, self.network_faults
        return (
            f"{PROGRAM} simulate --seed {self.seed} --nodes {sizes.nodes} --schedulers {sizes.schedulers}"
            f" --rate {exact(workload.rate_per_s)} --lifetime {exact(workload.lifetime_s)}"
            f" --topologies {exact(workload.topologies)} --grouped {exact(workload.grouped)}"
            f" --spread {exact(workload.spread)} --migrations {exact(workload.migrations_per_s)}"
            f" --duration {exact(self.duration_s)} --loss {exact(network_faults.loss)}"
            f" --duplicates {exact(network_faults.duplicates)} --garbled {exact(network_faults.garbled)}"
            f" --late {exact(network_faults.late)} --agentless {exact(sizes.agentless)} --newer {exact(sizes.newer)}"
            f" --heartbeat {exact(sizes.heartbeat_interval_s)} --fault-every {exact(self.fault_every_s)}"
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
            cells=Random(f"{seed}/cells").choice(CELLS),
            schedulers=rng.choice((1, 2, 2, 3, 4)),
            agentless=rng.choice((0.0, 0.0, 0.0, 0.5)),
            newer=rng.choice((0.0, 0.0, 0.3)),
            size=Size(board=board),
            heartbeat_interval_s=rng.choice((2.0, 5.0)),
            merged_moves=Random(f"{seed}/merged_moves").choice(MERGED_MOVES)
            + Random(f"{seed}/merged_evacuations").choice(MERGED_EVACUATIONS),
        ),
        workload=Workload(
            rate_per_s=rng.choice((1.0, 3.0, 6.0, 15.0)),
            lifetime_s=rng.choice((5.0, 20.0, 60.0)),
            topologies=rng.choice((0.0, 0.3, 0.8)) if board is not None else 0.0,
            grouped=rng.choice((0.0, *GROUPED)),
            migrations_per_s=rng.choice((0.0, 0.0, 1.0)),
            spread=Random(f"{seed}/spread").choice(SPREAD),
            selections=Random(f"{seed}/selections").choice(SELECTIONS),
            disables=Random(f"{seed}/disables").choice(DISABLES),
        ),
        network_faults=NetworkFaults(
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


def begin(plan: RunPlan, lines: int = 0) -> World:
    """The world of a plan at its beginning, with its faults to come.

    ``lines``: keep a detailed trace of this many.
    """
    world = World(
        plan.seed,
        plan.sizes,
        plan.workload,
        replace(plan.network_faults),
        detailed_lines=lines,
        decode_each=plan.decode_each,
    )
    world.checkers.rows_every = plan.rows_every
    if plan.fault_every_s:
        faults = Faults(world, world.rng("faults"))
        faults.draw(FAULTS_FROM_S, plan.duration_s, plan.fault_every_s, plan.fault_kinds, plan.swarm)
    return world


def run(plan: RunPlan, progress: Callable[[float], None] | None = None, lines: int = 0) -> World:
    """Run a complete plan.  The checkers of the world hold the violations; none is raised.

    ``lines``: keep a detailed trace of this many.
    """
    world = begin(plan, lines)
    for step in range(STEPS):
        world.run(plan.duration_s / STEPS)
        if progress is not None:
            progress((step + 1) / STEPS)
    heal(world)
    return world
