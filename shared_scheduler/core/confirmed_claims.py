# SPDX-License-Identifier: Apache-2.0
"""Confirmed claims, until their nodes show them.

A confirmed claim stays in the overlay of its row until the base shows it (``table/assumed_claims.py``).  That
takes milliseconds where an agent speaks.  Where it takes long, a timer makes somebody look, and only
evidence ends the claim:

=======  ===================================  =======  ======================================
state    event                                next     action
=======  ===================================  =======  ======================================
(none)   confirmed                            WATCHED  set the timer
WATCHED  timer, an agent has shown it         (gone)
WATCHED  timer, the databases show it         (gone)   forget: no snapshot is older than that
WATCHED  timer, only the overlay has it       WATCHED  LookUpConsumer; set the timer again
WATCHED  Placement does not have it there     (gone)   forget
WATCHED  Placement has it, or did not answer  WATCHED
=======  ===================================  =======  ======================================
"""

from __future__ import annotations

from shared_scheduler.core.effects import LookUpConsumer
from shared_scheduler.core.events import ConsumerAnswered
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.table.host_table import HostTable


class ConfirmedClaims:
    """What was confirmed and is not known to be shown yet."""

    def __init__(self, settings: SchedulerSettings, table: HostTable, timers: Timers) -> None:
        self._settings = settings
        self._table = table
        self._timers = timers
        #: claim id -> consumer, allocations, cause id
        self._watched: dict[str, tuple[str, Allocations, str]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def __contains__(self, claim_id: object) -> bool:
        return claim_id in self._watched

    def begin(self, step: Step, claim_id: str, consumer: str, allocations: Allocations, cause: str) -> None:
        """It was confirmed."""
        self._watched[claim_id] = (consumer, allocations, cause)
        self._look_later(step, claim_id)

    def _look_later(self, step: Step, claim_id: str) -> None:
        self._timers.set(("look", claim_id), step.now + self._settings.look_after_s)

    def on_timer(self, step: Step, claim_id: str) -> None:
        """Is it still only in our own table?  Then Placement is asked."""
        if not self._table.is_outstanding(claim_id) or self._table.is_shown(claim_id):
            self._table.forget(claim_id)
            del self._watched[claim_id]
            return
        consumer, _, cause = self._watched[claim_id]
        step.emit(LookUpConsumer(consumer, cause=cause))
        self._look_later(step, claim_id)

    def on_consumer(self, event: ConsumerAnswered) -> None:
        """Placement says what a consumer holds."""
        if event.error:
            return
        for claim_id, (consumer, allocations, _) in list(self._watched.items()):
            if consumer == event.consumer and not event.allocations.keys() & allocations.keys():
                self._table.forget(claim_id)
                self._timers.cancel(("look", claim_id))
                del self._watched[claim_id]
