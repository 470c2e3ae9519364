# SPDX-License-Identifier: Apache-2.0
"""The search of schedulers for orphaned allocations in cell 0, in virtual time.

What ``sync/orphan_sweeper.py`` does with threads, Nova's API database and Placement.  The order of the checks, their
number and the shares of the schedulers are those of the product (``sync/orphan_search.py``), and so is the interval.
Drawn worlds do not run it: there, what a scheduler that stops has left is excepted.  Shelved servers are not simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from random import Random

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.model.read_schedule import ReadSchedule
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.sim.schedulers import SimScheduler, cell_name
from shared_scheduler.sim.workload import SentRequest
from shared_scheduler.sim.world import CALLER_GRACE_S, World
from shared_scheduler.sync.orphan_search import (
    AGAIN_S,
    LISTED_MAX,
    SWEEP_BACK,
    SWEEP_MAX_S,
    OrphanSearch,
    Share,
    Suspect,
    share_of,
)
from shared_scheduler.sync.read_registry import ORPHANED, SOURCES

[TIMES] = (source.times for source in SOURCES if source.name == ORPHANED)
#: For so long, at most, a server in cell 0 may have allocations: until its second check, and one minute more in which
#: checks of others, and sweeps, are waited for.
FOUND_WITHIN_S = AGAIN_S + 60.0
#: interval of the checks of this, which also begin the sweeps of schedulers that have started
WATCH_EVERY_S = 5.0


class CellZero:
    """The servers that nova-conductor has given up, because no scheduler has found a host for them in time.

    Those that users ask for again are in a cell.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def buried(self) -> list[tuple[float, str]]:
        """Each server after the time at which it came there, the oldest first."""
        every = (asked for asked in self._world.users.asked.values() if asked.moved is None)
        times = ((asked, _given_up_s(asked)) for asked in every)
        there = ((asked, at_s) for asked, at_s in times if at_s <= self._world.now)
        return sorted((at_s, one.uuid) for asked, at_s in there for one in asked.servers if one.tries == 1)

    def listed(self) -> list[str]:
        """What a scheduler reads of it, the oldest first."""
        since_s = self._world.now - SWEEP_BACK.total_seconds()
        return [server for at_s, server in self.buried() if at_s >= since_s][-LISTED_MAX:]


def _given_up_s(asked: SentRequest) -> float:
    """When the conductor hears that there is no host, or has waited for too long."""
    at_s = asked.deadline_s + CALLER_GRACE_S
    if isinstance(asked.outcome, ef.Fail):
        return min(asked.ended_s, at_s)
    return at_s if asked.outcome is None or asked.unheard else float("inf")


class OrphanSweeps:
    """The sweeps of all schedulers of a world, and the check that they find what was left."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cell_zero = CellZero(world)
        self._sweeps: dict[str, OrphanSweep] = {}
        self._seen_s: dict[str, float] = {}  # server in cell 0 -> when it was seen first with allocations
        self._watch()

    def _watch(self) -> None:
        for scheduler in self._world.schedulers.values():
            if scheduler.name not in self._sweeps:
                self._sweeps[scheduler.name] = OrphanSweep(self._world, self._cell_zero, scheduler)
        self._check()
        self._world.agenda.after(WATCH_EVERY_S, self._watch)

    def _check(self) -> None:
        """While nobody sweeps, or Placement is ill, the time does not run."""
        world = self._world
        held = [server for _, server in self._cell_zero.buried() if server in world.placement.consumers]
        can_be_found = world.schedulers and world.is_placement_well(world.now - WATCH_EVERY_S)
        self._seen_s = {server: self._seen_s.get(server, world.now) for server in held if can_be_found}
        late = [server for server, since_s in self._seen_s.items() if world.now - since_s > FOUND_WITHIN_S]
        world.checkers.check("left_is_found", not late, "cell 0", len(late), "servers hold allocations:", *late[:3])


class OrphanSweep:
    """Those of one scheduler: a sweep asks Placement about one server after the other."""

    def __init__(self, world: World, cell_zero: CellZero, scheduler: SimScheduler) -> None:
        self._world = world
        self._cell_zero = cell_zero
        self._scheduler = scheduler
        self._search: OrphanSearch[None] = OrphanSearch()
        rng = world.rng(f"orphans of {scheduler.name}")
        self._schedule = ReadSchedule(TIMES, rng)
        self._ask_first(rng)

    def _ask_first(self, rng: Random) -> None:
        assert TIMES.poll_s is not None, "the product polls"
        self._schedule.ask(self._world.now + rng.uniform(0, TIMES.poll_s))
        self._plan()

    def _plan(self) -> None:
        due_s = self._schedule.due_s()
        assert due_s is not None, "the next sweep is planned at the end of each"
        self._world.agenda.at(due_s, self._begin)

    def _begin(self) -> None:
        if not self._scheduler.up:
            return
        self._schedule.begin(self._world.now)
        listed = enumerate(self._cell_zero.listed())
        self._search.list({Suspect(server): place for place, server in listed}, lambda _: False)
        due, until_s = self._search.due(self._world.now, self._share(), lambda _: True), self._world.now + SWEEP_MAX_S
        self._next(takewhile(lambda _: self._world.now < until_s, due))

    def _share(self) -> Share:
        core = self._scheduler.core
        return share_of(core.identity.address(cell_name(0)), core.peers.live(cell_name(0)))

    def _next(self, left: Iterator[Suspect[None]]) -> None:
        """Ask Placement about the next server, or end the sweep."""
        if not self._scheduler.up:
            return
        suspect = next(left, None)
        if suspect is None:
            self._schedule.finished(self._world.now)
            self._plan()
            return
        self._search.of(suspect).begin()
        self._world.agenda.after(self._world.placement_delay_s(), self._answered, suspect, left)

    def _answered(self, suspect: Suspect[None], left: Iterator[Suspect[None]]) -> None:
        """Placement says what a server has; without an answer, the sweep ends."""
        self._search.of(suspect).last_s = self._world.now
        if not self._world.placement.up:
            self._schedule.failed(self._world.now)
            self._plan()
            return
        standing = self._world.placement.standing(suspect.server)
        if standing.allocations:
            self._world.agenda.work(self._world.placement_delay_s(), self._delete, suspect, standing, left)
            return
        self._search.of(suspect).times += 1
        self._next(left)

    def _delete(self, suspect: Suspect[None], standing: ConsumerAllocations, left: Iterator[Suspect[None]]) -> None:
        """Delete the allocations, unless another writer has changed them since; the agents are told of it."""
        checked, placement = self._search.of(suspect), self._world.placement
        checked.last_s = self._world.now
        if placement.up and placement.standing(suspect.server).generation == standing.generation:
            placement.delete(suspect.server)
            checked.times += 1
            for node in standing.allocations:
                self._scheduler.feed(ev.NodeContradicted(node, "an orphaned allocation was deleted there"))
        self._next(left)
