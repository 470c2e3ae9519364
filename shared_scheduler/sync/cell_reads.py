# SPDX-License-Identifier: Apache-2.0
"""The reads of one cell's database; each yields the changes since the last one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from shared_scheduler.core.events import BuildsRead, NodesGone, NodesListed, ServiceFacts, ServicesRead
from shared_scheduler.sync.databases import CellDatabase, DatabaseError
from shared_scheduler.sync.flight import ReadRequest
from shared_scheduler.sync.read_registry import NODE

#: Report times have whole seconds of the writer's clock, so each read starts a little before the last one.
REPORTED_BEFORE = timedelta(seconds=3)

#: Servers whose builds wait to be read; the core asks again later for those beyond.
BUILDS_MAX = 2_000

#: A compute node's record, and the instances of its host.
Seen = tuple[Mapping[str, Any], frozenset[str]]


class CellReads:
    """Has no threads; ``Revalidator`` calls it.  Each read may raise ``DatabaseError``; events yielded before stay
    valid."""

    def __init__(
        self,
        database: CellDatabase,
        agent_speaks_for: Callable[[str], bool],
        nodes: frozenset[str] = frozenset(),
        has_unlisted: Callable[[], bool] = lambda: False,
    ) -> None:
        """``nodes``: uuids of the nodes that the core knows already.  ``has_unlisted``: whether it knows some from
        messages only."""
        self.database = database
        self.cell = database.cell.uuid
        self.nodes = nodes
        self._hosts: Mapping[str, str] = {}  # node -> host at the last read
        self._agent_speaks_for = agent_speaks_for
        self._has_unlisted = has_unlisted
        self._lock = threading.RLock()  # one read of the services at a time, because each compares with the one before
        self._odd: dict[str, tuple[object, ...]] = {}  # the services with an exception, as they were last yielded
        self._last_id: int | None = None
        self._selected: set[str] = set()  # hosts whose services are to be read
        self._lost: set[str] = set()  # those of them that had no service at the last read
        self._since: datetime | None = None
        self._reported: dict[str, datetime] = {}
        self._reported_last: set[str] = set()
        self._wanting = threading.Lock()  # the lock above is held during reads
        self._builds: dict[str, datetime] = {}  # server -> when it was placed; its read may have to wait
        self._read: dict[str, Seen] = {}  # the last read state of nodes without an agent

    def again(self, database: CellDatabase) -> CellReads:
        """The same cell with another database object, because a read of this one hangs.  It knows what this one knows,
        so that no host counts as enabled until its service is read."""
        after = CellReads(database, self._agent_speaks_for, self.nodes, self._has_unlisted)
        after._hosts, after._odd, after._lost = self._hosts, dict(self._odd), set(self._lost)
        return after

    # -- services

    def all_services(self) -> Iterator[ServicesRead]:
        """Every service."""
        with self._lock:
            found = self.database.services()
            yield ServicesRead(self.cell, found, complete=True)
            self._odd = {one.host: _state(one) for one in found if _is_odd(one)}
            self._last_id = max((_record_id(one) for one in found), default=0)

    def services(self) -> Iterator[ServicesRead]:
        """Services with an exception (disabled, forced down, without a report), without one any more, or new."""
        with self._lock:
            if self._last_id is None:
                yield from self.all_services()
            else:
                yield from self._changed_services(self._last_id)

    def _changed_services(self, last_id: int) -> Iterator[ServicesRead]:
        found = self.database.service_exceptions(self._odd, last_id)
        changed = tuple(
            one for one in found
            if self._odd.get(one.host) != _state(one) or _record_id(one) > last_id
        )  # fmt: skip
        if changed:
            yield ServicesRead(self.cell, changed, complete=False)
        self._odd = {one.host: _state(one) for one in found if _is_odd(one)}
        self._last_id = max([last_id, *map(_record_id, found)])

    def select(self, hosts: Iterable[str]) -> None:
        """Servers are about to be placed on these hosts: ``selected_services`` reads their services."""
        with self._lock:
            self._selected.update(hosts)

    def selected_services(self) -> Iterator[ServicesRead]:
        """Services of selected hosts that no longer accept servers."""
        with self._lock:
            hosts = frozenset(self._selected)
            if self.database.accepting(hosts) >= hosts:
                self._lost -= hosts
                self._selected -= hosts
                return
            found = self.database.services_of(hosts)
            changed = tuple(one for one in found if _is_odd(one) and self._odd.get(one.host) != _state(one))
            if changed:
                yield ServicesRead(self.cell, changed, complete=False)
            self._odd |= {one.host: _state(one) for one in changed}
            there = {one.host for one in found}
            self._lost = (self._lost | hosts) - there
            if hosts - there:
                yield from self.all_services()
            self._selected -= hosts

    def accepts_servers(self, host: str) -> bool:
        """Whether the service of a host accepts servers, according to its last read.  Does not wait for a read."""
        return host not in self._odd and host not in self._lost

    # -- builds

    def want_build(self, server: str, age_s: float) -> None:
        """``builds`` shall read this server, which was placed so long ago.  Never blocks for a read."""
        placed = self.database.now() - timedelta(seconds=age_s)
        with self._wanting:
            if len(self._builds) < BUILDS_MAX:
                self._builds[server] = placed

    def builds(self) -> Iterator[BuildsRead]:
        """How the wanted servers stand."""
        with self._wanting:
            wanted, self._builds = self._builds, {}
        if not wanted:
            return
        now = self.database.now()
        ages_s = {server: (now - placed).total_seconds() for server, placed in wanted.items()}
        try:
            found = self.database.builds(ages_s, self._hosts.values())
        except DatabaseError:
            self._want_again(wanted)
            raise
        yield BuildsRead(found)

    def _want_again(self, builds: dict[str, datetime]) -> None:
        """The repetition of a read that failed shall read these as well."""
        with self._wanting:
            self._builds = dict(islice((builds | self._builds).items(), BUILDS_MAX))

    # -- compute nodes

    def silent(self) -> list[str]:
        """Nodes without an agent.  What was read of the others counts no more, because their agents change the rows."""
        silent = [node for node in self.nodes if not self._agent_speaks_for(node)]
        self._read = {node: seen for node in silent if (seen := self._read.get(node)) is not None}
        return silent

    def node_list(self, began_s: float) -> Iterator[NodesGone | NodesListed | ReadRequest]:
        """New and removed compute nodes, and those that have moved; all, if the core asks for some."""
        with self._lock:
            hosts, before = self.database.node_hosts(), self._hosts
            found = frozenset(hosts)
            gone, new = self.nodes - found, found - self.nodes
            self.nodes, self._hosts = found, hosts
            if gone:
                yield NodesGone(self.cell, gone)
            moved = frozenset(node for node, host in hosts.items() if before.get(node, host) != host)
            if moved or self._has_unlisted():
                yield NodesListed(self.cell, hosts, moved, began_s)
            yield from map(self._wanted, filter(self._is_silent, sorted(new)))

    def records(self) -> Iterator[ReadRequest]:
        """Nodes without an agent whose record or instances have changed since they were read."""
        for row, members in self.seen(self.silent()):
            if self._read.get(row["uuid"]) != (row, members):
                yield self._wanted(row["uuid"])

    def seen(self, nodes: Sequence[str]) -> list[Seen]:
        """The records of these nodes, each with the instances of its host."""
        rows = self.database.nodes(nodes)
        members = self.database.instances({row["host"] for row in rows}) if rows else {}
        return [(row, members.get(row["host"], frozenset())) for row in rows]

    def was_read(self, seen: Seen) -> None:
        """Record that the core has this state, and what Placement holds for the node."""
        self._read[seen[0]["uuid"]] = seen

    def reported(self) -> Iterator[ReadRequest]:
        """Nodes without an agent that nova-compute has reported since the last read, or the one before it."""
        now = self.database.now()  # a report that is later does not count: its writer's clock is fast
        if self._since is None and (newest := self.database.last_change()) is not None:
            self._since = min(newest, now)
        if self._since is None or all(map(self._agent_speaks_for, self.nodes)):
            return
        found = dict(self.database.nodes_changed_since(self._since - REPORTED_BEFORE))
        reported = {node for node, when in found.items() if self._reported.get(node) != when}
        yield from map(self._wanted, filter(self._is_silent, sorted(reported | self._reported_last)))
        self._reported_last, self._reported = reported, found
        self._since = min(max(found.values(), default=self._since), now)

    def _is_silent(self, node: str) -> bool:
        return not self._agent_speaks_for(node)

    def _wanted(self, node: str) -> ReadRequest:
        return ReadRequest(NODE, (self.cell, node))


def _is_odd(one: ServiceFacts) -> bool:
    return one.disabled or one.forced_down or not one.up


def _state(one: ServiceFacts) -> tuple[object, ...]:
    """The values whose change makes a service a changed one; heartbeats are not among them."""
    reason = one.record.get("disabled_reason")
    return one.disabled, one.forced_down, one.up, one.version, reason, one.record.get("id")


def _record_id(one: ServiceFacts) -> int:
    value = one.record.get("id")
    return value if isinstance(value, int) else 0
