# SPDX-License-Identifier: Apache-2.0
"""The composed states of a claim: the state of a claim in the scheduler, its host table, the node's agent,
Placement and the conductor, and every step from one such combination to the next.

The machines of the parts have tables of their own (``state_machines.rst``).  This one is their composition.
The composition is observed: real cores run in the simulator (``SETTINGS``), and after each action the joint
state of every claim is compared with the one before.  ``STEPS`` lists the known steps; a test fails on a step
that is observed and not listed, and on one that is listed and does not occur.  The page is generated from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from shared_scheduler.core.claim_state import ClaimState, OpenClaim
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.schedulers import SimScheduler
from shared_scheduler.sim.workload import Server, ServerState, Workload
from shared_scheduler.sim.world import Sizes, World, settings_for
from tools.drawings.rst_tables import table

#: a part that has no state of the claim
NOTHING = "-"


class Joint(NamedTuple):
    """The state of one claim in each part."""

    scheduler: str  # core.claim_state.ClaimState
    row: str  # assumed: the overlay of the scheduler's own row of the node holds the claim
    agent: str  # pending, or tracked: nova-compute's tracker counts the instance
    placement: str  # held: Placement holds the allocation
    conductor: str  # waits for an answer, builds on this node, built; gone: failed, deleted, or on another node


BEGIN = Joint(NOTHING, NOTHING, NOTHING, NOTHING, "waits")
Step = tuple[Joint, Joint]


@dataclass(frozen=True)
class Setting:
    """One kind of world: its contents and its faults."""

    sizes: Sizes
    workload: Workload
    loss: float = 0.0  # part of the messages that is lost
    placement_down_s: float = 0.0  # how long Placement is down each time: longer than a write waits


#: three small nodes that are nearly full, so that claims collide; some builds fail, and servers are deleted soon.
#: Nobody asks twice for a server: then Placement would show what another claim of it does
SIZES = Sizes(nodes=3, schedulers=2, build_queue_s=0.05)
WORKLOAD = Workload(rate_per_s=8.0, lifetime_s=3.0, several=0.4, build_fails=0.1, phantoms=0.3, asks_again=0.0)
SETTINGS = (
    Setting(SIZES, WORKLOAD),
    Setting(replace(SIZES, agentless=1.0), WORKLOAD),
    Setting(SIZES, WORKLOAD, loss=0.15),
    Setting(replace(SIZES, placement_s=0.2), WORKLOAD, placement_down_s=1.5),  # calls are under way when it goes
)
#: virtual seconds of one world, in so many parts
RUN_S = 12.0
PARTS = 4


#: the steps of a claim: "scheduler/row/agent/Placement/conductor > the same afterwards"
STEPS: Mapping[str, str] = {
    "With an agent on the node": """
        -/-/-/-/waits > claiming/assumed/-/-/waits
        claiming/assumed/-/-/waits > claiming/assumed/pending/-/waits
        claiming/assumed/pending/-/waits > writing/assumed/pending/-/waits
        writing/assumed/pending/-/waits > writing/assumed/pending/held/waits
        confirmed/assumed/pending/held/waits > confirmed/assumed/pending/held/builds
        confirmed/-/pending/held/builds > confirmed/-/tracked/held/built
        writing/assumed/pending/held/waits > confirmed/assumed/pending/held/waits
        confirmed/assumed/pending/held/builds > confirmed/assumed/tracked/held/built
        confirmed/assumed/tracked/held/built > confirmed/-/tracked/held/built
        confirmed/-/pending/held/waits > confirmed/-/pending/held/builds
        writing/assumed/pending/held/waits > written/assumed/pending/held/waits
        confirmed/assumed/pending/held/builds > confirmed/-/pending/held/builds
        written/assumed/pending/held/waits > confirmed/assumed/pending/held/waits
        writing/assumed/pending/held/waits > confirmed/-/pending/held/waits
        written/assumed/pending/held/waits > confirmed/-/pending/held/waits
        confirmed/-/pending/held/builds > confirmed/-/-/-/gone
        confirmed/assumed/-/-/gone > confirmed/-/-/-/gone
        claiming/assumed/-/-/waits > refused/-/-/-/waits
        confirmed/assumed/pending/held/builds > confirmed/assumed/-/-/gone
        deleted/-/pending/-/waits > deleted/-/-/-/waits
        deleting/assumed/pending/held/waits > deleting/assumed/pending/-/waits
        deleting/assumed/pending/-/waits > deleted/-/pending/-/waits
        written/assumed/pending/held/waits > deleting/assumed/pending/held/waits
        confirmed/-/pending/held/builds > confirmed/-/tracked/-/gone
        confirmed/assumed/pending/held/builds > confirmed/assumed/tracked/-/gone
        confirmed/assumed/tracked/-/gone > confirmed/-/tracked/-/gone
        confirmed/assumed/pending/held/waits > confirmed/-/pending/held/waits
        not_written/-/pending/-/waits > not_written/-/-/-/waits
        confirmed/assumed/tracked/held/built > confirmed/assumed/-/held/gone
        writing/assumed/pending/held/waits > deleting/assumed/pending/held/waits
        writing/assumed/pending/-/waits > not_written/-/pending/-/waits
        confirmed/assumed/-/held/gone > confirmed/assumed/-/-/gone
        confirmed/assumed/-/held/gone > confirmed/-/-/held/gone
        claiming/assumed/pending/-/waits > released/-/pending/-/waits
        released/-/pending/-/waits > released/-/-/-/waits
        claiming/assumed/-/-/waits > released/-/-/-/waits
    """,
    "Without an agent on the node: Placement alone judges": """
        -/-/-/-/waits > writing/assumed/-/-/waits
        writing/assumed/-/-/waits > writing/assumed/-/held/waits
        confirmed/assumed/-/held/waits > confirmed/assumed/-/held/builds
        confirmed/assumed/-/held/builds > confirmed/assumed/-/held/built
        writing/assumed/-/held/waits > confirmed/assumed/-/held/waits
        writing/assumed/-/held/waits > written/assumed/-/held/waits
        confirmed/assumed/-/held/built > confirmed/assumed/-/held/gone
        written/assumed/-/held/waits > confirmed/assumed/-/held/waits
        confirmed/assumed/-/held/builds > confirmed/assumed/-/-/gone
        deleting/assumed/-/held/waits > deleting/assumed/-/-/waits
        deleting/assumed/-/-/waits > deleted/-/-/-/waits
        writing/assumed/-/held/waits > deleting/assumed/-/held/waits
        writing/assumed/-/-/waits > not_written/-/-/-/waits
        written/assumed/-/held/waits > deleting/assumed/-/held/waits
    """,
    "The agent is late, and another host passes": """
        claiming/assumed/-/-/waits > late/-/-/-/waits
        claiming/assumed/pending/-/waits > late/-/pending/-/waits
        late/-/pending/-/waits > late/-/-/-/waits
    """,
    "No verdict arrives, because messages are lost": """
        claiming/assumed/pending/-/waits > timed_out/-/pending/-/waits
        timed_out/-/pending/-/waits > timed_out/-/-/-/waits
        claiming/assumed/-/-/waits > timed_out/-/-/-/waits
    """,
    "Placement does not answer the write, so its outcome is unknown": """
        writing/assumed/pending/-/waits > deleting/assumed/pending/-/waits
    """,
}
#: steps that occur in fewer than one of seven worlds; no test requires them
RARE: Mapping[str, str] = {
    "Rare: the tracker loses a claim that it has taken over, or an agent starts in between": """
        confirmed/assumed/tracked/held/built > confirmed/assumed/-/held/built
        confirmed/assumed/-/held/built > confirmed/-/-/held/built
        confirmed/assumed/-/held/built > confirmed/assumed/tracked/held/built
        confirmed/assumed/-/held/builds > confirmed/assumed/tracked/held/built
    """,
    "Rare: the agent reads that the allocation is gone before its scheduler hears that it is deleted": """
        deleting/assumed/pending/-/waits > deleting/assumed/-/-/waits
    """,
    "Rare: the release of a claim is lost, and the same node gets the next claim of the server": """
        late/-/pending/-/waits > late/-/pending/held/waits
        late/-/pending/held/waits > late/-/tracked/held/waits
        late/-/pending/held/waits > late/-/-/-/waits
        timed_out/-/pending/-/waits > timed_out/-/pending/held/waits
        timed_out/-/pending/held/waits > timed_out/-/tracked/held/waits
    """,
    "Rare: while a claim is deleted, the same node gets the next claim of the server": """
        deleting/assumed/pending/-/waits > deleting/assumed/pending/held/waits
        deleting/assumed/pending/held/waits > deleting/assumed/tracked/held/waits
        deleting/assumed/tracked/held/waits > deleting/assumed/-/held/waits
    """,
}


class Watcher:
    """Follows each claim of a world from its begin until every part has finished with it."""

    def __init__(self, world: World) -> None:
        self.steps: Counter[Step] = Counter()
        self._world = world
        self._followed: dict[str, tuple[OpenClaim, SimScheduler, Joint]] = {}
        self._over: set[str] = set()

    def run(self, until_s: float) -> None:
        """Run the world, one action at a time."""
        while self._world.agenda.do_next(until_s):
            self._compare()

    def _compare(self) -> None:
        for scheduler in self._world.schedulers.values():
            for claim in scheduler.core.claims.open():
                if claim.claim_id not in self._followed and claim.claim_id not in self._over:
                    self._followed[claim.claim_id] = (claim, scheduler, BEGIN)
        for claim_id, (claim, scheduler, before) in list(self._followed.items()):
            now = self._joint(claim, scheduler)
            if now != before:
                self.steps[before, now] += 1
                self._followed[claim_id] = (claim, scheduler, now)
            if self._is_over(now):
                del self._followed[claim_id]
                self._over.add(claim_id)

    @staticmethod
    def _is_over(now: Joint) -> bool:
        ended = now.scheduler not in ("claiming", "writing", "written", "deleting")
        return ended and now.row == NOTHING and now.agent != "pending" and now.conductor != "builds"

    def _joint(self, claim: OpenClaim, scheduler: SimScheduler) -> Joint:
        node, server = claim.intent.node, self._world.users.servers[claim.intent.consumer]
        is_answered = claim.state is ClaimState.CONFIRMED
        held = node in self._world.placement.consumers.get(server.uuid, {})
        return Joint(
            claim.state.value,
            self._row(claim, scheduler),
            self._agent(claim, server),
            "held" if held else NOTHING,
            conductor_of(server, node) if is_answered else "waits",
        )

    @staticmethod
    def _row(claim: OpenClaim, scheduler: SimScheduler) -> str:
        return "assumed" if scheduler.core.table.is_outstanding(claim.claim_id) else NOTHING

    def _agent(self, claim: OpenClaim, server: Server) -> str:
        agent = self._world.nodes[claim.intent.node].agent
        if agent is None:
            return NOTHING
        if claim.claim_id in agent.ledger.pending:
            return "pending"
        return "tracked" if server.uuid in agent.ledger.members else NOTHING


def conductor_of(server: Server, node: str) -> str:
    """The conductor's state of a server, with respect to this node."""
    if server.state is ServerState.ASKED:
        return "waits"
    if server.node != node or server.state in (ServerState.FAILED, ServerState.DELETED):
        return "gone"
    return "builds" if server.state is ServerState.BUILDING else "built"


def watched(setting: Setting, seed: int) -> Counter[Step]:
    """Every step that occurs in one world of a setting, and how often."""
    settings = settings_for(setting.sizes)
    if setting.placement_down_s:
        settings = replace(settings, write_timeout_s=setting.placement_down_s / 3)
    world = World(seed, setting.sizes, setting.workload, NetworkFaults(loss=setting.loss), settings=settings)
    world.checkers.rows_every = 0  # other tests check the rows
    watcher = Watcher(world)
    for _ in range(PARTS):
        watcher.run(world.now + RUN_S / PARTS - setting.placement_down_s)
        if setting.placement_down_s:
            world.set_placement(False)
            watcher.run(world.now + setting.placement_down_s)
            world.set_placement(True)
    return watcher.steps


def steps_in(text: str) -> list[Step]:
    """The steps of one text of ``STEPS``."""
    pairs = (line.strip().split(" > ") for line in text.strip().splitlines())
    return [(Joint(*before.split("/")), Joint(*after.split("/"))) for before, after in pairs]


def listed(sections: Mapping[str, str]) -> set[Step]:
    """All steps of some sections."""
    return {step for text in sections.values() for step in steps_in(text)}


# -- the page

HEAD = """\
==============
A claim's life
==============

The state of one claim in each part, and every step from one such state to the next: the composition of the
machines of :doc:`state_machines`.  ``tools/draw`` generates this page from
``tools/drawings/claim_life.py``.  A test runs real scheduler and agent cores in the simulator; it fails on a
step that is not listed here, and on one that is listed and does not occur.

scheduler
    The state of the claim in ``shared_scheduler/core/claims.py``.
row
    *assumed*: the overlay of the scheduler's row of the node holds the claim
    (``shared_scheduler/table/assumed_claims.py``), whether the base shows it already or not.
agent
    *pending*: accepted, and counted by the node's agent (``compute_agent/claim_ledger.py``).  *tracked*:
    nova-compute's resource tracker counts the instance.
Placement
    *held*: Placement holds the allocation of the instance on this node.
conductor
    It *waits* for an answer to the request, *builds* on this node, or has *built*.  *gone*: the build
    failed, the instance was deleted, or it is on another node.
"""


def page() -> str:
    """All of ``doc/source/reference/claim_life.rst``."""
    sections = {**STEPS, **RARE}
    numbers = numbered(sections)
    parts = [HEAD, titled("States"), states_table(numbers)]
    for title, text in sections.items():
        parts += [titled(title), steps_table(steps_in(text), numbers)]
    return "\n".join(parts)


def numbered(sections: Mapping[str, str]) -> dict[Joint, int]:
    """A number for each state, in the order in which the steps reach them."""
    numbers: dict[Joint, int] = {}
    for text in sections.values():
        for step in steps_in(text):
            for state in step:
                numbers.setdefault(state, len(numbers) + 1)
    return numbers


def titled(title: str) -> str:
    """A section's title."""
    return f"{title}\n{'=' * len(title)}\n"


def states_table(numbers: Mapping[Joint, int]) -> str:
    """Every joint state."""
    head = ("no", "scheduler", "row", "agent", "Placement", "conductor")
    return table([head, *((str(number), *map(escaped, state)) for state, number in numbers.items())]) + "\n"


def escaped(word: str) -> str:
    """A lone dash would begin a list."""
    return "\\-" if word == NOTHING else word


def steps_table(steps: list[Step], numbers: Mapping[Joint, int]) -> str:
    """Every step: from which state to which, and what changes."""
    rows = [(str(numbers[before]), str(numbers[after]), ", ".join(moves(before, after))) for before, after in steps]
    rows.sort(key=lambda row: (int(row[0]), int(row[1])))
    return table([("from", "to", "what changes"), *rows]) + "\n"


def moves(before: Joint, after: Joint) -> Iterator[str]:
    """Which parts change, and to what."""
    for part, was, now in zip(Joint._fields, before, after, strict=True):
        if was != now:
            name = "Placement" if part == "placement" else part
            yield f"{name}: {'removed' if now == NOTHING else now}"
