# SPDX-License-Identifier: Apache-2.0
"""Finds out what a change was that only its result shows: who has reported it knows nothing of Nova's operations.

=========================================  =====================  ====================================================
Nova's databases                           the change             kind
=========================================  =====================  ====================================================
cannot be read                             any                    unexamined
the server is deleted, or in cell 0        any                    deleted
an operation of it is under way            any                    operation; *changed* if the migration has got others
it has no operation, and is elsewhere      any                    operation
it is there, or waits for its build        something stands       changed, or rewritten; *operation* if only the part
                                                                  of another node is gone, as after an evacuation
it is there, or waits for its build        nothing stands, twice  removed
=========================================  =====================  ====================================================

Nova writes to Placement before or after its databases, so a removal is looked at once more after ``CONFIRMED_AFTER_S``
before it counts as one that nobody explains.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shared_scheduler.core.change_kinds import CONFIRMED_AFTER_S, ChangeKind, kind_by_amounts, kind_in_all_trees
from shared_scheduler.core.effects import ExamineChange, SeenBy
from shared_scheduler.model.resources import same_allocations
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations, contains
from shared_scheduler.placement.foreign_changes import ForeignChange, ForeignChanges
from shared_scheduler.placement.reconciler import Locate, ServerActivity, ServerLocation
from shared_scheduler.protocol.messages import Allocations

LOG = logging.getLogger(__name__)

#: Changes that wait; of further ones, nothing is asked.
MAX_WAITING = 1_000
#: Changes that are examined before the thread of the caller goes on, and time after which no other one is begun.
EXAMINED_AT_ONCE, PATIENCE_S = 20, 10.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """``elsewhere`` and ``whole``: see ``ExamineChange``."""

    change: ForeignChange
    due_s: float
    elsewhere: Allocations = field(default_factory=dict)
    whole: bool = True
    is_second_look: bool = False


def kind_of(change: ForeignChange, found: ServerLocation, is_elsewhere: bool) -> ChangeKind:
    """The kind of a change.  ``is_elsewhere``: the server is on a node that had none of the allocations."""
    if found.activity is ServerActivity.UNREAD:
        return ChangeKind.UNEXAMINED
    if found.deleted:
        return ChangeKind.DELETED
    if found.activity is ServerActivity.UNDER_WAY or is_elsewhere:
        return ChangeKind.OPERATION
    return kind_by_amounts(change.before, change.after)


class ChangeExaminer:
    """``add`` never blocks, and many threads call it; one thread calls ``examine_due``."""

    def __init__(
        self,
        client: PlacementClient,
        locate: Locate,
        changes: ForeignChanges,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._locate = locate
        self._changes = changes
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting)

    def found(self, effect: ExamineChange) -> None:
        """The core has found a change."""
        self._add(ForeignChange(
            effect.consumer, effect.before, effect.generation_before, effect.after, effect.generation_after,
            effect.seen_by, self._wall_clock(), ChangeKind.UNEXAMINED, effect.host,
        ), effect.elsewhere, effect.whole)  # fmt: skip

    def removed(self, consumer: str, before: ConsumerAllocations) -> None:
        """A delete has found nothing of what this scheduler wrote."""
        self._add(ForeignChange(
            consumer, before.allocations, before.generation, {}, None, SeenBy.DELETE, self._wall_clock(),
            ChangeKind.UNEXAMINED,
        ), {}, True)  # fmt: skip

    def _add(self, change: ForeignChange, elsewhere: Allocations, whole: bool) -> None:
        with self._lock:
            has_room = len(self._waiting) < MAX_WAITING
            if has_room:
                self._waiting.append(_Waiting(change, self._clock(), elsewhere, whole))
        if not has_room:
            self._changes.keep(change)

    def examine_due(self) -> None:
        """Examine some changes; it blocks for some calls, but not much longer than ``PATIENCE_S``."""
        began_s = self._clock()
        for _ in range(EXAMINED_AT_ONCE):
            waiting = self._take(began_s) if self._clock() <= began_s + PATIENCE_S else None
            if waiting is None:
                return
            self._examine_or_keep(waiting)

    def _examine_or_keep(self, waiting: _Waiting) -> None:
        """Examine a change; one of which that tells nothing is kept unexamined."""
        try:
            self._examine(waiting)
        except PlacementError:
            self._changes.keep(waiting.change)
        except Exception:  # it is told nevertheless
            LOG.exception("examining a change of server %s failed with an unexpected error", waiting.change.consumer)
            self._changes.keep(waiting.change)

    def end(self) -> None:
        """Keep what waits, because nothing is examined any more."""
        with self._lock:
            left, self._waiting = self._waiting, deque()
        for one in left:
            self._changes.keep(one.change)

    def _take(self, now: float) -> _Waiting | None:
        """The oldest change that is due."""
        with self._lock:
            due = next((one for one in self._waiting if one.due_s <= now), None)
            if due is not None:
                self._waiting.remove(due)
        return due

    def _examine(self, waiting: _Waiting) -> None:
        change = waiting.change
        found = self._locate(change.consumer)
        kind = kind_of(change, found, self._is_elsewhere(change, found))
        if kind is ChangeKind.REMOVED:
            self._look_again(waiting)
        elif kind is ChangeKind.OPERATION and not change.after and found.migration:
            self._changes.keep(self._taken_over(change, found.migration, waiting.whole))
        elif kind is ChangeKind.REWRITTEN and waiting.elsewhere:
            self._changes.keep(self._in_all_trees(change, waiting.elsewhere))
        else:
            self._changes.keep(replace(change, kind=kind))

    def _is_elsewhere(self, change: ForeignChange, found: ServerLocation) -> bool:
        """At most one call, however many providers an agent tells."""
        if found.activity is not ServerActivity.AT_REST or found.node in change.before:
            return False
        tree = () if found.node is None else self._client.providers(in_tree=found.node)
        return all(provider.uuid not in change.before for provider in tree)

    def _look_again(self, waiting: _Waiting) -> None:
        """A removal counts if there is still nothing some time later."""
        change, standing = waiting.change, self._client.consumer(waiting.change.consumer)
        if standing.allocations:
            after = replace(change, after=standing.allocations, generation_after=standing.generation)
            self._changes.keep(replace(after, kind=kind_by_amounts(change.before, standing.allocations)))
        elif waiting.is_second_look:
            self._changes.keep(replace(change, kind=ChangeKind.REMOVED))
        else:
            with self._lock:
                self._waiting.append(replace(waiting, due_s=self._clock() + CONFIRMED_AFTER_S, is_second_look=True))

    def _in_all_trees(self, change: ForeignChange, elsewhere: Allocations) -> ForeignChange:
        """What Placement has of a server of which the report shows a part."""
        standing, before = self._client.consumer(change.consumer), {**change.before, **elsewhere}
        if not standing.allocations:
            return replace(change, kind=ChangeKind.REWRITTEN)
        kind = kind_in_all_trees(change.before, elsewhere, standing.allocations)
        after, generation = standing.allocations, standing.generation
        return replace(change, before=before, after=after, generation_after=generation, kind=kind)

    def _taken_over(self, change: ForeignChange, migration: str, whole: bool) -> ForeignChange:
        """What nova-conductor has given to the migration shows what somebody has changed before.  If only a part is
        known, a change was told before, and what is beside that part is no other one."""
        taken, is_known = self._client.consumer(migration).allocations, same_allocations if whole else contains
        if not taken or is_known(taken, change.before):
            return replace(change, kind=ChangeKind.OPERATION)
        return replace(change, after=taken, kind=ChangeKind.CHANGED)
