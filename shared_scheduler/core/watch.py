# SPDX-License-Identifier: Apache-2.0
"""Confirmed claims, until their nodes show them.

A confirmed claim stays in the overlay of its row until the base shows it (``state/claims.py``).  That
takes milliseconds where an agent speaks.  Where it takes long, a timer makes somebody look, and only
evidence ends the claim:

========  =====================================  ========  =======================================
state     event                                  next      what is done
========  =====================================  ========  =======================================
(none)    confirmed                              WATCHED   the timer is set
WATCHED   timer, an agent showed it              (gone)
WATCHED   timer, the databases show it           (gone)    forget: no snapshot is as old as that
WATCHED   timer, only the overlay holds it       WATCHED   LookUpConsumer; the timer is set again
WATCHED   Placement knows nothing of it there    (gone)    forget
WATCHED   Placement holds it, or did not answer  WATCHED
========  =====================================  ========  =======================================
"""

from __future__ import annotations

from shared_scheduler.core.effects import LookUpConsumer
from shared_scheduler.core.events import ConsumerAnswered
from shared_scheduler.core.settings import Settings
from shared_scheduler.core.turn import Timers, Turn
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.state.table import HostTable


class Watch:
    """What was confirmed and is not known to be shown yet: claim id -> (consumer, allocations)."""

    def __init__(self, settings: Settings, table: HostTable, timers: Timers) -> None:
        self._settings = settings
        self._table = table
        self._timers = timers
        self._watched: dict[str, tuple[str, Allocations]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def __contains__(self, claim_id: object) -> bool:
        return claim_id in self._watched

    def begin(
        self, turn: Turn, claim_id: str, consumer: str, allocations: Allocations
    ) -> None:
        """It was confirmed."""
        self._watched[claim_id] = (consumer, allocations)
        self._look_later(turn, claim_id)

    def _look_later(self, turn: Turn, claim_id: str) -> None:
        self._timers.set(("look", claim_id), turn.now + self._settings.look_after_s)

    def on_timer(self, turn: Turn, claim_id: str) -> None:
        """Is it still only in our own table?  Then Placement is asked."""
        if not self._table.is_outstanding(claim_id) or self._table.is_shown(claim_id):
            self._table.forget(claim_id)
            del self._watched[claim_id]
            return
        turn.emit(LookUpConsumer(self._watched[claim_id][0]))
        self._look_later(turn, claim_id)

    def on_consumer(self, event: ConsumerAnswered) -> None:
        """Placement says what a consumer holds."""
        if event.error:
            return
        for claim_id, (consumer, allocations) in list(self._watched.items()):
            if consumer == event.consumer and not event.allocations.keys() & allocations.keys():
                self._table.forget(claim_id)
                self._timers.cancel(("look", claim_id))
                del self._watched[claim_id]
