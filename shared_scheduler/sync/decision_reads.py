# SPDX-License-Identifier: Apache-2.0
"""What a decision, and the answer "no valid host", wait for: the columns of the registry (``sync.sources``).

An administrator who disables a compute or forces it down writes to a database, and no message tells of it.  The query
for such services finds a handful of rows, so each decision waits for one, which requests that come together share.
Hosts without an agent are polled, so what is known of them is some seconds old; while they are few, a decision waits
for reads of them too: two queries a cell and one call of Placement, less than stock nova-scheduler makes for each
request.  Before "no valid host" is returned every cloud waits for the list of nodes: a compute may be new.

An agent reads its providers every ten minutes unless its nova-compute changes them, so what others write to Placement
may be that old.  In a small cloud such a tree is seen to have changed, and its agent is asked to read it.  In a larger
one only hosts without an agent are read, because each allocation changes a tree.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.sync.fleet import Fleet
from shared_scheduler.sync.flight import Place
from shared_scheduler.sync.revalidator import Revalidator
from shared_scheduler.sync.sources import Keys, Source, Waits

Outcome = TypeVar("Outcome")

#: Refusals that wait for reads of their own, at once; then one a second.  Any other shares a read of the last second.
REFUSALS_BURST = 10
REFUSALS_PER_S = 1.0
SHARED_S = 1.0


class DecisionReads:
    """May be called from any thread; blocks."""

    def __init__(self, revalidator: Revalidator, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._revalidator = revalidator
        self._fleet = fleet
        self._clock = clock
        sources = revalidator.sources.values()
        self._before_decision = [source for source in sources if source.decision is not Waits.NEVER]
        self._before_no = [source for source in sources if source.refusal is not Waits.NEVER]
        self._own_reads = TokenBucket(REFUSALS_PER_S, REFUSALS_BURST)
        self._lock = threading.Lock()

    def deciding(
        self, decide: Callable[[float], Outcome], is_no: Callable[[Outcome], bool], timeout_s: float
    ) -> Outcome:
        """Revalidate, decide, and before "no" revalidate again; decide again if that changed anything.

        ``decide`` takes the seconds it has: ``timeout_s``, and the second time what is left of them.
        """
        self.before_decision()
        known, until_s = self._revalidator.news, self._clock() + timeout_s
        outcome = decide(timeout_s)
        if is_no(outcome):
            self.before_no()
            left_s = until_s - self._clock()
            if self._revalidator.news != known and left_s > 0:
                return decide(left_s)
        return outcome

    def before_decision(self) -> None:
        """Wait for what the registry says that a decision waits for."""
        requested: set[Place] = set()
        for source in self._before_decision:
            if source.decision.holds(self._fleet):
                requested |= self._revalidator.wait_for(self._places(source), source.max_age_s)
        self._revalidator.wait_for_requested(requested)

    def before_no(self) -> None:
        """Wait for what a refusal waits for; a read that began before the refusal is not good for it, except in a storm
        of refusals."""
        with self._lock:
            max_age_s = 0.0 if self._own_reads.take(self._clock()) else SHARED_S
        requested: set[Place] = set()
        for source in self._before_no:
            if source.refusal.holds(self._fleet):
                requested |= self._revalidator.wait_for(self._places(source), max_age_s)
        self._revalidator.wait_for_requested(requested)

    def _places(self, source: Source) -> list[Place]:
        keys = [(uuid,) for uuid in self._fleet.cells] if source.key is Keys.CELL else [()]
        return [(source.name, key) for key in keys]
