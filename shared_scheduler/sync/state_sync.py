# SPDX-License-Identifier: Apache-2.0
"""Binds the registry to the databases and to Placement, and the revalidator to the engine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random

from shared_scheduler.core.effects import AskGroup, ReadBuild, RefreshNode
from shared_scheduler.core.events import AggregatesRead, Event, NodeContradicted, NodeNotFound
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.placement.questions import Question
from shared_scheduler.sync import read_registry as registry
from shared_scheduler.sync.bootstrap import Bootstrap, Loaded
from shared_scheduler.sync.bounded_reads import AGAIN_AFTER_S, AGAIN_MOST_S, BoundedReads
from shared_scheduler.sync.cell_reads import CellReads
from shared_scheduler.sync.databases import ApiDatabase, Cell, CellDatabase, DatabaseError
from shared_scheduler.sync.decision_reads import DecisionReads
from shared_scheduler.sync.fleet import KnownNodes
from shared_scheduler.sync.flight import Key, ReadRequest
from shared_scheduler.sync.image_reads import ImageReads
from shared_scheduler.sync.node_reads import NodeReads
from shared_scheduler.sync.placement_reads import PlacementReads
from shared_scheduler.sync.question_reads import QuestionReads
from shared_scheduler.sync.read_registry import SOURCES, Source
from shared_scheduler.sync.revalidator import Read, Revalidator

LOG = logging.getLogger(__name__)

#: How long agents have to answer the Hello before their nodes are read from Placement: the time over which they spread
#: their answers (``core.scheduler_settings``), and some more.
GRACE_S = 5.0
GRACE_PER_NODE_S = SchedulerSettings().spread_ms_per_1000_nodes / 1e6
#: How often the log contains the number of nodes that are still to be read after the start.
PROGRESS_S = 10.0
#: A cell is opened again, with further connections, when a read of it has taken so long: its connection may have been
#: lost unnoticed.  The time doubles with each attempt, because each leaves a thread that hangs, until all that hung is
#: read: the lock of a table does not keep the other ones from being read.
OPENED_AGAIN_AFTER_S, OPENED_AGAIN_MOST_S = AGAIN_AFTER_S, AGAIN_MOST_S
#: Time for which a question waits for a database.  Others wait for the thread, and its request waits longer.
QUESTION_READ_WITHIN_S = 10.0
#: The maximum rate at which the audit reads nodes, for any number of nodes without an agent.
AUDIT_READS_PER_S = 20.0


class StateSync:
    """The ``Reader`` of the engine."""

    def __init__(
        self,
        api: ApiDatabase,
        open_cell: Callable[[Cell], CellDatabase],
        client: PlacementClient,
        submit: Callable[[Event], None],
        agent_speaks_for: Callable[[str], bool],
        *,
        sources: Sequence[Source] = SOURCES,
        question_threads: int = registry.LANES[registry.QUESTIONS],
        nodes_max: int,
        sweep: Callable[[], Iterator[NodeContradicted]],
        log_new: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
        grace_s: float = GRACE_S,
        has_unlisted: Callable[[], bool] = lambda: False,
    ) -> None:
        """``nodes_max``: the maximum number of nodes that counts as few.  ``sweep``: deletes orphaned allocations.
        ``log_new``: logs the counters of the core.  ``has_unlisted``: see ``CellReads``.
        """
        self._api = api
        self._open_cell = open_cell
        self._submit = submit
        self._agent_speaks_for = agent_speaks_for
        self._has_unlisted = has_unlisted
        self._clock = clock
        self._rng = rng or Random()
        self._grace_s = grace_s
        mirror = PlacementMirror(client)
        self._bootstrap = Bootstrap(api, open_cell, mirror, submit, clock)
        self._log_new = log_new
        self._loaded = Loaded(())
        self._cells: tuple[Cell, ...] = ()
        self._using = threading.Lock()  # only one thread changes which cells are polled
        self._again_after_s: dict[str, float] = {}  # cell -> when it is opened again, if not at first
        self._hung: dict[str, frozenset[str]] = {}  # cell -> the sources that were not read when it was opened again
        self._audit_due_s = float("-inf")
        self._filling = False
        self.fleet = KnownNodes(nodes_max, clock, has_unlisted)
        self.revalidator = Revalidator(
            submit, clock, self._rng, sources=sources, threads={registry.QUESTIONS: question_threads}
        )
        self.decision_reads = DecisionReads(self.revalidator, self.fleet, clock)
        self._node_reads = NodeReads(mirror, lambda: self.fleet.cells, agent_speaks_for, self.revalidator.is_away)
        self._bounded_reads = BoundedReads(QUESTION_READ_WITHIN_S, clock)
        self.image_reads = ImageReads(
            api, self._polled, open_cell, BoundedReads(QUESTION_READ_WITHIN_S, clock), clock
        )  # fmt: skip
        self._questions = QuestionReads(client, self.revalidator, submit, self._members_of, self._hosts_of)
        self.revalidator.provide(self._reads(PlacementReads(mirror, self.fleet), sweep))

    def _reads(self, placement: PlacementReads, sweep: Callable[[], Iterator[NodeContradicted]]) -> dict[str, Read]:
        """Source -> its read."""
        return {
            registry.SERVICES: self._of_cell(lambda cell: cell.services()),
            registry.SELECTED: self._of_cell(lambda cell: cell.selected_services()),
            registry.BUILDS: self._of_cell(lambda cell: cell.builds()),
            registry.NODE_LIST: lambda key, began_s: self._of_cell(lambda cell: cell.node_list(began_s))(key, began_s),
            registry.PROVIDERS: lambda *_: placement.providers(),
            registry.RECORDS: self._of_cell(lambda cell: cell.records()),
            registry.NODE: self._node_reads.node,
            registry.REPORTED: self._of_cell(lambda cell: cell.reported()),
            registry.ALL_SERVICES: self._of_cell(lambda cell: cell.all_services()),
            registry.AUDIT: self._audit,
            registry.SHARING: lambda *_: placement.sharing(),
            registry.AGGREGATES: self._aggregates,
            registry.ORPHANED: lambda *_: sweep(),
            registry.START: self._start,
            registry.CELLS: self._read_cells,
            registry.FILL: self._fill,
            registry.COUNTERS: self._counters,
        }  # fmt: skip

    # -- life cycle

    def start(self) -> None:
        """Begin to read; ``load`` adds the cells."""
        self.revalidator.start()

    def load(self) -> tuple[Cell, ...]:
        """The start-up: returns all cells when hosts can be selected from the table.

        :raises DatabaseError: when the API database, or every cell, cannot be read
        """
        self.revalidator.read(registry.START)
        nodes: dict[str, set[str]] = {}
        for node, cell in self._loaded.nodes.items():
            nodes.setdefault(cell, set()).add(node)
        for uuid, database in self._loaded.databases.items():
            known = frozenset(nodes.get(uuid, ()))
            self._begin(CellReads(database, self._agent_speaks_for, known, self._has_unlisted))
        grace_s = self._grace_s + len(self._loaded.nodes) * GRACE_PER_NODE_S
        self.revalidator.request(ReadRequest(registry.FILL, (), grace_s))
        return self._loaded.cells

    def cells(self) -> tuple[Cell, ...]:
        """Read the cells again.

        :raises DatabaseError: when the API database cannot be read
        """
        self.revalidator.read(registry.CELLS)
        return self._cells

    def use(self, cells: tuple[Cell, ...]) -> None:
        """Begin to poll cells that are new or have moved, stop polling those that were removed or disabled."""
        with self._using:
            self._use(cells)

    def _use(self, cells: tuple[Cell, ...]) -> None:
        wanted = {cell.uuid: cell for cell in cells if cell.schedulable}
        before = dict(self.fleet.cells)
        for uuid, known in before.items():
            if uuid not in wanted or wanted[uuid].database_url != known.database.cell.database_url:
                self._end(known)
        for uuid in wanted.keys() - self.fleet.cells.keys():
            nodes = before[uuid].nodes if uuid in before else frozenset()  # its database has moved
            database = self._open_cell(wanted[uuid])
            self._begin(CellReads(database, self._agent_speaks_for, nodes, self._has_unlisted))

    def databases(self) -> list[CellDatabase]:
        """The databases of all cells that are polled."""
        return [cell.database for cell in self.fleet.cells.values()]

    def submit(self, effect: RefreshNode | ReadBuild | Question) -> None:
        """Request the read of one node or one build, or the answer to a question; never blocks."""
        match effect:
            case RefreshNode():
                self._refresh(effect)
            case ReadBuild(cell, server, age_s):
                if (known := self.fleet.cells.get(cell)) is not None:
                    known.want_build(server, age_s)
                    self.revalidator.request(ReadRequest(registry.BUILDS, (cell,)))
            case _:
                self._questions.submit(effect)

    def _refresh(self, wanted: RefreshNode) -> None:
        """Request the read of a node; no request waits for it while the database of its cell does not answer."""
        self.revalidator.request(ReadRequest(registry.NODE, (wanted.cell, wanted.node), wanted.in_s))
        if wanted.cell and self.revalidator.is_away(wanted.cell):
            self._submit(NodeNotFound(wanted.node, self._clock(), cause=wanted.cause))

    def _members_of(self, question: AskGroup) -> dict[str, str | None]:
        """:raises DatabaseError: when a database cannot be read, or does not answer soon"""
        found = self._bounded_reads.read(self._api, lambda: self._api.members_of(question))
        if question.images and question.label:
            found |= self.image_reads.labelled(question)
        return found

    def _hosts_of(self, cell: str, servers: Collection[str], undecided: bool) -> dict[str, str]:
        """:raises DatabaseError: when the database of the cell cannot be read, or does not answer soon"""
        known = self.fleet.cells.get(cell)
        if known is None:
            raise DatabaseError(f"cell {cell} was removed or disabled")
        return self._bounded_reads.read(known.database, lambda: known.database.hosts_of(servers, undecided))

    def stop_polls(self) -> None:
        """From now on, read only what a request under way waits for."""
        self.revalidator.stop_polls()

    def stop(self) -> None:
        """End all threads, and answer open questions with an error."""
        self.revalidator.stop()
        self._questions.stop()
        for database in self.databases():
            database.close()
        self._api.close()

    def _polled(self, cell: str) -> CellDatabase | None:
        known = self.fleet.cells.get(cell)
        return None if known is None else known.database

    def _begin(self, cell: CellReads) -> None:
        self.fleet.cells = {**self.fleet.cells, cell.cell: cell}
        self.revalidator.add_cell(cell.cell)

    def _end(self, cell: CellReads) -> None:
        self.fleet.cells = {uuid: each for uuid, each in self.fleet.cells.items() if each is not cell}
        self.revalidator.remove_cell(cell.cell)
        cell.database.close()

    def _open_hanging_again(self) -> None:
        """Read the cells whose reads hang on other connections."""
        with self._using:
            for uuid, known in self.fleet.cells.items():
                longest_s, after_s = self.revalidator.longest_read_s(uuid), self._after_s(uuid)
                if longest_s >= after_s:
                    LOG.warning("Cell %s has not answered for %.0f s, so it is opened again",
                                known.database.cell.name or uuid, longest_s)  # fmt: skip
                    self._again_after_s[uuid] = min(2 * after_s, OPENED_AGAIN_MOST_S)
                    self._hung[uuid] = self._hung.get(uuid, frozenset()) | self.revalidator.in_flight(uuid)
                    self._open_again(known)
                elif self.revalidator.have_answered(uuid, self._hung.get(uuid, ())):
                    self._again_after_s.pop(uuid, None)
                    self._hung.pop(uuid, None)

    def _after_s(self, cell: str) -> float:
        return self._again_after_s.get(cell, OPENED_AGAIN_AFTER_S)

    def _open_again(self, known: CellReads) -> None:
        self.revalidator.remove_cell(known.cell, within_s=0.0)
        known.database.abandon()
        self._begin(known.again(self._open_cell(known.database.cell)))

    # -- reads

    def _of_cell(self, read: Callable[[CellReads], Iterator[Event | ReadRequest]]) -> Read:
        def of_cell(key: Key, _: float) -> Iterator[Event | ReadRequest]:
            cell = self.fleet.cells.get(key[0])
            return iter(()) if cell is None else read(cell)

        return of_cell

    def _start(self, *_: object) -> Sequence[Event]:
        self._loaded = self._bootstrap.load()
        return ()

    def _read_cells(self, *_: object) -> Sequence[Event]:
        self._cells = self._api.cells()
        return ()

    def _aggregates(self, *_: object) -> Iterator[AggregatesRead]:
        yield AggregatesRead(self._api.aggregates(), complete=True)

    def _counters(self, *_: object) -> Sequence[Event]:
        self._log_new()
        self._open_hanging_again()
        return ()

    @property
    def _audit_s(self) -> float:
        return self.revalidator.sources[registry.AUDIT].poll_s or 0.0

    def _audit(self, _: Key, began_s: float) -> Iterator[ReadRequest]:
        """Requests every node without an agent, spread over longer than the poll interval if there are many."""
        if began_s < self._audit_due_s:
            return
        silent = self.fleet.silent()
        spread_s = max(self._audit_s, len(silent) / AUDIT_READS_PER_S)
        self._audit_due_s = began_s + spread_s - self._audit_s
        for node, cell in silent.items():
            yield ReadRequest(registry.NODE, (cell, node), self._rng.uniform(0, spread_s))

    def _fill(self, *_: object) -> Iterator[ReadRequest]:
        """Requests every node without an agent once, then logs the progress until all have been read."""
        if not self._filling:
            yield from self._fill_once()
        waiting = self.revalidator.due(registry.NODE)
        if self._filling and waiting:
            LOG.info("%d compute nodes are still to be read", waiting)
            yield ReadRequest(registry.FILL, (), PROGRESS_S)

    def _fill_once(self) -> Iterator[ReadRequest]:
        self._filling = True
        count, silent = len(self._loaded.nodes), self.fleet.silent()
        if not count:
            LOG.info("the databases had no compute nodes at the start")
            return
        if not silent:
            LOG.info("all %d compute nodes have an agent that reports", count)
            return
        LOG.info("reading %d of %d compute nodes from Placement, because no agent reports for them", len(silent), count)
        for node, cell in silent.items():
            yield ReadRequest(registry.NODE, (cell, node))
