# SPDX-License-Identifier: Apache-2.0
"""Changes of a consumer that another writer made since the last write of this scheduler.

A scheduler knows the allocations and the generation that each of its writes leaves, and those that the table shows
before an evacuation.  Its next action for the same consumer, or the next report of the node, finds others only if
somebody else has written in between: nova-compute, nova-conductor, neutron, cyborg, an operator, or another scheduler.
Nothing of that is changed; it is counted and recorded, so that an operator can see who else writes.

Placement does not show who has written.  ``core/change_kinds.py`` says what can be told: from the amounts, and from
what Nova's databases say of the server (``change_examiner.py``).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from cachetools import FIFOCache

from shared_scheduler.core.change_kinds import EXPECTED, ChangeKind, kind_by_amounts
from shared_scheduler.core.effects import SeenBy
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations, is_same
from shared_scheduler.protocol.messages import Allocations

LOG = logging.getLogger(__name__)

#: The number of stored changes; the oldest are dropped first.  Those that Nova explains do not displace the others.
MAX_CHANGES, MAX_EXPLAINED = 200, 50
#: Those of one host among them: its agent may tell what it likes.
MAX_OF_HOST = 50
#: The number of consumers of which it is known what this scheduler has left, and of its last calls for each of them,
#: equal ones once.
MAX_LEFT, MAX_CALLS = 4096, 4


@dataclass(frozen=True, slots=True)
class ForeignChange:
    """One change.  ``seen_at_s``: seconds since 1970.  A generation of None: the consumer had no allocations, or
    ``after`` are those of the migration that has taken them over.  ``host``: empty if it is not known."""

    consumer: str
    before: Allocations
    generation_before: int | None
    after: Allocations
    generation_after: int | None
    seen_by: SeenBy
    seen_at_s: float
    kind: ChangeKind
    host: str = ""


class ForeignChanges:
    """The last changes, and how many there were of each kind.  Many threads use it.

    ``record`` keeps a change for longer than this process lives."""

    def __init__(
        self, max_changes: int = MAX_CHANGES, record: Callable[[ForeignChange], None] = lambda change: None
    ) -> None:
        self._lock = threading.Lock()
        self._changes: deque[ForeignChange] = deque(maxlen=max_changes)
        self._explained: deque[ForeignChange] = deque(maxlen=MAX_EXPLAINED)
        self._counts: Counter[ChangeKind] = Counter()
        #: by consumer, what the last calls of this scheduler have left, or may have
        self._left: FIFOCache[str, tuple[ConsumerAllocations, ...]] = FIFOCache(MAX_LEFT)
        self._record = record

    def left(self, consumer: str, own: ConsumerAllocations) -> None:
        """A call of this scheduler has left this, or may do so if it has no answer: nobody else has written it,
        whichever request finds it, and when."""
        with self._lock:
            others = [one for one in self._left.pop(consumer, ()) if one != own]
            self._left[consumer] = (*others, own)[-MAX_CALLS:]

    def _is_own(self, consumer: str, standing: ConsumerAllocations) -> bool:
        with self._lock:
            left = self._left.get(consumer, ())
        return any(is_same(standing, own) for own in left)

    def add(
        self, consumer: str, before: ConsumerAllocations, after: ConsumerAllocations, seen_by: SeenBy, at_s: float
    ) -> None:
        """Keep a change that was found at ``at_s`` by an action of this scheduler."""
        kind = kind_by_amounts(before.allocations, after.allocations)
        self.keep(ForeignChange(
            consumer, before.allocations, before.generation, after.allocations, after.generation, seen_by, at_s, kind
        ))  # fmt: skip

    def keep(self, change: ForeignChange) -> None:
        """Count, keep and record a change, unless this scheduler has made it itself."""
        if self._is_own(change.consumer, ConsumerAllocations(change.after, change.generation_after)):
            return
        with self._lock:
            if change.kind in EXPECTED:
                self._explained.append(change)
            else:
                self._make_room(change.host)
                self._changes.append(change)
            self._counts[change.kind] += 1
        try:
            self._record(change)
        except Exception:
            LOG.exception("A change of the allocations of %s is counted, but not recorded", change.consumer)

    def _make_room(self, host: str) -> None:
        """Drop the oldest change of a host that has its share already."""
        places = [place for place, one in enumerate(self._changes) if host and one.host == host]
        if len(places) >= MAX_OF_HOST:
            del self._changes[places[0]]

    def counts(self) -> dict[str, int]:
        """Kind -> number of changes, of all kinds."""
        with self._lock:
            return {kind.value: self._counts[kind] for kind in ChangeKind}

    def report(self) -> dict[str, Any]:
        """The number of all changes but those of ``EXPECTED`` kinds, the number of each kind, and the last ones of all
        kinds, newest first, as plain data."""
        counts = self.counts()
        with self._lock:
            found = sorted([*self._explained, *self._changes], key=lambda change: change.seen_at_s, reverse=True)
        count = sum(counts.values()) - sum(counts[kind] for kind in EXPECTED)
        return {"count": count, "kinds": counts, "changes": [asdict(change) for change in found]}
