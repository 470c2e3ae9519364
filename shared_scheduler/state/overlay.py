# SPDX-License-Identifier: Apache-2.0
"""Counts own outstanding claims into rows, and out of them (theory and table: ``state/claims.py``)."""

from __future__ import annotations

from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.state.claims import OwnClaim
from shared_scheduler.state.members import Members
from shared_scheduler.state.numbers import Extra
from shared_scheduler.state.resources import add_amounts
from shared_scheduler.state.row import Row, has_allocations
from shared_scheduler.state.row_columns import RowWriter


class DuplicateClaimError(ValueError):
    """A claim id was assumed twice."""


class Overlay:
    """All own outstanding claims."""

    def __init__(self, writer: RowWriter, members: Members) -> None:
        self._writer = writer
        self._members = members
        self._rows: dict[str, Row] = {}  # claim id -> row

    def holds(self, claim_id: str) -> bool:
        """Whether it is outstanding."""
        return claim_id in self._rows

    def is_shown(self, claim_id: str) -> bool:
        """Whether it is outstanding and its row's base shows all of it."""
        row = self._rows.get(claim_id)
        return row is not None and row.claims[claim_id].shown

    def assume(self, row: Row, claim: OwnClaim) -> None:
        """A new claim; both parts are counted."""
        if claim.claim_id in self._rows:
            raise DuplicateClaimError(f"claim {claim.claim_id} is assumed already")
        self._rows[claim.claim_id] = row
        row.claims[claim.claim_id] = claim
        self._count_allocations(row, claim, 1)
        self._count_numbers(row, claim, 1)
        self.settle(row)

    def accepted(self, claim_id: str, epoch: int, reflected_sequence: int) -> Row | None:
        """Know the sequence that shows it; returns the row to settle."""
        row = self._rows.get(claim_id)
        if row is not None:
            claim = row.claims[claim_id]
            claim.epoch, claim.reflected_sequence = epoch, reflected_sequence
        return row

    def confirm(self, claim_id: str) -> Row | None:
        """Placement holds it; returns the row to settle."""
        row = self._rows.get(claim_id)
        if row is not None:
            row.claims[claim_id].kept = True
        return row

    def forget(self, claim_id: str) -> Row | None:
        """End it, giving back what is still counted; returns its row."""
        row = self._rows.get(claim_id)
        if row is not None:
            self._end(row, row.claims[claim_id])
        return row

    def drop(self, row: Row) -> None:
        """The row goes away, with its claims."""
        for claim in list(row.claims.values()):
            self._end(row, claim)

    def ended(self, row: Row, claim_id: str) -> None:
        """The agent let the claim go: the base alone tells the truth about it now."""
        claim = row.claims.get(claim_id)
        if claim is not None:
            claim.ended = True

    def settle(self, row: Row) -> None:
        """The base changed: count each part exactly where the base does not show it."""
        for claim in list(row.claims.values()):
            sure = claim.ended or claim.claim_id in row.pending or claim.reached(*row.version)
            stored = row.consumers.get(claim.consumer)
            held = sure or has_allocations(stored, row.node, _own_part(row, claim.allocations))
            counted = sure or (stored is not None and stored.member)
            if claim.counts_allocations == held:
                self._count_allocations(row, claim, -1 if held else 1)
            if claim.counts_numbers == counted:
                self._count_numbers(row, claim, -1 if counted else 1)
            if claim.kept and _is_over(row, claim):
                self._end(row, claim)

    def _end(self, row: Row, claim: OwnClaim) -> None:
        if claim.counts_allocations:
            self._count_allocations(row, claim, -1)
        if claim.counts_numbers:
            self._count_numbers(row, claim, -1)
        del row.claims[claim.claim_id]
        del self._rows[claim.claim_id]
        if not row.claims:
            row.extra = None

    def _count_allocations(self, row: Row, claim: OwnClaim, sign: int) -> None:
        claim.counts_allocations = sign > 0
        add_amounts(row.used, claim.allocations, sign)
        self._writer.rooms(row, claim.allocations.get(row.node, {}))
        if any(provider != row.node for provider in claim.allocations):
            self._writer.elsewhere(row)

    def _count_numbers(self, row: Row, claim: OwnClaim, sign: int) -> None:
        claim.counts_numbers = sign > 0
        if row.extra is None:
            row.extra = Extra()
        row.extra.add(claim.usage, sign)
        self._writer.numbers(row)
        if claim.topology is not None and claim.topology.devices:
            self._writer.pools(row)
        if claim.topology is not None and claim.topology.cells:
            self._writer.cells(row)
        if row.is_member(claim.consumer):
            self._members.add(claim.consumer, row.slot)
        else:
            self._members.discard(claim.consumer, row.slot)


def _is_over(row: Row, claim: OwnClaim) -> bool:
    """Whether nothing that comes can lose it any more: an agent shows it, or the databases did."""
    if row.epoch:
        return claim.shown
    was_read, claim.read = claim.read, claim.read or claim.shown
    return was_read and not claim.shown


def _own_part(row: Row, allocations: Allocations) -> Allocations:
    """What is taken of the node's own tree: the base shows no more than that of a consumer."""
    if not row.providers:
        return allocations
    return {rp: amounts for rp, amounts in allocations.items() if rp in row.providers}
