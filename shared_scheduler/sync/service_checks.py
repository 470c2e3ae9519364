# SPDX-License-Identifier: Apache-2.0
"""Reads the nova-compute service of a selected host again before the allocation is written.

An administrator who disables a compute, or forces it down, changes the database of its cell, and the scheduler learns
of it by its next poll.  A server that is requested after the change must not be placed there.  Therefore each write
waits for a read of the service by its index, which began after the decision.  Writes that arrive meanwhile share the
next read.  If the service no longer accepts servers, nothing is written, and the core tries the next host.

If the database of a cell does not answer in time, writes continue with the result of its last poll, as every decision
does then.  Each cell is read in a thread of its own, because a query that hangs may not return for hours; no further
read of this cell is begun until it does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from shared_scheduler.core.effects import DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.core.write_pace import MAX_WAITING
from shared_scheduler.core.write_queue import Work, Writer, not_carried_out
from shared_scheduler.sync.cell_reads import CellReads
from shared_scheduler.sync.fleet import Fleet
from shared_scheduler.sync.revalidator import Revalidator
from shared_scheduler.sync.sources import SELECTED

LOG = logging.getLogger(__name__)

#: Time for which writes wait for the read of their cell.
MAX_WAIT_S = 3.0
#: Time for which ``stop`` waits for the thread.
JOIN_S = 12.0

class ServiceChecks:
    """Stands before the writer.  One thread passes all effects on, in the order of their arrival."""

    def __init__(
        self,
        writer: Writer,
        fleet: Fleet,
        revalidator: Revalidator,
        answer: Callable[[AllocationWritten | AllocationDeleted], None],
    ) -> None:
        self._writer = writer
        self._fleet = fleet
        self._revalidator = revalidator
        self._answer = answer
        self._waiting: deque[Work] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._reading: set[str] = set()  # cells whose read is under way
        self._thread = threading.Thread(target=self._work, name="service-checks", daemon=True)

    def start(self) -> None:
        """Start the writer and the thread."""
        self._writer.start()
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Queue an effect; never blocks.  A write beyond the bound fails at once; a delete, of which each claim has at
        most one, does not.
        """
        with self._changed:
            late = self._stopping
            full = len(self._waiting) >= MAX_WAITING and isinstance(work, WriteAllocation)
            if not late and not full:
                self._waiting.append(work)
                self._changed.notify()
        if late:
            self._writer.submit(work)  # which answers that the scheduler stops
        elif full:
            text = "too many writes wait for the reads of services"
            self._answer(not_carried_out(work, WriteCode.NEVER_SENT, text))

    def stop(self) -> None:
        """Pass on what waits, then stop the writer."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
        self._writer.stop()

    def _work(self) -> None:
        while works := self._take():
            try:
                self._pass_on(works)
            except Exception:  # a bug must not end the thread; the core ends writes without an answer
                LOG.exception("%d writes were not passed on", len(works))

    def _take(self) -> Sequence[Work]:
        """All effects that wait; empty at the end."""
        with self._changed:
            while not self._waiting and not self._stopping:
                self._changed.wait()
            works, self._waiting = tuple(self._waiting), deque()
        return works

    def _pass_on(self, works: Sequence[Work]) -> None:
        self._read(_hosts_of(works))
        for work in works:
            if isinstance(work, DeleteAllocation) or self._accepts_servers(work):
                self._writer.submit(work)
            else:
                text = f"the nova-compute service of {work.service_host} was disabled, forced down or lost"
                self._answer(not_carried_out(work, WriteCode.HOST_CHANGED, text))

    def _read(self, hosts: Mapping[str, set[str]]) -> None:
        """Read the services of these hosts of each cell; cells are read in parallel."""
        until_s = time.monotonic() + MAX_WAIT_S
        cells = [cell for uuid in hosts if (cell := self._fleet.cells.get(uuid)) is not None]
        begun = [self._begin(cell, hosts[cell.cell]) for cell in cells if cell.cell not in self._reading]
        for done in begun:
            done.wait(max(0.0, until_s - time.monotonic()))

    def _begin(self, cell: CellReads, hosts: set[str]) -> threading.Event:
        done = threading.Event()
        self._reading.add(cell.cell)
        name = f"service-checks-{cell.cell}"
        threading.Thread(target=self._read_cell, args=(cell, hosts, done), name=name, daemon=True).start()
        return done

    def _read_cell(self, cell: CellReads, hosts: set[str], done: threading.Event) -> None:
        try:
            cell.select(hosts)
            self._revalidator.wait_for([(SELECTED, (cell.cell,))], 0.0)
        except Exception:  # a bug must not keep the cell from being read again
            LOG.exception("the services of selected hosts of cell %s were not read", cell.cell)
        finally:
            self._reading.discard(cell.cell)
            done.set()

    def _accepts_servers(self, work: WriteAllocation) -> bool:
        cell = self._fleet.cells.get(work.cell)
        return not work.service_host or cell is None or cell.accepts_servers(work.service_host)


def _hosts_of(works: Sequence[Work]) -> Mapping[str, set[str]]:
    """The hosts whose services must accept servers, by cell."""
    hosts: dict[str, set[str]] = {}
    for work in works:
        if isinstance(work, WriteAllocation) and work.service_host:
            hosts.setdefault(work.cell, set()).add(work.service_host)
    return hosts
