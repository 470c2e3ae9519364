# SPDX-License-Identifier: Apache-2.0
"""A Placement for the simulator that behaves as the real one (docs: Placement's allocation API).

* Capacity by the one rule of ``model/resources.py``.
* A consumer is new (generation null) or has a record; a write with another generation than the record's is a conflict.
* A write commits the record of a new consumer, with generation 0, when it begins.  If it fails, it deletes that
  record, even if another write has taken the record over meanwhile.  If Placement is interrupted, the record stays.
  Allocations without a record are counted, and nobody reads or deletes them.
* Placement repeats a write that loses races for a provider.  ``loses_s``: a write that begins now fails after this
  time with a conflict.
* The check reads the state at the beginning of a write and the rows appear at its end, so that
  racing writes for one provider over-commit it, as the real one does: Placement alone does not
  prevent it.  ``races=False`` turns the race off.
* A DELETE frees resources at once.  It does not change the generation of a provider, so no scheduler notices it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from shared_scheduler.core.events import WriteCode
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory, Shortage, add_amounts, first_shortage
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations, without
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.selections import ENABLED, is_disabled, is_selected

#: the usual timeout of the proxy.  Less than ``CARRIED_OUT_WITHIN_S``, because the clock of a scheduler may jump
#: meanwhile.
PROXY_TIMEOUT_S = 30.0
_NOTHING: Allocations = {}
#: the writer of all that has no other name
NOVA = "nova"


@dataclass(slots=True, eq=False)
class ConsumerRecord:
    """The record of a consumer."""

    generation: int


@dataclass(slots=True)
class Write:
    """A write under way: the allocations to write, and what it found when it began: the shortage, and the record.

    ``generation``: that of the record; None: it was another one than the writer expected, a conflict.
    ``creates``: it has made the record.  ``began``: how many writes were carried out before.
    """

    consumer: str
    allocations: Allocations
    writer: str
    shortage: Shortage | None
    record: ConsumerRecord | None
    generation: int | None
    creates: bool
    began: int


def _ignore(_writer: str, _consumer: str, _is_lost: bool) -> None:
    """Nobody is interested."""


def _ignore_stored(_consumer: str, _grown: AbstractSet[str], _write: Write | None) -> None:
    """Nobody is interested."""


class Writers:
    """Who has written a consumer, what, and how often; a removal is a write of nothing."""

    def __init__(self) -> None:
        self.last = ""
        self._counts: Counter[str] = Counter()
        self._before: dict[str, int] = {}
        self._last_of: dict[str, Allocations] = {}

    def wrote(self, writer: str, allocations: Allocations) -> None:
        """A write is carried out."""
        self._before.setdefault(writer, self._counts.total())
        self._counts[writer] += 1
        self.last = writer
        self._last_of[writer] = allocations

    def last_of(self, writer: str) -> Allocations:
        """What this one has written last."""
        return self._last_of.get(writer, _NOTHING)

    def others(self, writer: str) -> int:
        """How often others have written since the first write of this one; 0 if it has written nothing."""
        if writer not in self._before:
            return 0
        return self._counts.total() - self._counts[writer] - self._before[writer]


@dataclass(slots=True)
class SimPlacement:
    """Providers and allocations; each node is a tree that consists of its root only.

    ``dropped`` is called when a write fails and its record is deleted: the writer, the consumer, and whether it has
    allocations.  ``stored`` is called when one is carried out: the consumer, the providers to which it adds something,
    and the write, unless it is one that takes no time.
    """

    races: bool = True
    dropped: Callable[[str, str, bool], None] = _ignore
    stored: Callable[[str, AbstractSet[str], Write | None], None] = _ignore_stored
    up: bool = True
    #: schedulers get no answers, although it carries out what they send
    mute: bool = False
    loses_s: float = 0.0
    #: for how long a proxy holds a call before Placement begins it
    held_s: float = 0.0
    #: time after which the proxy ends a call, and Placement does not carry it out any more
    proxy_timeout_s: float = PROXY_TIMEOUT_S
    #: whether those who read the consumers of a provider get their generations too
    tells_generations: bool = False
    #: how slow it is: seconds for each consumer of a write, and for each call, besides the usual time of a call
    consumer_s: float = 0.0
    call_s: float = 0.0
    providers: dict[str, Provider] = field(default_factory=dict)
    consumers: dict[str, Allocations] = field(default_factory=dict)
    records: dict[str, ConsumerRecord] = field(default_factory=dict)
    #: how many writes were carried out
    commits: int = 0
    #: consumer -> who has written it
    writers: defaultdict[str, Writers] = field(default_factory=lambda: defaultdict(Writers))
    _on: dict[str, dict[str, Allocations]] = field(default_factory=dict)
    _used: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def answers(self) -> bool:
        """Whether a scheduler gets answers."""
        return self.up and not self.mute

    # -- providers

    def add_provider(self, node: str, name: str, inventories: Mapping[str, Inventory]) -> None:
        """Add the root provider of a compute node."""
        self.providers[node] = Provider(node, name, None, 1, inventories)
        self._on.setdefault(node, {})

    def tree(self, node: str) -> tuple[Provider, ...]:
        """The providers of a node's tree."""
        return (self.providers[node],) if node in self.providers else ()

    def consumers_of(self, node: str) -> dict[str, Allocations]:
        """The consumers of a provider: consumer -> its allocations of this provider."""
        return dict(self._on.get(node, {}))

    def generations(self, consumers: Iterable[str]) -> dict[str, int]:
        """The generations of consumers."""
        known = (consumer for consumer in consumers if self.tells_generations and consumer in self.records)
        return {consumer: self.records[consumer].generation for consumer in known}

    def used(self, node: str) -> Mapping[str, int]:
        """Resource class -> amount in use on this provider."""
        return self._used.get(node, {})

    def capacities(self, node: str) -> dict[str, int]:
        """Resource class -> capacity of this provider."""
        return {rc: inventory.capacity for rc, inventory in self.providers[node].inventories.items()}

    def over_commit(self, node: str) -> dict[str, int]:
        """Resource class -> amount above the capacity; empty if there is no over-commit."""
        has, used = self.capacities(node), self.used(node)
        return {rc: amount - has[rc] for rc, amount in used.items() if amount > has[rc]}

    # -- writing

    def takes_s(self, consumers: int) -> float:
        """The additional time of a call that writes, or reads, so many consumers."""
        return self.call_s + consumers * self.consumer_s

    def begin_write(
        self, consumer: str, allocations: Allocations, generation: int | None = None, writer: str = ""
    ) -> Write:
        """Begin a write that expects this generation: check the capacity, and make the record of a new consumer."""
        record, creates = self.records.get(consumer), False
        if record is None and generation is None:
            record, creates, generation = ConsumerRecord(0), True, 0
            self.records[consumer] = record
        agreed = generation if record is not None and record.generation == generation else None
        held = self.consumers.get(consumer, {})
        add_amounts(self._used, held, -1)
        shortage = self._shortage(allocations)
        add_amounts(self._used, held)
        return Write(consumer, allocations, writer, shortage, record, agreed, creates, self.commits)

    def begin_writes(self, wanted: Sequence[tuple[str, Allocations, int | None]], writer: str) -> list[Write]:
        """Begin a call with several writes (consumer, allocations, generation): each is checked beside those before
        it."""
        begun = []
        for consumer, allocations, generation in wanted:
            begun.append(self.begin_write(consumer, allocations, generation, writer))
            add_amounts(self._used, allocations)
        for _, allocations, _ in wanted:
            add_amounts(self._used, allocations, -1)
        return begun

    def refusal(self, write: Write) -> tuple[WriteCode, str] | None:
        """Why a write is refused at its end; None if it is carried out."""
        if not self._is_agreed(write):
            return self._conflict(write)
        if any(node not in self.providers for node in write.allocations):
            return WriteCode.UNKNOWN_PROVIDER, "no such resource provider"
        shortage = write.shortage if self.races else self._shortage(write.allocations)
        if shortage is not None:
            return WriteCode.NO_CAPACITY, f"{shortage.resource_class}: {shortage.detail()}"
        return None

    def _is_agreed(self, write: Write) -> bool:
        """Whether the record still has the generation that the write found."""
        record = self.records.get(write.consumer)
        return record is not None and record is write.record and record.generation == write.generation

    def _conflict(self, write: Write) -> tuple[WriteCode, str]:
        stands = self.standing(write.consumer).allocations
        code = WriteCode.CONSUMER_CONFLICT if stands else WriteCode.PROVIDER_CONFLICT
        return code, f"{write.consumer} has a record of another generation"

    def end_write(self, write: Write) -> tuple[WriteCode, str]:
        """End a write: store the allocations, or return why they are refused."""
        refusal = self.refusal(write)
        if refusal is not None:
            self.fail(write)
        elif self._is_agreed(write):
            before = self._remove(write.consumer)
            self._put(write.consumer, write.allocations, before, write)
        return refusal or (WriteCode.WRITTEN, "")

    def fail(self, write: Write) -> None:
        """End a write that is refused: delete the record that it has made."""
        record = self.records.get(write.consumer)
        if record is None or record is not write.record or not write.creates:
            return
        del self.records[write.consumer]
        self.dropped(write.writer, write.consumer, write.consumer in self.consumers)

    def _put(
        self, consumer: str, allocations: Allocations, before: Allocations = _NOTHING, write: Write | None = None
    ) -> None:
        self.consumers[consumer] = allocations
        self.commits += 1
        self.writers[consumer].wrote(NOVA if write is None else write.writer or NOVA, allocations)
        self.records.setdefault(consumer, ConsumerRecord(0)).generation += 1
        for node, amounts in allocations.items():
            self._on[node][consumer] = {node: amounts}
        add_amounts(self._used, allocations)
        self.stored(consumer, without(allocations, before).keys(), write)

    def _remove(self, consumer: str) -> Allocations:
        held = self.consumers.pop(consumer, {})
        for node in held:
            self._on[node].pop(consumer, None)
        add_amounts(self._used, held, -1)
        return held

    def delete(self, consumer: str, writer: str = NOVA) -> None:
        """Delete all allocations of a consumer, and with the last one its record."""
        if consumer in self.consumers and self.records.pop(consumer, None) is not None:
            self.writers[consumer].wrote(writer, _NOTHING)
            self._remove(consumer)

    def begin_move(self, consumer: str, migration: str, node: str) -> bool:
        """The conductor's write for a live migration: the migration holds the source's part from now on, the consumer
        the same amounts on ``node``.  False if there is no room."""
        (amounts,) = self.consumers[consumer].values()
        if self._shortage({node: amounts}) is not None:
            return False
        held = self.consumers[consumer]
        self.delete(consumer)
        self._put(migration, held)
        self._put(consumer, {node: amounts})
        return True

    def begin_scheduled_move(self, consumer: str, migration: str) -> None:
        """The conductor's write before it asks a scheduler: the migration holds everything from now on."""
        held = self.consumers[consumer]
        self.delete(consumer)
        self._put(migration, held)

    def take_move_back(self, consumer: str, migration: str, kept: Allocations) -> bool:
        """The conductor's write after a move that failed: the consumer has what the migration holds, and ``kept``.

        False: another write of the consumer is under way.
        """
        if self.is_orphan(consumer):
            return False
        held = self.consumers[migration]
        self.delete(migration)
        self._remove(consumer)
        self._put(consumer, {**kept, **held})
        return True

    def forget(self, consumer: str) -> bool:
        """What Nova's API deletes with a server that has no host.

        False: it is down, or another write of the consumer is under way."""
        if not self.up or self.is_orphan(consumer):
            return False
        self.delete(consumer)
        return True

    def remove_from(self, node: str, consumer: str) -> None:
        """What nova-compute writes for a server that was evacuated from its node: all but the allocations there."""
        held = self.consumers.get(consumer, {})
        rest = {name: amounts for name, amounts in held.items() if name != node}
        if not rest:
            self.delete(consumer)
        elif len(rest) < len(held):
            self._remove(consumer)
            self._put(consumer, rest)

    def standing(self, consumer: str) -> ConsumerAllocations:
        """What a reader of a consumer gets."""
        record = self.records.get(consumer)
        if record is None or consumer not in self.consumers:
            return ConsumerAllocations()
        return ConsumerAllocations(self.consumers[consumer], record.generation)

    # -- asking

    def is_orphan(self, consumer: str) -> bool:
        """Whether a consumer has a record without allocations: a write is under way, or its end was lost."""
        return consumer in self.records and consumer not in self.consumers

    def fitting(self, query: str) -> frozenset[str]:
        """The root providers that have what a query asks for, and enough capacity in each class."""
        wanted, providers = wanted_of(query), self.providers.items()
        enabled = (item for item in providers if ENABLED not in query or not is_disabled(item[1]))
        selected = (node for node, provider in enabled if is_selected(provider, query))
        return frozenset(node for node in selected if self._shortage({node: wanted}) is None)

    def _shortage(self, allocations: Allocations) -> Shortage | None:
        inventories = {node: self.providers[node].inventories for node in allocations if node in self.providers}
        used = {node: self.used(node) for node in inventories}
        return first_shortage(inventories, used, allocations)


def wanted_of(query: str) -> dict[str, int]:
    """The amounts of a query string's ``resources`` (simulated requests have no numbered groups)."""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name == "resources":
            pairs = (item.split(":") for item in value.split(","))
            return {rc: int(amount) for rc, amount in pairs}
    return {}
