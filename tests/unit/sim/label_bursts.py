# SPDX-License-Identifier: Apache-2.0
"""Bursts of requests for one label, by way of four schedulers, in clouds of twelve hosts in three racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared_scheduler.core.effects import Answer, Fail
from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.label_bursts import LabelBurst
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import SentRequest, Workload
from shared_scheduler.sim.world import Sizes, World

#: when the requests come, and by when each has an end
AT_S, WITHIN_S = 5.0, 30.0
#: nobody asks for anything else
QUIET = Workload(rate_per_s=1e-9, lifetime_s=1e9, several=0.0, build_fails=0.0, asks_again=0.0, spread=1.0)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What else happens.  ``faults``: the kinds and durations of the faults that begin about when the requests come."""

    name: str
    network: Callable[[], NetworkFaults] = NetworkFaults
    faults: Sequence[tuple[str, float]] = ()
    placement_s: float = 0.005
    #: how long the conductor needs for each third server from the answer until the database has it
    conductor_s: float = 0.0


NOTHING = Trouble("nothing")
TROUBLES = (
    NOTHING,
    Trouble("slow Placement", placement_s=0.1),
    Trouble("late messages", lambda: NetworkFaults(late=0.3, late_max_s=1.0)),
    Trouble("lost messages", lambda: NetworkFaults(loss=0.1, duplicates=0.1)),
    Trouble("slow conductors", conductor_s=4.0),
    Trouble("slow agents", faults=(("agent_freezes", 3.0), ("agent_freezes", 3.0), ("agent_freezes", 1.0))),
    Trouble("a scheduler dies", faults=(("scheduler_dies", 8.0),)),
    Trouble("a scheduler dies midway", faults=(("scheduler_dies_midway", 8.0),)),
    Trouble("a scheduler freezes", faults=(("scheduler_freezes", 3.0),)),
)


class SlowConductors(World):
    """The API database has each third answer ``conductor_s`` later than the caller."""

    conductor_s = 0.0

    def members_of(self, group: str) -> dict[str, bool]:
        return {uuid: answered and self._is_noted(uuid) for uuid, answered in super().members_of(group).items()}

    def _is_noted(self, uuid: str) -> bool:
        asked = self.users.asked[self.users.servers[uuid].request_id]
        is_slow = [*self.users.asked].index(asked.request.request_id) % 3 == 0
        return not is_slow or self.now > asked.ended_s + self.conductor_s


def burst(seed: int, requests: int, trouble: Trouble = NOTHING, max_skew: int = 1) -> World:
    """The world when all has ended."""
    sizes = Sizes(nodes=12, schedulers=4, racks=3, placement_s=trouble.placement_s)
    world = SlowConductors(seed, sizes, QUIET, trouble.network())
    world.conductor_s = trouble.conductor_s
    world.checkers.rows_every = 10**9
    rng, faults = world.rng("burst"), Faults(world, world.rng("faults"))
    for kind, for_s in trouble.faults:
        faults.plan(kind, AT_S + 0.2 * rng.random(), for_s)
    LabelBurst(world, rng, max_skew).plan(AT_S, requests)
    world.run(AT_S + WITHIN_S)
    return world


def failed(world: World) -> list[SentRequest]:
    """The requests that had no host, except for those that ended with their scheduler."""
    alive = {scheduler.name for scheduler in world.schedulers.values()}
    every = world.users.asked.values()
    return [one for one in every if isinstance(one.outcome, Fail) or (one.outcome is None and one.scheduler in alive)]


def times_s(world: World) -> list[float]:
    """How long the others took, sorted."""
    return sorted(one.ended_s - one.asked_s for one in world.users.asked.values() if isinstance(one.outcome, Answer))


def in_racks(world: World) -> Counter[str]:
    """The servers in each rack, as Placement has them."""
    held = world.placement.consumers.items()
    return Counter(world.rack_of(next(iter(nodes))) for uuid, nodes in held if uuid in world.users.servers)
