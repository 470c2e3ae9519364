# SPDX-License-Identifier: Apache-2.0
"""Own outstanding claims: claims of this scheduler that the base of a row does not show yet.

A row consists of its *base* (the last report of the agent, or the databases) and these claims.  A claim has two parts.
Each part is counted until the base shows it:

=============  ====================================================================================
part           the base shows it when
=============  ====================================================================================
allocations    the base has reached the verdict's ``reflected_sequence`` in its epoch, or the claim
               is pending in the base, or the base's consumer holds the claim's allocations
numbers and    one of the first two conditions holds, or the base's consumer is a member (nova-compute
membership     counts it); a row without an agent shows allocations (Placement) before numbers
               (nova-compute)
=============  ====================================================================================

=========  ===============================  =========  =====================================================
state      event                            next       action
=========  ===============================  =========  =====================================================
(none)     assume                           ASSUMED    count both parts
ASSUMED    accepted                         ASSUMED    remember the sequence that will show it
ASSUMED    confirm                          CONFIRMED  Placement has it: only evidence ends it now
any        the base shows a part            same       do not count that part any more
CONFIRMED  an agent's base shows both, and  (gone)     ended: reflected
           not only an earlier claim
CONFIRMED  the databases show both          READ       an agent that starts may still send an older snapshot
READ       the databases show it no longer  (gone)     ended: the consumer has gone
READ       a while has passed               (gone)     ended by forget (``core/claims.py``)
CONFIRMED  the base reports the end         (gone)     the agent ended the claim (``claims: {id: None}``)
any        forget                           (gone)     ended: remove what was still counted
=========  ===============================  =========  =====================================================

A claim that is only assumed stays until ``confirm`` or ``forget``, even if the base shows it already, so that
``forget`` always finds it.  A snapshot of another epoch does not end a claim; the claim stays until there is evidence.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared_scheduler.model.resources import Inventory, used_of
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.table.row import OwnClaim, Row, StoredConsumer, allocations_of
from shared_scheduler.table.row_writer import RowWriter

#: The rest must be this many times the amount of the own outstanding claims: enough for this number of schedulers, or
#: of requests of the same size.
SCHEDULERS = 16
#: At least this part (one in PART_LEFT) must be left, because a request of another scheduler may be larger.
PART_LEFT = 4


class DuplicateClaimError(ValueError):
    """A claim id was assumed twice."""


class Overlay:
    """All own outstanding claims.  Only this class writes ``Row.claims`` and the claims in it."""

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer
        self._rows: dict[str, Row] = {}  # claim id -> row

    def index(self, row: Row) -> None:
        """Add the claims of a copied row."""
        self._rows.update(dict.fromkeys(row.claims, row))

    def holds(self, claim_id: str) -> bool:
        """Whether the claim is outstanding."""
        return claim_id in self._rows

    def is_shown(self, claim_id: str) -> bool:
        """Whether the claim is outstanding and the base of its row shows both parts."""
        row = self._rows.get(claim_id)
        return row is not None and row.claims[claim_id].shown

    def assume(self, row: Row, claim: OwnClaim) -> None:
        """Add a new claim; both parts are counted."""
        if claim.claim_id in self._rows:
            raise DuplicateClaimError(f"claim {claim.claim_id} is assumed already")
        self._rows[claim.claim_id] = row
        row.claims[claim.claim_id] = claim
        if claim.group:
            self._writer.groups.add(claim.group, claim.consumer, row.slot)
        self._count_allocations(row, claim, 1)
        self._count_numbers(row, claim, 1)
        self.settle(row)

    def accepted(self, claim_id: str, epoch: int, reflected_sequence: int) -> Row | None:
        """Store the sequence that will show the claim; returns the row to settle."""
        row = self._rows.get(claim_id)
        if row is not None:
            claim = row.claims[claim_id]
            claim.epoch, claim.reflected_sequence = epoch, reflected_sequence
        return row

    def confirm(self, claim_id: str) -> Row | None:
        """Mark a claim that Placement has; returns the row to settle."""
        row = self._rows.get(claim_id)
        if row is not None:
            row.claims[claim_id].confirmed = True
        return row

    def forget(self, claim_id: str) -> Row | None:
        """End a claim and subtract the parts that are still counted; returns its row."""
        row = self._rows.get(claim_id)
        if row is not None:
            self._end(row, row.claims[claim_id])
        return row

    def drop(self, row: Row) -> None:
        """Remove a row with its claims."""
        for claim in list(row.claims.values()):
            self._end(row, claim)

    def mark_ended(self, row: Row, pending: Mapping[str, str | None]) -> None:
        """Mark the claims that the agent has ended: from now on only its report counts for them."""
        for claim in row.claims.values():
            claim.ended |= pending.get(claim.claim_id, claim.claim_id) is None

    def settle(self, row: Row) -> None:
        """Count, after a change of the base, exactly the parts that the base does not show."""
        for claim in list(row.claims.values()):
            sure = _is_reported(row, claim)
            stored = row.consumers.get(claim.consumer)
            held = sure or has_allocations(stored, row.node, _own_part(row, claim.allocations))
            counted = sure or (stored is not None and stored.member)
            if claim.counts_allocations == held:
                self._count_allocations(row, claim, -1 if held else 1)
            if claim.counts_numbers == counted:
                self._count_numbers(row, claim, -1 if counted else 1)
            if claim.confirmed and _is_over(row, claim):
                self._end(row, claim)

    def _end(self, row: Row, claim: OwnClaim) -> None:
        if claim.counts_allocations:
            self._count_allocations(row, claim, -1)
        if claim.counts_numbers:
            self._count_numbers(row, claim, -1)
        if claim.group:
            self._writer.groups.discard(claim.group, claim.consumer, row.slot)
        del row.claims[claim.claim_id]
        del self._rows[claim.claim_id]
        if not row.claims:
            self._writer.forget_usage(row)

    def _count_allocations(self, row: Row, claim: OwnClaim, sign: int) -> None:
        claim.counts_allocations = sign > 0
        self._writer.count_allocations(row, claim.allocations, sign)

    def _count_numbers(self, row: Row, claim: OwnClaim, sign: int) -> None:
        claim.counts_numbers = sign > 0
        self._writer.count_usage(row, claim.usage, sign)
        if claim.topology is not None and claim.topology.devices:
            self._writer.derive_pools(row)
        if claim.topology is not None and claim.topology.cells:
            self._writer.derive_cells(row)
        self._writer.update_member(row, claim.consumer)


def _is_over(row: Row, claim: OwnClaim) -> bool:
    """Whether no later message can lose the claim, because an agent shows it or the databases have shown it."""
    if row.epoch:
        return claim.shown and not _may_be_earlier(row, claim)
    was_read, claim.read = claim.read, claim.read or claim.shown
    return was_read and not claim.shown


def _may_be_earlier(row: Row, claim: OwnClaim) -> bool:
    """Whether what an agent shows may be of an earlier claim for the server, which may have ended: it is from before
    the report that shows this one, or, where no verdict has named that, it is pending under other ids only, or had been
    shown before."""
    is_reported = _is_reported(row, claim)
    if claim.reflected_sequence > 0 and claim.epoch == row.epoch:
        return not is_reported
    if not is_reported and claim.consumer in row.pending.values():
        return True
    return claim.before == (row.version, row.consumers.get(claim.consumer))


def _is_reported(row: Row, claim: OwnClaim) -> bool:
    """Whether the agent has reported this claim, or its end."""
    return claim.ended or claim.claim_id in row.pending or claim.reached(*row.version)


def _own_part(row: Row, allocations: Allocations) -> Allocations:
    """The part in the node's own tree; the base shows only this part of a consumer."""
    if not row.providers:
        return allocations
    return {rp: amounts for rp, amounts in allocations.items() if rp in row.providers}


def has_allocations(stored: StoredConsumer | None, node: str, wanted: Allocations) -> bool:
    """Whether a consumer of the base holds at least the amounts of a claim on each provider."""
    if stored is None:
        return False
    held = allocations_of(node, stored)
    return all(
        held.get(provider, {}).get(rc, 0) >= amount
        for provider, amounts in wanted.items()
        for rc, amount in amounts.items()
    )


def has_headroom(row: Row, allocations: Allocations) -> bool:
    """Whether so much is left for each provider and class of ``allocations`` (already assumed) that a write needs no
    check afterwards.

    If no agent judges the claims of a node, Placement is the only judge, and it over-commits a provider when writers
    race for the last units (doc/source/admin/placement.rst).  A writer therefore reads the usage after its write, which
    costs more than the write.  The read is omitted if the provider cannot be nearly full.  The overlay shows how much
    this scheduler took since the row was read.  Other schedulers took about the same amount, because they get an equal
    share of the requests.

    False for a provider that is not of the row's tree.
    """
    return all(
        _is_roomy(row, provider, resource_class)
        for provider, amounts in allocations.items()
        for resource_class in amounts
    )


def _is_roomy(row: Row, provider: str, resource_class: str) -> bool:
    inventory = _inventory(row, provider, resource_class)
    if inventory is None:
        return False
    free = inventory.capacity - used_of(row.used, provider, resource_class)
    return free >= SCHEDULERS * _taken(row, provider, resource_class) and free * PART_LEFT >= inventory.capacity


def has_room(row: Row, allocations: Allocations, times: int) -> bool:
    """Whether so many times the amounts of ``allocations`` are left beside all that is counted.

    False for a provider that is not of the row's tree."""
    return all(
        _left(row, provider, resource_class) >= times * amount
        for provider, amounts in allocations.items()
        for resource_class, amount in amounts.items()
    )


def _left(row: Row, provider: str, resource_class: str) -> int:
    inventory = _inventory(row, provider, resource_class)
    if inventory is None:
        return 0
    used = used_of(row.used, provider, resource_class) + _taken(row, provider, resource_class)
    return inventory.capacity - used


def _inventory(row: Row, provider: str, resource_class: str) -> Inventory | None:
    known = row.providers.get(provider)
    return None if known is None else known.inventories.get(resource_class)


def _taken(row: Row, provider: str, resource_class: str) -> int:
    """By the own claims that are counted."""
    return sum(
        used_of(claim.allocations, provider, resource_class)
        for claim in row.claims.values() if claim.counts_allocations
    )  # fmt: skip
