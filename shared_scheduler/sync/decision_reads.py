# SPDX-License-Identifier: Apache-2.0
"""The reads that a decision, and the answer "no valid host", wait for: the columns of ``sync.read_registry``.

An administrator who disables a compute or forces it down changes a database, and no message announces it.  The query
for such services examines all services of a cell, so only requests for which nothing is written wait for it.  For the
others the service of the selected host is read by an index when the allocation is about to be written
(``sync.service_checks``).

Hosts without an agent are polled, so their rows are some seconds old; while there are few of them, a decision waits for
reads of them: three queries for each cell and one call of Placement, which is less than nova-scheduler reads for each
request.  Before "no valid host" is returned, a scheduler of any cloud waits for the list of nodes, because a compute
may be new.

An agent reads its providers every twenty minutes unless its nova-compute changes them, so changes of other writers in
Placement may be noticed that late.  No decision waits for that, because each allocation changes a tree, so most trees
that change were changed by the scheduler itself.  Placement judges amounts when they are written; the core asks it
about the selected host of a request that names traits or aggregates, and before a refusal which hosts fit
(``core.recheck``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from shared_scheduler.sync.fleet import KnownNodes
from shared_scheduler.sync.flight import Place
from shared_scheduler.sync.read_registry import ReadKey, Source, Waits
from shared_scheduler.sync.refusal_ages import RefusalAges
from shared_scheduler.sync.revalidator import Revalidator

Outcome = TypeVar("Outcome")


class DecisionReads:
    """Its methods may be called from any thread, and block."""

    def __init__(self, revalidator: Revalidator, fleet: KnownNodes, clock: Callable[[], float]) -> None:
        self._revalidator = revalidator
        self._fleet = fleet
        self._clock = clock
        sources = revalidator.sources.values()
        self._before_decision = [source for source in sources if source.decision is not Waits.NEVER]
        self._before_no = [source for source in sources if source.refusal is not Waits.NEVER]
        self._refusal_ages = RefusalAges()
        self._lock = threading.Lock()

    def deciding(
        self, decide: Callable[[float], Outcome], is_no: Callable[[Outcome], bool], timeout_s: float, writes: bool
    ) -> Outcome:
        """Revalidate and decide; before a refusal, revalidate again, and decide again if that changed anything.

        ``decide`` gets the seconds that it may take: what is left of ``timeout_s``, which counts from now.
        """
        until_s = self._clock() + timeout_s
        self.before_decision(writes)
        known = self._revalidator.news
        outcome = decide(max(0.0, until_s - self._clock()))
        if is_no(outcome):
            self.before_no()
            left_s = until_s - self._clock()
            if self._revalidator.news != known and left_s > 0:
                return decide(left_s)
        return outcome

    def before_decision(self, writes: bool) -> None:
        """Wait for the reads that the registry requires for a decision."""
        requested: set[Place] = set()
        for source in self._before_decision:
            if source.decision.holds(self._fleet, writes):
                requested |= self._revalidator.wait_for(self._places(source), source.max_age_s)
        self._revalidator.wait_for_requested(requested)

    def before_no(self) -> None:
        """Wait for the reads that a refusal requires.  They begin after the refusal, except if there are many
        refusals."""
        with self._lock:
            max_age_s = self._refusal_ages.max_age_s(self._clock())
        requested: set[Place] = set()
        for source in self._before_no:
            if source.refusal.holds(self._fleet, writes=False):
                requested |= self._revalidator.wait_for(self._places(source), max_age_s)
        self._revalidator.wait_for_requested(requested)

    def _places(self, source: Source) -> list[Place]:
        keys = [(uuid,) for uuid in self._fleet.cells] if source.key is ReadKey.CELL else [()]
        return [(source.name, key) for key in keys]
