# SPDX-License-Identifier: Apache-2.0
"""A cloud of one cell with a real Placement, and the readers of both, on a clock that the test advances."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from shared_scheduler.core.events import NodeContradicted
from shared_scheduler.sync.databases import Cell
from shared_scheduler.sync.state_sync import StateSync
from tests.unit.placement.real_placement import World
from tests.unit.sync.nova_databases import NovaDatabases


def nothing_orphaned() -> Iterator[NodeContradicted]:
    yield from ()


class Site:
    """Without threads: ``decide`` and ``refuse`` read what they wait for, ``poll`` the sources that are due."""

    def __init__(self, nova: NovaDatabases, world: World, nodes_max: int) -> None:
        self.nova = nova
        self.heard: list[Any] = []
        self.spoken_for: set[str] = set()
        self.unlisted: set[str] = set()  # nodes that the core knows from messages only
        self.now_s = 100.0
        self.sync = StateSync(
            nova.api(), nova.open_cell, world.client, self.heard.append, self.speaks_for,
            nodes_max=nodes_max, sweep=nothing_orphaned, log_new=lambda: None,
            clock=lambda: self.now_s, rng=random.Random(1), has_unlisted=lambda: bool(self.unlisted),
        )  # fmt: skip
        self.sync.use((Cell(nova.cell_uuid, "cell1", nova.cell_url, "rabbit://here/"),))
        self.cell = self.sync.fleet.cells[nova.cell_uuid]

    def speaks_for(self, node: str) -> bool:
        return node in self.spoken_for

    def agent(self, node: str) -> str:
        """This node has an agent."""
        self.spoken_for.add(node)
        return node

    def decide(self, writes: bool = False) -> list[Any]:
        """A request comes some time later; what is heard before it is decided."""
        self.now_s += 1.5
        self.heard.clear()
        self.sync.decision_reads.before_decision(writes)
        return list(self.heard)

    def refuse(self) -> bool:
        """A request has no host; whether there is reason to decide it again."""
        self.now_s += 1.5
        self.heard.clear()
        known = self.sync.revalidator.news
        self.sync.decision_reads.before_no()
        return self.sync.revalidator.news != known

    def reads(self) -> dict[str, int]:
        """Source -> how many reads there were."""
        return {row["source"]: row["reads"] for row in self.sync.revalidator.report()}

    def poll(self) -> list[Any]:
        """What the threads would read by now, and what is heard."""
        self.heard.clear()
        self.sync.revalidator.work_off()
        return list(self.heard)
