# SPDX-License-Identifier: Apache-2.0
"""An API database, cells and a Placement for tests of the search for orphans, and the sweepers of schedulers."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from shared_scheduler.core.events import NodeContradicted
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.reconciler import without_nova
from shared_scheduler.sync import orphan_search
from shared_scheduler.sync.orphan_search import LAG_S, TURN_WAIT_S, Share, Turns, share_of
from shared_scheduler.sync.orphan_sweeper import OrphanSweeper
from tests.unit.placement.real_placement import World
from tests.unit.sync.nova_databases import NovaDatabases

#: Between two sweeps.
SWEEP_S = 15.0
#: Fewer than those of the product.
CHECKS_A_SWEEP = 8
FIRST_OF_TWO, OTHER_OF_TWO = (share_of(own, ("a", "b")) for own in "ab")
#: those of the only scheduler
ALL, ALONE = share_of("a", ("a",)), Turns(0, 1)


class Site:
    """An API database and a Placement, the sweeper, and a clock."""

    def __init__(self, nova: NovaDatabases, placement: World) -> None:
        self.nova = nova
        self.world = placement
        self.told: list[NodeContradicted] = []
        self.now_s = 0.0
        self.cells = [nova.cell()]
        self.writer = self.new_writer()
        self.sut = self.scheduler(writer=self.writer)

    def new_writer(self) -> AllocationWriter:
        """That of one scheduler, which does not wait."""
        return AllocationWriter(self.world.client, lambda: self.now_s, lambda _: False, random.Random(1), without_nova)

    def scheduler(
        self,
        turns: Turns = ALONE,
        writer: AllocationWriter | None = None,
        share: Share = ALL,
        turns_now: Callable[[], Turns | None] | None = None,
    ) -> OrphanSweeper:
        """One more that sweeps."""
        restore = (writer or self.new_writer()).restore
        return OrphanSweeper(
            self.nova.api(),
            lambda: self.cells,
            self.world.client,
            lambda: self.now_s,
            lambda: share,
            restore,
            turns_now or (lambda: turns),
        )

    def sweep(self) -> None:
        self.told += self.sut.sweep()

    def sweep_in_turn(self, sweeper: OrphanSweeper | None = None) -> list[NodeContradicted]:
        """Sweep until what stands has stood long enough; the nodes that are told of a delete."""
        told = list((sweeper or self.sut).sweep())
        self.wait(LAG_S)
        told += (sweeper or self.sut).sweep()
        self.told += told
        return told

    def shelved(self) -> str:
        """A server without a host, of which nothing is under way for a while."""
        own = self.nova.instance(None)
        self.give_up(own)
        return own

    def give_up(self, server: str) -> None:
        """The unshelve of a server has failed, so long ago that the turn of the first scheduler has come."""
        self.nova.change_instance(server, vm_state="shelved_offloaded", task_state=None)
        self.wait(TURN_WAIT_S)

    def server(self, cell: str | None) -> str:
        """A server that nova-conductor has just mapped to this cell; None: not to any yet."""
        return self.nova.map_server(cell)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.nova.now += timedelta(seconds=seconds)

    def take(self, server: str, provider: str) -> None:
        self.world.take(server, {provider: {"VCPU": 1}})

    def holds(self, server: str) -> bool:
        return bool(self.world.client.consumer(server).allocations)

    def asked(self, *servers: str) -> int:
        """How often Placement was asked about these."""
        return sum(self.world.http.calls.count(("GET", f"/allocations/{each}")) for each in servers)


@pytest.fixture
def site(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(orphan_search, "CHECKS_A_SWEEP", CHECKS_A_SWEEP)
    return Site(NovaDatabases(tmp_path), world)
