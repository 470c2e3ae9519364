# SPDX-License-Identifier: Apache-2.0
"""What no agent tells: asked now and then, cheaply, and only for what is not known better.

=====================  ==========  ===============================================================
what                   every       asked of
=====================  ==========  ===============================================================
services: exceptions   1.5 s       each cell: disabled, forced down, silent, new, and those that
                                   were it the last time (a handful of rows)
services: all          60 s        each cell
node list              10 s        each cell: uuids; new ones are read, missing ones are gone
changed nodes          3 s         each cell: compute nodes reported since the last look; those
                                   without an agent are read, twice: nova-compute reports a deleted
                                   instance before it deletes its allocation
provider generations   30 s        Placement, one call over the cloud, while any node has no agent
sharing providers      30 s        Placement: those that other trees may take from, and what is left
slow audit             60 s        every node without an agent, spread, at most 20 reads a second
aggregates             60 s        API database; the fan-out casts of nova-api are quicker
servers given up       15 s        API database and each cell, and Placement about the new ones
                                   (``given_up``)
what the core counts   10 s        the core: nodes turned away or left alone, for the log (``notices``)
one node               on demand   ``RefreshNode`` of the core
=====================  ==========  ===============================================================

Outages are said once an interval and end by themselves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from shared_scheduler.core.effects import RefreshNode
from shared_scheduler.core.events import (
    AggregatesRead,
    NodeRead,
    NodesGone,
    ServiceFacts,
    ServicesRead,
    SharingRead,
)
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.service.databases import ApiDatabase, CellDatabase
from shared_scheduler.service.node_reads import NodeReads
from shared_scheduler.service.rounds import Round, Rounds

LOG = logging.getLogger(__name__)

Event = ServicesRead | AggregatesRead | SharingRead | NodeRead | NodesGone
Submit = Callable[[Event], None]
#: Wants a node (cell, node) read.
Read = Callable[[str, str], None]

#: Reports are stamped to the second by whoever writes them: look back by a little more.
LOOK_BACK = timedelta(seconds=3)
#: The slow audit reads no more than this, however many nodes have no agent.
AUDIT_READS_PER_S = 20.0


@dataclass(frozen=True, slots=True)
class Intervals:
    """In seconds; see the table of the module."""

    exceptions_s: float = 1.5
    services_s: float = 60.0
    nodes_s: float = 10.0
    changes_s: float = 3.0
    sweep_s: float = 30.0
    audit_s: float = 60.0
    aggregates_s: float = 60.0
    sharing_s: float = 30.0


class CellPoll:
    """The questions to one cell's database.  No threads: ``Poller`` and ``CatchUp`` call it.

    Each method may raise ``DatabaseError``; what was learned before that stands.  Questions say whether
    there was news.
    """

    def __init__(
        self,
        database: CellDatabase,
        submit: Submit,
        read: Read,
        agent_speaks_for: Callable[[str], bool],
        nodes: frozenset[str] = frozenset(),
    ) -> None:
        self.database = database
        self._submit = submit
        self._read = read
        self._agent_speaks_for = agent_speaks_for
        self.cell = database.cell.uuid
        self._lock = threading.RLock()  # one question at a time: each is about what the last one saw
        self._odd: dict[str, tuple[object, ...]] = {}  # exceptions as last told
        self._last_id: int | None = None
        self._since: datetime | None = None
        self._reported: dict[str, datetime] = {}
        self._changed: set[str] = set()
        self.nodes = nodes

    def services(self) -> bool:
        """All services."""
        with self._lock:
            found = self.database.services()
            self._submit(ServicesRead(self.cell, found, complete=True))
            self._odd = {one.host: _state(one) for one in found if _is_odd(one)}
            self._last_id = max((_record_id(one) for one in found), default=0)
            return True

    def exceptions(self) -> bool:
        """Services that are not as they should be, or no longer, or new."""
        with self._lock:
            return self.services() if self._last_id is None else self._exceptions(self._last_id)

    def _exceptions(self, last_id: int) -> bool:
        found = self.database.service_exceptions(self._odd, last_id)
        news = tuple(
            one for one in found
            if self._odd.get(one.host) != _state(one) or _record_id(one) > last_id
        )  # fmt: skip
        if news:
            self._submit(ServicesRead(self.cell, news, complete=False))
        self._odd = {one.host: _state(one) for one in found if _is_odd(one)}
        self._last_id = max([last_id, *map(_record_id, found)])
        return bool(news)

    def node_list(self) -> bool:
        """New and gone compute nodes."""
        with self._lock:
            found = self.database.node_names()
            gone, new = self.nodes - found, found - self.nodes
            self.nodes = found
            if gone:
                self._submit(NodesGone(self.cell, gone))
            for node in new:
                self._want(node)
            return bool(gone or new)

    def look_at(self, nodes: Sequence[str]) -> list[tuple[Mapping[str, Any], frozenset[str]]]:
        """The records of these nodes, each with the instances of its host."""
        rows = self.database.nodes(nodes)
        members = self.database.instances({row["host"] for row in rows}) if rows else {}
        return [(row, members.get(row["host"], frozenset())) for row in rows]

    def changes(self) -> None:
        """Nodes that nova-compute has reported since the last look.  Asked by one thread."""
        if self._since is None:
            self._since = self.database.last_change()
        if self._since is None or all(map(self._agent_speaks_for, self.nodes)):
            return
        found = dict(self.database.nodes_changed_since(self._since - LOOK_BACK))
        changed = {n for n, reported in found.items() if self._reported.get(n) != reported}
        for node in changed | self._changed:
            self._want(node)
        self._changed, self._reported = changed, found
        self._since = max(found.values(), default=self._since)

    def silent_nodes(self) -> list[str]:
        """Nodes that no agent speaks for."""
        return [node for node in self.nodes if not self._agent_speaks_for(node)]

    def _want(self, node: str) -> None:
        if not self._agent_speaks_for(node):
            self._read(self.cell, node)


class Poller:
    """The threads: one a cell, one for Placement, one for the API database."""

    def __init__(
        self,
        api: ApiDatabase,
        mirror: PlacementMirror,
        reads: NodeReads,
        submit: Submit,
        agent_speaks_for: Callable[[str], bool],
        *,
        intervals: Intervals | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
        also: Sequence[Round] = (),
    ) -> None:
        """``agent_speaks_for``: by node uuid; called often and from many threads.  ``also``: what else
        is asked now and then."""
        self._api = api
        self._mirror = mirror
        self._reads = reads
        self._submit = submit
        self._agent_speaks_for = agent_speaks_for
        self._intervals = intervals or Intervals()
        self._clock = clock
        self._rng = rng or Random()
        self._lock = threading.Lock()
        self._cells: dict[str, tuple[CellPoll, Rounds]] = {}
        self._audit_due_s = float("-inf")
        self._common = [
            self._rounds("api", [Round("API database", self._intervals.aggregates_s,
                                       self._aggregates)]),
            self._rounds("placement", [
                Round("Placement", self._intervals.sweep_s, self._sweep),
                Round("Placement", self._intervals.sharing_s, self._sharing),
                Round("slow audit", self._intervals.changes_s, self._audit),
                *also,
            ]),
        ]  # fmt: skip

    def start(self) -> None:
        """Begin; cells come with ``use``."""
        self._audit_due_s = self._clock() + self._intervals.audit_s
        for rounds in self._common:
            rounds.start()

    def use(self, databases: Mapping[str, CellDatabase], nodes: Mapping[str, str]) -> None:
        """Poll these cells (cell uuid to database), and no others.

        ``nodes``: what is known already, node uuid to cell uuid.
        """
        self._reads.use(databases)
        with self._lock:
            ended = {
                uuid: self._cells.pop(uuid)
                for uuid, (poll, _) in list(self._cells.items())
                if databases.get(uuid) is not poll.database
            }
            for uuid in databases.keys() - self._cells.keys():
                known = {node for node, cell in nodes.items() if cell == uuid}
                if uuid in ended:  # its database has moved
                    known |= ended[uuid][0].nodes
                self._cells[uuid] = self._begin(databases[uuid], frozenset(known))
        for _, rounds in ended.values():
            rounds.stop()

    def polls(self) -> dict[str, CellPoll]:
        """What is asked of each cell, by uuid."""
        with self._lock:
            return {uuid: poll for uuid, (poll, _) in self._cells.items()}

    def refresh(self, effect: RefreshNode) -> None:
        """The core wants this node read; never blocks."""
        self._reads.put(effect.cell, effect.node)

    def stop(self) -> None:
        """End all threads."""
        with self._lock:
            cells, self._cells = list(self._cells.values()), {}
        for rounds in [*self._common, *(rounds for _, rounds in cells)]:
            rounds.stop()

    # -- cells -------------------------------------------------------------------------------

    def _begin(self, database: CellDatabase, known: frozenset[str]) -> tuple[CellPoll, Rounds]:
        times = self._intervals
        poll = CellPoll(
            database, self._submit, self._reads.put, self._agent_speaks_for, known
        )
        source = f"database of cell {database.cell.name or database.cell.uuid}"
        rounds = self._rounds(database.cell.name or database.cell.uuid, [
            Round(source, times.exceptions_s, poll.exceptions),
            Round(source, times.services_s, poll.services),
            Round(source, times.nodes_s, poll.node_list),
            Round(source, times.changes_s, poll.changes),
        ])  # fmt: skip
        rounds.start()
        return poll, rounds

    def _rounds(self, name: str, rounds: list[Round]) -> Rounds:
        return Rounds(name, rounds, self._clock, Random(self._rng.random()))

    def _silent(self) -> dict[str, str]:
        """Node to cell of all nodes without an agent."""
        with self._lock:
            polls = [(uuid, poll) for uuid, (poll, _) in self._cells.items()]
        return {node: uuid for uuid, poll in polls for node in poll.silent_nodes()}

    # -- Placement and API database ----------------------------------------------------------

    def _sweep(self) -> None:
        silent = self._silent()
        if not silent:
            return
        for node in self._mirror.sweep() & silent.keys():
            self._reads.put(silent[node], node)

    def _sharing(self) -> None:
        self._submit(SharingRead(self._mirror.sharing()))

    def _audit(self) -> None:
        if self._clock() < self._audit_due_s:
            return
        silent = self._silent()
        spread_s = max(self._intervals.audit_s, len(silent) / AUDIT_READS_PER_S)
        for node, cell in silent.items():
            self._reads.put(cell, node, self._rng.uniform(0, spread_s))
        self._audit_due_s = self._clock() + spread_s

    def _aggregates(self) -> None:
        self._submit(AggregatesRead(self._api.aggregates(), complete=True))


def _is_odd(one: ServiceFacts) -> bool:
    return one.disabled or one.forced_down or not one.up


def _state(one: ServiceFacts) -> tuple[object, ...]:
    """What makes an exception a new one; a heartbeat does not."""
    reason = one.record.get("disabled_reason")
    return one.disabled, one.forced_down, one.up, one.version, reason, one.record.get("id")


def _record_id(one: ServiceFacts) -> int:
    value = one.record.get("id")
    return value if isinstance(value, int) else 0
