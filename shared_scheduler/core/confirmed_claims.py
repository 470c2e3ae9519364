# SPDX-License-Identifier: Apache-2.0
"""Confirmed claims whose node is not known to report them yet.

A confirmed claim stays in the overlay of its row until the base shows it (``table/assumed_claims.py``).  That takes
milliseconds if the node has an agent.  If it takes long, a timer triggers a read, and only evidence
ends the claim:

=======  ===================================  =======  ======================================
state    event                                next     action
=======  ===================================  =======  ======================================
(none)   confirmed                            WATCHED  set the timer
WATCHED  timer, an agent has shown it         (gone)
WATCHED  timer, the databases show it         WATCHED  set the timer again
WATCHED  timer, the databases show it, for    (gone)   forget: no snapshot is older than that
         the third time in a row
WATCHED  timer, only the overlay has it       WATCHED  AskConsumer; set the timer again
WATCHED  Placement does not have it there     (gone)   forget
WATCHED  Placement has it, or did not answer  WATCHED
=======  ===================================  =======  ======================================
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.core.effects import AskConsumer
from shared_scheduler.core.events import ConsumerAnswered
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.table.host_table import HostTable

#: a claim is forgotten if the databases show it at so many of its timers in a row
SHOWN_TIMERS = 3


@dataclass(slots=True)
class _Watched:
    """A confirmed claim; ``shown``: at how many timers in a row the databases have shown it."""

    consumer: str
    allocations: Allocations
    cause: str
    shown: int = 0


class ConfirmedClaims:
    """The claims that are watched."""

    def __init__(self, settings: SchedulerSettings, table: HostTable, timers: Timers) -> None:
        self._settings = settings
        self._table = table
        self._timers = timers
        self._watched: dict[str, _Watched] = {}  # by claim id
        #: consumer -> ids of its claims
        self._of_consumer: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def __contains__(self, claim_id: object) -> bool:
        return claim_id in self._watched

    def begin(self, step: Step, claim_id: str, consumer: str, allocations: Allocations, cause: str) -> None:
        """Watch a claim that was confirmed."""
        self._watched[claim_id] = _Watched(consumer, allocations, cause)
        self._of_consumer.setdefault(consumer, set()).add(claim_id)
        self._set_timer(step, claim_id)

    def _set_timer(self, step: Step, claim_id: str) -> None:
        self._timers.set(("unreported", claim_id), step.now + self._settings.unreported_after_s)

    def on_timer(self, step: Step, claim_id: str) -> None:
        """Read the consumer from Placement if the claim is still only in the overlay."""
        watched = self._watched[claim_id]
        watched.shown = watched.shown + 1 if self._table.is_shown(claim_id) else 0
        if not self._table.is_outstanding(claim_id) or watched.shown >= SHOWN_TIMERS:
            self._end(claim_id)
            return
        if not watched.shown:
            step.emit(AskConsumer(watched.consumer, cause=watched.cause))
        self._set_timer(step, claim_id)

    def on_consumer(self, event: ConsumerAnswered) -> None:
        """Handle the allocations of a consumer that was read from Placement."""
        if event.error:
            return
        for claim_id in sorted(self._of_consumer.get(event.consumer, ())):
            if not event.allocations.keys() & self._watched[claim_id].allocations.keys():
                self._timers.cancel(("unreported", claim_id))
                self._end(claim_id)

    def _end(self, claim_id: str) -> None:
        self._table.forget(claim_id)
        consumer = self._watched.pop(claim_id).consumer
        claims = self._of_consumer[consumer]
        claims.discard(claim_id)
        if not claims:
            del self._of_consumer[consumer]
