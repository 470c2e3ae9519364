# SPDX-License-Identifier: Apache-2.0
"""Takes what a node's agent (or the databases) said into its row, and derives what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared_scheduler.protocol.messages import Consumer, Leaf
from shared_scheduler.state.late_numbers import LATE_MAX
from shared_scheduler.state.leaves import IMAGE_PROPERTY, PROVIDER, STATS
from shared_scheduler.state.members import Members
from shared_scheduler.state.overlay import Overlay
from shared_scheduler.state.pool import POOL_MAX, Pool
from shared_scheduler.state.resources import add_amounts
from shared_scheduler.state.row import Flat, Row, StoredConsumer, flat
from shared_scheduler.state.row_columns import RowWriter
from shared_scheduler.state.touch import Touch, touch_of

#: leaf names seen, so that looking one up is one dictionary access; there are some dozens a node
TOUCHES_MAX = 65_536
#: sets of leaf names that came together; there are some dozens of those too
SHAPES_MAX = 4_096
#: what a boot or a delete touches, as a name of its own: the class is looked at for each increment
MOVED = Touch.MOVED
#: whole numbers that boots and deletes move, of which no more than the columns is needed at once; and
#: counts of instances by state, project, image and so on, which nothing is derived from
LATE = frozenset({
    "cn.vcpus_used", "cn.memory_mb_used", "cn.free_ram_mb", "cn.local_gb_used", "cn.free_disk_gb",
    "cn.running_vms", "stats.io_workload",
})  # fmt: skip
LATE_COUNTS = (STATS + "num_", IMAGE_PROPERTY)


@dataclass(frozen=True, slots=True)
class Shape:
    """Leaves that come together.  ``is_late``: where all are whole numbers, they need not be looked at
    one by one."""

    names: tuple[str, ...]
    touched: int
    is_late: bool


class BaseWriter:
    """Writes bases of rows."""

    def __init__(
        self, writer: RowWriter, overlay: Overlay, members: Members, pool: Pool
    ) -> None:
        self._writer = writer
        self._overlay = overlay
        self._members = members
        self._pool = pool
        self._touches: dict[str, int] = {}
        self._shapes: dict[tuple[str, ...], Shape] = {}
        #: consumers that take the same are one object
        self._stored: dict[Flat, StoredConsumer] = {}
        self._names: dict[str, str] = {}
        self._forgot_names = False

    def load(
        self,
        row: Row,
        leaves: Mapping[str, Leaf],
        consumers: Mapping[str, Consumer],
        pending: Mapping[str, str],
        epoch: int,
        sequence: int,
    ) -> None:
        """All of it anew.  A leaf that is None is one that is not there."""
        known, pool = self._names, self._pool
        row.epoch, row.sequence = epoch, sequence
        row.late = ()
        row.told = {
            known.setdefault(name, name): pool.leaf(name, value)
            for name, value in leaves.items()
            if value is not None
        }
        for gone in row.consumers.keys() - consumers.keys():
            self._put_consumer(row, gone, None)
        for uuid, consumer in consumers.items():
            self._put_consumer(row, uuid, consumer)
        row.pending = dict(pending)
        if row.claims:
            self._overlay.settle(row)
        self._writer.static(row)
        self._writer.providers(row)
        self._writer.pools(row)
        self._writer.cells(row)
        self._writer.numbers(row)

    def apply(
        self,
        row: Row,
        leaves: Mapping[str, Leaf],
        consumers: Mapping[str, Consumer | None],
        pending: Mapping[str, str | None],
        epoch: int,
        sequence: int,
    ) -> int:
        """What changed; says which parts of the row that touches."""
        row.epoch, row.sequence = epoch, sequence
        touched = self._put_leaves(row, leaves) if leaves else 0
        elsewhere = False
        for uuid, consumer in consumers.items():
            elsewhere |= self._put_consumer(row, uuid, consumer)
        if elsewhere:
            self._writer.elsewhere(row)
        if pending:
            self._put_pending(row, pending)
        if row.claims:
            self._overlay.settle(row)
        if touched == MOVED:
            self._writer.moved(row, leaves)
        elif touched:
            self._derive(row, touched)
        return touched

    def may_have(self, name: str) -> bool:
        """False if no row ever had a leaf of this name."""
        return name in self._names or self._forgot_names

    def _put_leaves(self, row: Row, leaves: Mapping[str, Leaf]) -> int:
        """Nearly always the same few numbers: then the dictionary takes them in one go."""
        names = tuple(leaves)
        shape = self._shapes.get(names) or self._learn_shape(names)
        if not shape.is_late or not _put_late(row, shape.names, leaves):
            return self._put_each(row, leaves)
        return shape.touched

    def _learn_shape(self, names: tuple[str, ...]) -> Shape:
        if len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
        touched = 0
        for name in names:
            touched |= self._touches.get(name) or self._learn(name)
        is_late = len(names) <= LATE_MAX and all(
            name in LATE or name.startswith(LATE_COUNTS) for name in names
        )
        # others may have been forgotten while the last one was learnt
        own = tuple(self._names.setdefault(name, name) for name in names)
        found = self._shapes[own] = Shape(own, touched, is_late)
        return found

    def _put_each(self, row: Row, leaves: Mapping[str, Leaf]) -> int:
        touched, own, touches = 0, row.leaves, self._touches
        for name, value in leaves.items():
            touch = touches.get(name)
            if touch is None:
                touch = self._learn(name)
            if touch & Touch.PROVIDERS and _put_generation(row, name, value):
                continue
            touched |= touch
            if value is None:
                own.pop(name, None)
                touched |= Touch.READY | Touch.NUMBERS
            elif touch & _MAY_BE_SHARED:
                own[name] = self._pool.leaf(name, value)
            else:
                own[name] = value
        return touched

    def _learn(self, name: str) -> int:
        if len(self._touches) >= TOUCHES_MAX:
            self._touches.clear()
            self._names.clear()
            self._forgot_names = True
        self._names.setdefault(name, name)
        touch = self._touches[name] = touch_of(name)
        return touch

    def _put_consumer(self, row: Row, uuid: str, consumer: Consumer | None) -> bool:
        """Whether it has, or had, a part of another provider than the root."""
        before = row.consumers.get(uuid)
        if consumer is None:
            return before is not None and self._drop(row, uuid, before)
        key = flat(row.node, consumer)
        after = self._stored.get(key) or self._store(key)
        if after is before:
            return False
        elsewhere = before is not None and self._drop(row, uuid, before)
        row.consumers[uuid] = after
        if after.root:
            self._writer.use(row, after.root, 1)
        if after.member:
            self._members.add(uuid, row.slot)
        return elsewhere if not after.others else _use_others(row, after, 1)

    def _drop(self, row: Row, uuid: str, stored: StoredConsumer) -> bool:
        del row.consumers[uuid]
        if stored.root:
            self._writer.use(row, stored.root, -1)
        if stored.member and not row.is_member(uuid):
            self._members.discard(uuid, row.slot)
        return bool(stored.others) and _use_others(row, stored, -1)

    def _store(self, key: Flat) -> StoredConsumer:
        if len(self._stored) >= POOL_MAX:
            self._stored.clear()
        return self._stored.setdefault(key, StoredConsumer(*key))

    def _put_pending(self, row: Row, pending: Mapping[str, str | None]) -> None:
        for claim_id, consumer in pending.items():
            if consumer is None:
                row.pending.pop(claim_id, None)
                self._overlay.ended(row, claim_id)
            else:
                row.pending[claim_id] = consumer

    def _derive(self, row: Row, touched: int) -> None:
        if touched & _NUMBERS:
            self._writer.numbers(row)
        if touched & Touch.POOLS:
            self._writer.pools(row)
        if touched & Touch.PROVIDERS:
            self._writer.providers(row)
        if touched & Touch.STATIC:
            self._writer.static(row)
        if touched & _CELLS:
            self._writer.cells(row)


def _put_late(row: Row, names: tuple[str, ...], leaves: Mapping[str, Leaf]) -> bool:
    """Whether they could be kept as numbers.  If not, each of ``names`` must be put after all."""
    if row.late is not names:
        row.read_late()
        row.late = names
    return row.numbers.put(row.slot, leaves.values(), len(names))


def _use_others(row: Row, stored: StoredConsumer, sign: int) -> bool:
    """Count what is taken of other providers than the root; True, as there are some."""
    for provider, amounts in stored.others:
        add_amounts(row.used, {provider: dict(amounts)}, sign)
    return True


def _put_generation(row: Row, name: str, value: Leaf) -> bool:
    """Whether only the generation of a provider differs, which each written allocation moves."""
    before = row.leaves.get(name)
    if not isinstance(value, dict) or not isinstance(before, dict):
        return False
    after: dict[str, Leaf] = before | {"generation": value.get("generation")}
    if after != value:
        return False
    row.leaves[name] = after
    uuid, generation = name.removeprefix(PROVIDER), after["generation"]
    number = generation if isinstance(generation, int) else 0
    row.providers = {**row.providers, uuid: replace(row.providers[uuid], generation=number)}
    return True


_MAY_BE_SHARED = Touch.STATIC | Touch.PROVIDERS
_NUMBERS = Touch.MOVED | Touch.NUMBERS
_CELLS = Touch.NUMA | Touch.STATIC | Touch.NUMBERS
