# SPDX-License-Identifier: Apache-2.0
"""Who holds the room of a node that has refused a claim, or that a decision has rejected for lack of room, as the row
shows it at that moment.

A refusal has only sums: so much is asked, so much is used.  The row names the consumers, because the verdict has
brought it up to date.  If Placement has refused, the row may be as old as its last read, and the class that is short is
not known; then all classes of the claim are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from operator import add

from shared_scheduler.core.claim_state import OpenClaim
from shared_scheduler.core.events import WriteCode
from shared_scheduler.decision.candidates import NO_ROOM
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.protocol.messages import Leaf, RefusalCode
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Row

#: Holders that are named, those with the most first, and classes that are named for each.
HOLDERS_MAX, CLASSES_MAX = 5, 4
#: Rejected hosts of one decision whose holders are named.
REJECTED_HOSTS_MAX = 16
#: Outcomes of a claim on a node without room.
OF_ROOM = frozenset({
    RefusalCode.NO_CAPACITY, RefusalCode.TOPOLOGY, RefusalCode.TOO_MANY_CLAIMS, WriteCode.NO_CAPACITY,
})  # fmt: skip
#: the values of a refusal for lack of room; a refusal because of a unit has its name instead of ``capacity``
RESOURCE_CLASS, PROVIDER, CAPACITY, USED = "resource_class", "provider", "capacity", "used"
NOBODY: Mapping[str, Leaf] = {}


def held_room(table: HostTable, claim: OpenClaim, outcome: str) -> Mapping[str, Leaf]:
    """Plain values: ``servers`` (their number), ``pending`` (those of claims that nova-compute has not taken over),
    ``amounts`` (class -> sum), ``largest`` (some of them) and the version of the row; empty if the claim has not failed
    for lack of room.

    Takes about half a microsecond for each consumer of the node, so it is called for refusals only.
    """
    row = table.row_of(claim.intent.node)
    if row is None or outcome not in OF_ROOM or _violates_a_unit(claim):
        return NOBODY
    return _of_row(row, *_short_of(claim))


def held_room_of_rejected(table: HostTable, hosts: Iterable[ExplainedHost]) -> dict[str, Mapping[str, Leaf]]:
    """Node -> the same values, of the first hosts that the table rejects for lack of room in their root provider.

    A host of which nothing is used is too small, whoever holds the rest.
    """
    full = (host for host in hosts if host.code.startswith(NO_ROOM) and CAPACITY in host.detail and host.detail[USED])
    rows = ((host, table.row_of(host.node)) for host in islice(full, REJECTED_HOSTS_MAX))
    return {host.node: _of_row(row, host.node, [host.code.removeprefix(NO_ROOM)]) for host, row in rows if row}


def _of_row(row: Row, provider: str, classes: Sequence[str]) -> Mapping[str, Leaf]:
    held = _held(row, provider, classes)
    pending = set(row.pending.values()) | {own.consumer for own in row.claims.values() if own.counts_allocations}
    largest = nlargest(HOLDERS_MAX, zip(held.values(), held.keys(), strict=True))
    return {
        "servers": len(held),
        "pending": len(pending & held.keys()),
        "amounts": _named(classes, [sum(column) for column in zip(*held.values(), strict=True)]),
        "largest": [
            {"server": consumer, "amounts": _named(classes, amounts), "pending": consumer in pending}
            for amounts, consumer in largest
        ],
        "epoch": row.epoch,
        "sequence": row.sequence,
    }


def _violates_a_unit(claim: OpenClaim) -> bool:
    """Whether the amount is too small or too large for any claim, whoever holds the rest."""
    detail = {} if claim.reason is None else claim.reason.detail
    return RESOURCE_CLASS in detail and CAPACITY not in detail


def _short_of(claim: OpenClaim) -> tuple[str, Sequence[str]]:
    """The provider and the class that the node is short of; without them, the root provider and those of the claim."""
    detail = {} if claim.reason is None else claim.reason.detail
    provider, resource_class = detail.get(PROVIDER), detail.get(RESOURCE_CLASS)
    if isinstance(provider, str) and isinstance(resource_class, str):
        return provider, [resource_class]
    node = claim.intent.node
    return node, list(claim.intent.allocations.get(node, ()))[:CLASSES_MAX]


def _held(row: Row, provider: str, classes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Consumer -> what it holds of each class, of those that hold something."""
    known: dict[int, tuple[int, ...]] = {}  # equal consumers of a row are one object
    found: dict[str, tuple[int, ...]] = {}
    for consumer, stored in row.consumers.items():
        amounts = known.get(id(stored))
        if amounts is None:
            held = stored.root if provider == row.node else dict(stored.others).get(provider)
            amounts = known[id(stored)] = _of_classes(dict(held or ()), classes)
        found[consumer] = amounts
    for own in row.claims.values():
        if own.counts_allocations:  # the base does not show it yet
            more = _of_classes(own.allocations.get(provider, {}), classes)
            found[own.consumer] = tuple(map(add, found.get(own.consumer, (0,) * len(classes)), more))
    return {consumer: amounts for consumer, amounts in found.items() if any(amounts)}


def _of_classes(amounts: Mapping[str, int], classes: Sequence[str]) -> tuple[int, ...]:
    return tuple(amounts.get(name, 0) for name in classes)


def _named(classes: Sequence[str], amounts: Sequence[int]) -> dict[str, Leaf]:
    return {name: amount for name, amount in zip(classes, amounts, strict=False) if amount}
