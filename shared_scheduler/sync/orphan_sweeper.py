# SPDX-License-Identifier: Apache-2.0
"""Deletes the allocations of servers that no service will build any more.

A scheduler that stops between Placement's answer and its own answer leaves an allocation that no service knows.  The
nova-conductor waits until its RPC timeout.  It moves a new server to cell 0 in state ERROR, and leaves a server that
was to be unshelved shelved.  A server in cell 0 never gets a host, and a shelved server with an allocation cannot be
unshelved; with nova-scheduler they keep the allocation.  A write that was answered after the conductor's timeout has
the same effect.

Therefore servers in cell 0, and shelved servers that changed recently and have no task, are looked up in Placement.
Each is checked twice: when it is listed first, and later, for a write that was still under way at the first check.  A
check whose delete failed does not count: it is repeated as long as the server is listed.  One that fails is a try, so
the other servers come before it.  A shelved server is read again after Placement was read: if an unshelve started
before, it keeps the allocation; a later change has another generation, with which the delete is refused.  A member of
a database cluster may show changes late.  So an allocation is deleted only if it stood unchanged for longer than that.

A delete without an answer may be carried out later: that of another sweep, or of the scheduler that handled the failed
request.  If the same allocation had been deleted meanwhile, it would delete that of the next unshelve, whose record has
the same generation (``placement/late_writes.py``).  So the schedulers take turns with a shelved server, and each turn
begins with a wait, until nothing arrives any more.  They all count the turns from the last change of the server, so one
that was started again continues.  The uuid of the server says whose turn is the first.  A scheduler does
not delete either while a write of its own for the server may still be carried out.  Servers in cell 0 are never placed
again, so all schedulers check them at once.

Each round checks a bounded number of servers (``orphan_search.py``), and fewer if Placement is slow.  The scheduler's
own share precedes what it would have if one other scheduler had gone, and so on, so several others take the place of
one that is live and does not check.  In each of these, first checks and repeated ones alternate, older servers precede
newer ones, and the sources alternate.  So second checks are made in the longest storm of failed builds if the
schedulers together are fast enough for two checks of each server, and some are made in any storm.  If builds fail
faster than one scheduler can check them, all schedulers share the work; a scheduler with a wrong list of live
schedulers checks more than its share, never less.  With shelved servers it would take the turns of others, so those
that were live within the last hour keep their turns, with the same name after a new start, and one that starts listens
first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count, takewhile

from shared_scheduler.core.events import NodeContradicted
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import Meaning
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.late_writes import MAY_ARRIVE
from shared_scheduler.placement.reconciler import Restore, put_back
from shared_scheduler.sync.bounded_reads import BoundedReads
from shared_scheduler.sync.databases import ApiDatabase, CellDatabase, DatabaseError
from shared_scheduler.sync.orphan_search import (
    AGAIN_S,
    LISTED_MAX,
    SWEEP_BACK,
    SWEEP_MAX_S,
    Checked,
    OrphanSearch,
    Share,
    Suspect,
    Turns,
    turns_of,
)
from shared_scheduler.transport.bus import lasting_name

LOG = logging.getLogger(__name__)

#: Time for which a scheduler listens before it takes a turn: others say every few seconds that they are there.
LISTEN_S = 60.0
#: Time for which a sweep waits for each database.
READ_WITHIN_S = 10.0

_Suspect = Suspect[CellDatabase]


class LastingTurns:
    """The turns of a scheduler among all that were live within the last hour.

    While the message queue is away, each scheduler hears of no other one, and would take every turn.  So would one that
    has just started.
    """

    def __init__(self, live: Callable[[], tuple[str, Sequence[str]]], clock: Callable[[], float]) -> None:
        """``live``: the address of this scheduler, and those of all live ones."""
        self._live = live
        self._clock = clock
        self._heard_s: dict[str, float] = {}
        self._own = ""
        self._since_s = 0.0

    def turns(self) -> Turns | None:
        """The turns now; None while it is too early to know."""
        (own, live), now = self._live(), self._clock()
        self._use_name(lasting_name(own), now)
        heard = self._heard_s | dict.fromkeys(map(lasting_name, live), now)
        self._heard_s = {name: at_s for name, at_s in heard.items() if now - at_s < SWEEP_BACK.total_seconds()}
        return None if now - self._since_s < LISTEN_S else turns_of(self._own, tuple(self._heard_s))

    def _use_name(self, own: str, now: float) -> None:
        """Listen from now on if the name of this scheduler is new: it has another one until its channel is open."""
        if own == self._own:
            return
        self._heard_s.pop(self._own, None)
        self._own, self._since_s = own, now


class OrphanSweeper:
    """One thread calls ``sweep`` periodically."""

    def __init__(
        self,
        api: ApiDatabase,
        cells: Callable[[], Iterable[CellDatabase]],
        client: PlacementClient,
        clock: Callable[[], float],
        share: Callable[[], Share],
        restore: Restore,
        turns: Callable[[], Turns | None],
    ) -> None:
        """``share`` decides whose servers come first; ``turns``, who may check a shelved server (None: others)."""
        self._api = api
        self._cells = cells
        self._client = client
        self._clock = clock
        self._share = share
        self._turns = turns
        self._restore = restore
        self._search: OrphanSearch[CellDatabase] = OrphanSearch()
        self._outage: DatabaseError | None = None
        self._away: set[str] = set()  # cells that the last sweep could not read
        self._reads = BoundedReads(READ_WITHIN_S)

    def sweep(self) -> Iterator[NodeContradicted]:
        """Check the next servers; yields the nodes on which an allocation was deleted.

        :raises DatabaseError: when a database cannot be read; the servers of the others have been checked
        :raises PlacementError: when Placement does not answer
        """
        self._outage, self._away = None, set()
        self._search.list(dict(self._suspects()), self._is_away)
        until_s = self._clock() + SWEEP_MAX_S
        for suspect in takewhile(lambda _: self._clock() < until_s, self._due()):
            yield from self._try(suspect)
        if self._outage is not None:
            raise self._outage

    def _is_away(self, suspect: _Suspect) -> bool:
        return suspect.cell is not None and suspect.cell.cell.uuid in self._away

    def _try(self, suspect: _Suspect) -> Iterator[NodeContradicted]:
        """Check a server; an error must not make it the first one of the next sweep again."""
        checked = self._search.of(suspect)
        checked.begin()
        try:
            checked.times += yield from self._check(suspect, checked)
        except DatabaseError as error:  # its cell is away: the others are checked
            self._outage = error
        finally:
            checked.last_s = self._clock()

    def _due(self) -> Sequence[_Suspect]:
        share, turns = self._share(), self._turns()
        return self._search.due(self._clock(), share, lambda suspect: _has_turn(suspect, turns))

    def _suspects(self) -> Iterator[tuple[_Suspect, int]]:
        """Each suspect with its position in its source, the oldest first, in cell 0 deleted ones last."""
        yield from zip(self._buried(), count(), strict=False)
        for cell in self._cells():
            try:
                found = self._offloaded(cell, LISTED_MAX)
            except DatabaseError as error:
                self._outage = error
                self._away.add(cell.cell.uuid)
                continue
            own = (Suspect(server, changed_at, cell) for server, changed_at in reversed(found))
            yield from zip(own, count(), strict=False)

    def _buried(self) -> Sequence[_Suspect]:
        """The suspects in cell 0; those that are known if the API database cannot be read, or does not answer soon."""
        try:
            found = self._reads.read(self._api, lambda: self._api.buried(SWEEP_BACK, LISTED_MAX))
        except DatabaseError as error:
            self._outage = error
            return self._search.buried()
        return [Suspect(server) for server in found]

    def _offloaded(self, cell: CellDatabase, limit: int, server: str | None = None) -> Sequence[tuple[str, datetime]]:
        """:raises DatabaseError: when the cell cannot be read, or does not answer soon: the others are checked first"""
        return self._reads.read(cell, lambda: cell.offloaded(SWEEP_BACK, limit, server))

    def _is_idle(self, suspect: _Suspect) -> bool:
        """Whether the server still has no task."""
        if suspect.cell is None:
            return True
        return (suspect.server, suspect.changed_at) in self._offloaded(suspect.cell, 1, suspect.server)

    def _check(self, suspect: _Suspect, checked: Checked) -> Generator[NodeContradicted, None, bool]:
        """Whether the check counts.  Providers are read before the delete, so that the agents are told of it."""
        server = suspect.server
        standing = self._client.consumer(server)
        roots = sorted(set(map(self._client.root, standing.allocations)))
        if not standing.allocations:
            yield from _contradicted(checked)
            return True
        if not self._is_idle(suspect):
            return True
        if not _has_turn(suspect, self._turns()):  # Placement, or a check before, took too long
            return False
        if suspect.cell is not None and not checked.stood(standing, self._clock()):
            checked.tries -= 1  # the other servers do not come before it
            return False
        checked.again_s, checked.untold = AGAIN_S, roots
        if not self._let_go(server, standing):
            return False
        LOG.info("Server %s has no host because its request failed: deleted its allocations of %s", server,
                 dict(standing.allocations))  # fmt: skip
        yield from _contradicted(checked)
        return True

    def _let_go(self, server: str, standing: ConsumerAllocations) -> bool:
        """Delete the allocations; False if that failed, must wait, or another writer has changed them since."""
        reply = self._restore(put_back(server, {}, standing))
        if reply is None or reply.meaning is not Meaning.DONE:
            LOG.warning(
                "Server %s has no host because its request failed, but its allocations of %s could not be deleted: %s",
                server, dict(standing.allocations), MAY_ARRIVE if reply is None else reply.describe(),
            )  # fmt: skip
            return False
        return True


def _contradicted(checked: Checked) -> Iterator[NodeContradicted]:
    """The nodes on which the allocations of a server are gone, also if the answer to their delete was lost."""
    roots, checked.untold = checked.untold, ()
    for root in roots:
        yield NodeContradicted(root, "an orphaned allocation was deleted there")


def _has_turn(suspect: _Suspect, turns: Turns | None) -> bool:
    """Whether no other scheduler deletes the allocations of the server now; in cell 0 that does not matter."""
    if suspect.cell is None or suspect.changed_at is None:
        return True
    age_s = (suspect.cell.now() - suspect.changed_at).total_seconds()
    return turns is not None and turns.has_turn(suspect.server, age_s)
