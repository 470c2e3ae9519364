# SPDX-License-Identifier: Apache-2.0
"""The demo's programme: what breaks when, and the story of how it heals."""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.sim.network import Weather
from shared_scheduler.sim.rest import Rest
from shared_scheduler.sim.world import World
from shared_scheduler.state.row import Freshness

#: parts of the whole time at which something happens
CUT_AT, CUT_ENDS_AT = 0.25, 0.50
DEATH_AT, REBIRTH_AT = 0.60, 0.68
#: part of the nodes that are cut off
CUT_PART = 0.05
#: after the end, this much virtual time passes at once before the last checks
SETTLE_S = 40.0
#: lines of the story that are kept
STORY_MAX = 50


@dataclass(slots=True)
class Healing:
    """A fault that ended at ``since_s``; over when every row is fresh."""

    what: str
    since_s: float


class Exhibition:
    """Injects the faults, and notes in ``story`` what came of them."""

    def __init__(self, world: World, duration_s: float) -> None:
        self.story: list[str] = []
        self._world = world
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

    def look(self) -> None:
        """Notice what has healed."""
        if self._grown and not self._healing:
            return
        size = len(self._world.nodes)
        if all(counts[Freshness.FRESH] == size for counts in self.rows().values()):
            for healing in self._healing:
                after_s = self._world.now - healing.since_s
                self._tell(f"{healing.what}: every row is fresh again after {after_s:.1f} s")
            self._healing.clear()
            if not self._grown:
                self._grown = True
                self._tell("every scheduler has heard from every node")

    def end(self) -> None:
        """No more requests; let everything settle, and check the last invariants."""
        world = self._world
        world.close()
        world.network.weather = Weather()
        world.run(SETTLE_S)
        Rest(world).settled()
        self.look()

    def _tell(self, text: str) -> None:
        self.story.append(f"{self._world.now:5.1f} s  {text}")
        del self.story[:-STORY_MAX]

    def _cut(self) -> None:
        for node in self._victims:
            self._world.network.cut(node.address)
        self._tell(f"{len(self._victims)} nodes are cut off from the state channel")

    def _mend(self) -> None:
        for node in self._victims:
            self._world.network.heal(node.address)
        self._tell("they are connected again")
        self._healing.append(Healing("cut", self._world.now))

    def _kill(self) -> None:
        self._world.kill_scheduler(0)
        self._tell("scheduler-0 is killed")

    def _revive(self) -> None:
        self._world.start_scheduler(0)
        self._tell("scheduler-0 starts again, with what the databases say")
        self._healing.append(Healing("restart", self._world.now))
