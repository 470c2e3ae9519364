# SPDX-License-Identifier: Apache-2.0
"""What the last write of this scheduler left of each consumer, compared with what is reported of it later.

Placement raises the generation of a consumer with each write, and begins with the first one again if all allocations
were removed in between.  So a scheduler that knows the generation of its last write finds the writes of others: in what
the agent of the node publishes, in what is read of a node without one, and at its own next write or delete.

========  ================================================  ========  =========================================
state     event                                             next      action
========  ================================================  ========  =========================================
(none)    written                                           WRITTEN
WRITTEN   its node shows this generation                    SHOWN
WRITTEN   its node shows an earlier one, or nothing         WRITTEN   the report is older than the write
WRITTEN   its node shows a later one                        SHOWN     examine; this generation is known from now on
SHOWN     its node shows another one, or other amounts      SHOWN     the same
SHOWN     nothing stands, and the server is there           (gone)    examine
SHOWN     nothing stands, and nova-compute never had it     (gone)    examine: a build may have been deleted
SHOWN     databases showed it, and an agent starts          WRITTEN   it may have read Placement before them
SHOWN     the server has left the node                      (gone)    Nova has deleted, shelved or moved it
any       written as new                                    WRITTEN   examine: something has removed what stood
any       a further write ends, and may stand or not        (gone)    until the next write that is answered
any       a delete of what was written begins               (gone)    the delete looks at what stands
any       a delete of an earlier claim of the node ends     (gone)    it began after this write, and took it
any       nothing stands while it is under way              (gone)    its answer comes after the report
any       so many other consumers are written               (gone)
========  ================================================  ========  =========================================

Examined is what may be a change of others: nova-conductor takes the allocations of a server that begins to move, and
another scheduler evacuates it.  The edge asks Nova (``placement/change_examiner.py``).

While a write of this scheduler for the same consumer is under way, a report may show its result before the answer, so
none is compared.  If the write fails, what the table shows by then is.

One host cannot keep the examiner busy: of one node, ``CHANGES_BURST`` changes are examined at once, and
``CHANGES_PER_S`` for long; others are counted as ``foreign_changes_left_out``.  A change tells ``AMOUNTS_MAX`` amounts.

What cannot be seen: removed and written again with equal amounts and generation between two reads of the agent; a
change between the last read before a delete by Nova and that; and whatever happens while this scheduler does not run,
because it knows its own writes since its start only.  After a read of the databases, the first word of an agent that
starts shows no removal, because it may be the older one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from shared_scheduler.core.effects import ExamineChange, SeenBy
from shared_scheduler.core.step import Step
from shared_scheduler.model.interning import POOL_MAX
from shared_scheduler.model.leaves import AGENT_READY
from shared_scheduler.protocol.memo import Memo
from shared_scheduler.protocol.messages import Allocations, Consumer
from shared_scheduler.protocol.rate_limits import TokenBuckets
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import (
    CompactConsumer,
    Row,
    StoredConsumer,
    Version,
    allocations_of,
    amounts_of,
    compact,
)

#: Consumers whose last write is known, the newest; some 300 bytes each.
OWN_WRITES_MAX = 32_768
#: Changes of servers of one node that are examined, and the nodes of which that is remembered.
CHANGES_PER_S, CHANGES_BURST, NODES_MAX = 1.0, 128, 16_384
#: The generation of a consumer after the write that has created it.
CREATED = 1
#: The amounts of a consumer that a change tells.  No server has as many, but an agent may claim more.
AMOUNTS_MAX = 64


@dataclass(frozen=True, slots=True)
class OwnWrite:
    """A write of this scheduler that succeeded.  ``generation`` 0: not known.

    ``since``: the version of the row from which on it may be reported.  ``found``: it is only known to stand, and may
    be an earlier one."""

    claim_id: str
    consumer: str
    node: str
    allocations: Allocations
    generation: int
    since: Version
    found: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before a delete: that what was written stood, and the generation up to which changes of others were
    told; None if none were."""

    stood: bool = False
    generation: int | None = None


@dataclass(slots=True)
class _Left:
    """What a write has left, or what was seen of it since, at ``true_s``."""

    claim_id: str
    node: str
    stored: StoredConsumer
    generation: int
    since: Version
    written_s: float
    true_s: float
    shown: bool = False
    #: whether the databases showed it last: an agent that starts may have read Placement before that
    by_databases: bool = False
    #: whether nova-compute has had the server since
    built: bool = False
    #: whether all allocations are known: nobody else has written since
    whole: bool = True
    #: an earlier claim whose delete has begun since
    deleted_by: str = ""

    @property
    def allocations(self) -> dict[str, dict[str, int]]:
        return allocations_of(self.node, self.stored)


def _is_new_record(before: _Left, write: OwnWrite) -> bool:
    """Whether a write has created the consumer anew, so that something has removed what stood.

    One that is only found may be the one before, unless that has another generation."""
    return write.generation == CREATED and not (write.found and before.generation in (0, CREATED))


class OwnWrites:
    """The newest ``OWN_WRITES_MAX`` consumers that this scheduler has written.

    Counts ``foreign_changes_left_out``."""

    def __init__(self, table: HostTable, writes_max: int = OWN_WRITES_MAX) -> None:
        self._table = table
        self._max = writes_max
        self._left: dict[str, _Left] = {}  # by consumer, oldest first
        self._of_node: dict[str, set[str]] = {}
        self._stored: Memo[CompactConsumer, StoredConsumer] = Memo(POOL_MAX)
        #: consumers -> own writes of them that are under way
        self._writing: Counter[str] = Counter()
        self._buckets = TokenBuckets(CHANGES_PER_S, CHANGES_BURST, NODES_MAX)
        self.counters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._left)

    def left(self, consumer: str) -> Consumer | None:
        """What the last write of a consumer left, or what was seen of it since; None if that is not known."""
        left = self._left.get(consumer)
        return None if left is None else Consumer(left.allocations, generation=left.generation, whole=left.whole)

    # -- what this scheduler does

    def begin(self, consumer: str) -> None:
        """A write begins; ``written`` or ``not_written`` follows."""
        self._writing[consumer] += 1

    def written(self, step: Step, write: OwnWrite) -> None:
        """A write has succeeded."""
        self._end_write(write.consumer)
        before = self._forget(write.consumer)
        if before is not None and _is_new_record(before, write):
            self._examine(step, write.consumer, before, {}, None, SeenBy.NEW)
        stored = self._store(write.node, write.allocations)
        self._left[write.consumer] = _Left(
            write.claim_id, write.node, stored, write.generation, write.since, step.now, step.now
        )
        self._of_node.setdefault(write.node, set()).add(write.consumer)
        if len(self._left) > self._max:
            self._forget(next(iter(self._left)))
        self._compare(step, write.consumer)

    def not_written(self, step: Step, consumer: str) -> None:
        """A write has changed nothing; what was reported meanwhile is compared now."""
        self._end_write(consumer)
        self._compare(step, consumer)

    def uncertain(self, consumer: str) -> None:
        """What a write has left is not known: it may be carried out later, or another writer's allocations stand."""
        self._end_write(consumer)
        self._forget(consumer)

    def delete(self, consumer: str, claim_id: str, began_s: float) -> Known:
        """A delete begins of what a claim, which began then, has written; what it leaves is not compared."""
        left = self._left.get(consumer)
        if left is None:
            return Known()
        if left.claim_id != claim_id and left.written_s > began_s:
            left.deleted_by = claim_id
            return Known()
        self._forget(consumer)
        return Known(left.claim_id == claim_id, None if left.whole else left.generation)

    def deleted(self, consumer: str, node: str, claim_id: str, gone: bool = True) -> None:
        """A delete of what a claim has written ends; ``gone``: it leaves nothing of the consumer on the node."""
        left = self._left.get(consumer)
        if left is None or left.deleted_by != claim_id:
            return
        left.deleted_by = ""
        if gone and left.node == node:
            self._forget(consumer)

    def _end_write(self, consumer: str) -> None:
        self._writing[consumer] -= 1
        if self._writing[consumer] <= 0:
            del self._writing[consumer]

    # -- what is reported

    def reported(self, step: Step, node: str, consumers: Iterable[str]) -> None:
        """The agent of a node has published changes of these consumers."""
        for consumer in sorted(consumer for consumer in consumers if consumer in self._left):
            self._compare(step, consumer, node)

    def all_reported(self, step: Step, node: str, read_at_s: float = float("-inf")) -> None:
        """The whole row of a node is new; ``read_at_s``: when the read of the databases began, if no agent told it."""
        for consumer in sorted(self._of_node.get(node, ())):
            self._compare(step, consumer, node, read_at_s)

    def _compare(self, step: Step, consumer: str, node: str | None = None, read_at_s: float = float("-inf")) -> None:
        """``node``: whose row has changed; None: what is known before is compared with its row."""
        left = self._left.get(consumer)
        if left is None or consumer in self._writing or left.node != (node or left.node):
            return
        row = self._table.row_of(left.node)
        if row is None or not _is_newer(row, left, read_at_s):
            return
        if row.epoch and left.by_databases:
            left.shown = left.by_databases = False
        stored = row.consumers.get(consumer)
        held = {} if stored is None else allocations_of(row.node, stored)
        if stored is None or not held:
            self._compare_with_nothing(step, consumer, left, stored is not None and stored.member)
        elif stored.generation:
            self._compare_with(step, consumer, left, held, stored.generation)
            left.built |= row.is_built(consumer)
            left.true_s = max(left.true_s, step.now if row.epoch else read_at_s)
            left.by_databases = not row.epoch

    def _compare_with_nothing(self, step: Step, consumer: str, left: _Left, is_there: bool) -> None:
        if not left.shown:
            return
        self._forget(consumer)
        if not left.deleted_by and (is_there or not left.built):
            self._examine(step, consumer, left, {}, None)

    def _compare_with(self, step: Step, consumer: str, left: _Left, held: Allocations, generation: int) -> None:
        before = left.allocations
        same = all(before.get(provider) == dict(amounts) for provider, amounts in held.items())
        is_new = left.generation not in (0, generation) or not same
        if is_new and not left.shown and 0 < generation <= left.generation:
            return
        if is_new:
            self._examine(step, consumer, left, held, generation)
            left.stored, left.whole = self._store(left.node, {**self._elsewhere(left), **held}), False
        left.generation, left.shown = generation, True

    def _examine(
        self,
        step: Step,
        consumer: str,
        left: _Left,
        after: Allocations,
        generation: int | None,
        seen_by: SeenBy = SeenBy.REPORT,
    ) -> None:
        if not self._buckets.take(left.node, step.now):
            self.counters["foreign_changes_left_out"] += 1
            return
        row = self._table.row_of(left.node)
        before, elsewhere = left.allocations, self._elsewhere(left) if after else {}
        here = {name: amounts for name, amounts in before.items() if name not in elsewhere}
        host = "" if row is None else row.host
        step.emit(ExamineChange(
            consumer, left.node, host, _bounded(here), left.generation or None, _bounded(after), generation, seen_by,
            elsewhere, left.whole, cause=step.cause,
        ))  # fmt: skip

    def _elsewhere(self, left: _Left) -> dict[str, dict[str, int]]:
        """The part that no report of its node shows."""
        row = self._table.row_of(left.node)
        own = {left.node} if row is None else {left.node, *row.providers}
        return {name: amounts for name, amounts in left.allocations.items() if name not in own}

    # -- inside

    def _store(self, node: str, allocations: Allocations) -> StoredConsumer:
        key = compact(node, Consumer(allocations))
        found = self._stored.get(key)
        if found is None:
            stored = StoredConsumer(*key)
            found = self._stored.learn(key, stored, amounts_of(stored))
        return found

    def _forget(self, consumer: str) -> _Left | None:
        left = self._left.pop(consumer, None)
        if left is not None:
            there = self._of_node[left.node]
            there.discard(consumer)
            if not there:
                del self._of_node[left.node]
        return left


def _bounded(allocations: Allocations) -> Allocations:
    """The allocations, or the first ``AMOUNTS_MAX`` amounts, because changes wait and are kept."""
    if sum(map(len, allocations.values())) <= AMOUNTS_MAX:
        return allocations
    every = ((provider, one) for provider, amounts in allocations.items() for one in amounts.items())
    found: dict[str, dict[str, int]] = {}
    for provider, (resource_class, amount) in islice(every, AMOUNTS_MAX):
        found.setdefault(provider, {})[resource_class] = amount
    return found


def _is_newer(row: Row, left: _Left, read_at_s: float) -> bool:
    """Whether the row may show the write: it has reached the version that does, and its agent has read Placement."""
    if row.leaves.get(AGENT_READY) is False:
        return False
    return row.version >= left.since if row.epoch else read_at_s >= left.true_s
