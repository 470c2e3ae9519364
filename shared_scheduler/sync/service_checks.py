# SPDX-License-Identifier: Apache-2.0
"""Reads the nova-compute service of a selected host again before the allocation is written.

An administrator who disables a compute, or forces it down, changes the database of its cell, and the scheduler learns
of it by its next poll.  A server that is requested after the change must not be placed there.  Therefore each write
waits for a read of the service by its index, which began after the decision.  It begins when the claim is cast, so it
has usually ended before the agent's verdict arrives.  Checks that arrive meanwhile share the next read.  If the service
no longer accepts servers, nothing is written, and the core tries the next host.

If the database of a cell does not answer in time, writes continue with the result of its last poll, as every decision
does then.  Each cell is read in a thread of its own, because a query that hangs may not return for hours; no further
read of this cell is begun until it does, or the cell has been opened again and has another thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cachetools import FIFOCache

from shared_scheduler.core.effects import DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.core.write_pace import MAX_WAITING
from shared_scheduler.core.write_queue import INTERNAL_ERROR, Work, Writer, not_carried_out
from shared_scheduler.sync.cell_reads import CellReads
from shared_scheduler.sync.fleet import KnownNodes
from shared_scheduler.sync.read_registry import SELECTED
from shared_scheduler.sync.revalidator import Revalidator
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

#: Time for which writes wait for the read of their cell.
MAX_WAIT_S = 3.0
#: Time for which ``stop`` waits for the thread.
JOIN_S = 12.0
#: Claims whose check is remembered until their write comes; the oldest one, which has usually ended without a write, is
#: forgotten first, and would be checked again.
EXPECTED_MAX = 4 * MAX_WAITING


@dataclass(slots=True)
class Check:
    """The check of one host; ``done``: its service was read by a read that began after the decision, or cannot be."""

    host: str
    done: threading.Event = field(default_factory=threading.Event)


class CellChecks:
    """The checks of one cell, until it is opened again, and the thread that reads its database for them."""

    def __init__(self, reads: CellReads, revalidator: Revalidator) -> None:
        self.reads = reads
        self._revalidator = revalidator
        self._wanted: list[Check] = []
        self._changed = threading.Condition()
        self._began_s: float | None = None  # of the read under way
        self._stopping = False
        threading.Thread(target=self._work, name=f"service-checks-{reads.cell}", daemon=True).start()

    def begin(self, host: str) -> Check:
        """Begin to check a host; never blocks.  A database that hangs is not asked: the check is done."""
        check = Check(host)
        with self._changed:
            if self._hangs():
                check.done.set()
            else:
                self._wanted.append(check)
                self._changed.notify()
        return check

    def _hangs(self) -> bool:
        return self._began_s is not None and time.monotonic() - self._began_s > MAX_WAIT_S

    def stop(self) -> None:
        """End the thread after the read under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _work(self) -> None:
        while checks := self._take():
            try:
                self.reads.select({check.host for check in checks})
                self._revalidator.wait_for([(SELECTED, (self.reads.cell,))], 0.0, bounded=False)
            except Exception:  # a bug must not keep the cell from being read again
                LOG.exception("the services of selected hosts of cell %s were not read", self.reads.cell)
            for check in checks:
                check.done.set()

    def _take(self) -> Sequence[Check]:
        """All checks that wait, whose read begins now; empty at the end."""
        with self._changed:
            self._began_s = None
            while not self._wanted and not self._stopping:
                self._changed.wait()
            checks, self._wanted = self._wanted, []
            self._began_s = time.monotonic()
        return checks


class ServiceChecks:
    """Stands before the writer.  All effects are passed on in the order of their arrival: by one thread, or at once if
    nothing has to be waited for."""

    def __init__(
        self,
        writer: Writer,
        fleet: KnownNodes,
        revalidator: Revalidator,
        answer: Callable[[AllocationWritten | AllocationDeleted], None],
    ) -> None:
        self._writer = writer
        self._fleet = fleet
        self._revalidator = revalidator
        self._answer = answer
        self._waiting: deque[Work] = deque()
        self._changed = threading.Condition()
        self._passing_on = False  # the thread has taken what waited
        self._stopping = False
        self._cells: dict[str, CellChecks] = {}
        self._expected: FIFOCache[str, Check] = FIFOCache(EXPECTED_MAX)  # by claim
        self._log = RateLimitedLog(LOG)
        self._thread = threading.Thread(target=self._work, name="service-checks", daemon=True)

    def start(self) -> None:
        """Start the writer and the thread."""
        self._writer.start()
        self._thread.start()

    def expect(self, claim_id: str, cell: str, host: str) -> None:
        """Begin to check the host of a claim that is cast, unless it was cast before; never blocks."""
        with self._changed:
            if claim_id not in self._expected:
                self._expected[claim_id] = self._begin(cell, host)

    def checked(self, claim_id: str, within_s: float) -> bool:
        """Whether the check of an expected claim ends within this time."""
        return self._expected[claim_id].done.wait(within_s)

    def _begin(self, cell: str, host: str) -> Check:
        checks = self._checks_of(cell)
        if checks is not None:
            return checks.begin(host)
        check = Check(host)
        check.done.set()
        return check

    def _checks_of(self, cell: str) -> CellChecks | None:
        """None: the cell was removed or disabled, or its thread cannot be started; the next check tries again."""
        reads, checks = self._fleet.cells.get(cell), self._cells.get(cell)
        if reads is None:
            return None
        if checks is not None:
            if checks.reads is reads:
                return checks
            checks.stop()
        try:
            self._cells[cell] = CellChecks(reads, self._revalidator)
        except RuntimeError as error:  # "can't start new thread"
            text = "%s: services of selected hosts are not read again before writes: %s"
            self._log.write(logging.WARNING, cell, text, reads.database.cell.name or cell, error)
            return None
        return self._cells[cell]

    def submit(self, work: Work) -> None:
        """Queue an effect; never blocks.  A write beyond the bound fails at once; a delete, of which each claim has at
        most one, does not.
        """
        with self._changed:
            late = self._stopping
            full = len(self._waiting) >= MAX_WAITING and isinstance(work, WriteAllocation)
            at_once = not late and self._is_next(work)
            if not (late or full or at_once):
                self._waiting.append(work)
                self._changed.notify()
        if at_once:
            self._pass_on((work,))
        elif late:
            self._writer.submit(work)  # which answers that the scheduler stops
        elif full:
            text = "too many writes wait for the reads of services"
            self._answer(not_carried_out(work, WriteCode.NEVER_SENT, text))

    def _is_next(self, work: Work) -> bool:
        """Whether nothing has to be waited for: no effect before it, and no check."""
        if self._waiting or self._passing_on:
            return False
        if isinstance(work, DeleteAllocation) or not work.service_host:
            return True
        check = self._expected.get(work.claim_id)
        return check is not None and check.done.is_set()

    def stop(self) -> None:
        """Pass on what waits, then stop the writer."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
        for cell in list(self._cells.values()):
            cell.stop()
        self._writer.stop()

    def _work(self) -> None:
        while works := self._take():
            try:
                self._pass_on(works)
            except Exception:  # a bug must not end the thread; the core ends or repeats what is not answered
                LOG.exception("%d writes were not passed on", len(works))

    def _take(self) -> Sequence[Work]:
        """All effects that wait; empty at the end."""
        with self._changed:
            self._passing_on = False
            while not self._waiting and not self._stopping:
                self._changed.wait()
            works, self._waiting = tuple(self._waiting), deque()
            self._passing_on = bool(works)
        return works

    def _pass_on(self, works: Sequence[Work]) -> None:
        self._wait_for(works)
        for work in works:
            try:
                self._pass_one_on(work)
            except Exception:  # a bug must not lose it, and those behind it
                LOG.exception("%s: an allocation was neither written nor deleted", work.request_id)
                self._answer(not_carried_out(work, WriteCode.UNREACHABLE, INTERNAL_ERROR))

    def _pass_one_on(self, work: Work) -> None:
        if isinstance(work, DeleteAllocation) or self._accepts_servers(work):
            self._writer.submit(work)
        else:
            text = f"the nova-compute service of {work.service_host} was disabled, forced down or lost"
            self._answer(not_carried_out(work, WriteCode.HOST_CHANGED, text))

    def _wait_for(self, works: Sequence[Work]) -> None:
        """Wait for the checks of these writes; those of different cells, and those that share a read, end together."""
        until_s = time.monotonic() + MAX_WAIT_S
        writes = [work for work in works if isinstance(work, WriteAllocation) and work.service_host]
        with self._changed:
            checks = [self._check_of(work) for work in writes]
        for check in checks:
            check.done.wait(max(0.0, until_s - time.monotonic()))

    def _check_of(self, work: WriteAllocation) -> Check:
        """The check that began with the claim, or a new one: a node without an agent gets no claim."""
        if work.claim_id in self._expected:
            return self._expected.pop(work.claim_id)
        return self._begin(work.cell, work.service_host)

    def _accepts_servers(self, work: WriteAllocation) -> bool:
        cell = self._fleet.cells.get(work.cell)
        return not work.service_host or cell is None or cell.accepts_servers(work.service_host)
