# SPDX-License-Identifier: Apache-2.0
"""Bugs that people make in the ledger of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from compute_agent.agent_settings import MAX_EARLY_RELEASES
from compute_agent.claim_ledger import ClaimLedger, PendingClaim
from compute_agent.fair_memory import FairMemory
from compute_agent.placement_mirror import NodeMirror
from shared_scheduler.protocol.messages import Claim
from tests.unit.compute_agent.claim_ledger_machine import ClaimLedgerMachine
from tests.unit.compute_agent.numa_cells import CELL, POOL
from tests.unit.planted.planting import bug

# -- judging


@bug(ClaimLedgerMachine)
def judge_without_pending_claims(patch: pytest.MonkeyPatch) -> None:
    """Claims that are accepted and not built yet are not counted when the next one is judged."""

    def shortage(self: ClaimLedger, claim: Claim) -> Any:
        pending, self.pending = self.pending, {}
        try:
            return real(self, claim)
        finally:
            self.pending = pending

    real = ClaimLedger._shortage
    patch.setattr(ClaimLedger, "_shortage", shortage)


@bug(ClaimLedgerMachine)
def pin_without_pending_claims(patch: pytest.MonkeyPatch) -> None:
    """The pinned CPUs of a claim are not taken until nova-compute takes them."""
    keep_leaf_at_judging(patch, CELL)


@bug(ClaimLedgerMachine)
def give_devices_without_pending_claims(patch: pytest.MonkeyPatch) -> None:
    """The devices of a claim stay free until nova-compute takes them."""
    keep_leaf_at_judging(patch, POOL)


def keep_leaf_at_judging(patch: pytest.MonkeyPatch, name: str) -> None:
    def topology_of(self: ClaimLedger, claim: Claim) -> Any:
        found = real(self, claim)
        if isinstance(found, Mapping):
            return {key: value for key, value in found.items() if key != name}
        return found

    real = ClaimLedger._topology_of
    patch.setattr(ClaimLedger, "_topology_of", topology_of)


@bug(ClaimLedgerMachine)
def accept_what_was_released(patch: pytest.MonkeyPatch) -> None:
    """A claim whose release came first is judged as if nothing had been."""

    def reason_before_capacity(self: ClaimLedger, claim: Claim) -> Any:
        self._early_releases = FairMemory(MAX_EARLY_RELEASES)
        return real(self, claim)

    real = ClaimLedger._reason_before_capacity
    patch.setattr(ClaimLedger, "_reason_before_capacity", reason_before_capacity)


@bug(ClaimLedgerMachine)
def let_a_refusal_change_something(patch: pytest.MonkeyPatch) -> None:
    """A claim that does not fit is pending all the same."""

    def judge(self: ClaimLedger, claim: Claim, now: float) -> Any:
        reason = real(self, claim, now)
        if reason is not None:
            self.pending[claim.claim_id] = PendingClaim(claim, now)
        return reason

    real = ClaimLedger.judge
    patch.setattr(ClaimLedger, "judge", judge)


# -- the life of claims


@bug(ClaimLedgerMachine)
def let_a_claim_end_by_a_timer(patch: pytest.MonkeyPatch) -> None:
    """A claim that is old is let go, whatever Placement holds (un-consume on a timer)."""

    def is_disproved(self: ClaimLedger, held: PendingClaim, started_s: float, after_s: float) -> bool:
        return started_s >= held.accepted_at_s + after_s

    patch.setattr(ClaimLedger, "_is_disproved", is_disproved)


@bug(ClaimLedgerMachine)
def let_a_young_claim_vanish(patch: pytest.MonkeyPatch) -> None:
    """A claim that Placement does not hold yet ends at the first check."""

    def is_disproved(self: ClaimLedger, held: PendingClaim, started_s: float, after_s: float) -> bool:
        return not self._is_in_placement(held)

    patch.setattr(ClaimLedger, "_is_disproved", is_disproved)


@bug(ClaimLedgerMachine)
def never_take_over(patch: pytest.MonkeyPatch) -> None:
    """A claim stays pending after nova-compute has taken it over."""
    patch.setattr(ClaimLedger, "_is_taken_over", lambda self, held: False)


@bug(ClaimLedgerMachine)
def lose_claims_at_a_report(patch: pytest.MonkeyPatch) -> None:
    """What nova-compute says replaces the claims that it does not know yet."""

    def count(self: ClaimLedger) -> None:
        self.leaves = dict(self._tracker_leaves)

    patch.setattr(ClaimLedger, "_count_again", count)


@bug(ClaimLedgerMachine)
def forget_claims_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """What an earlier life accepted is not held."""
    patch.setattr(ClaimLedger, "restore", lambda self, kept, now: None)


@bug(ClaimLedgerMachine)
def forget_a_release(patch: pytest.MonkeyPatch) -> None:
    """A claim that its scheduler takes back stays pending."""

    def end(self: ClaimLedger, claim_ids: Any, how: Any, why: str = "") -> Any:
        kept = dict(self.pending)
        found = real(self, claim_ids, how, why)
        self.pending = kept
        return found

    real = ClaimLedger._end
    patch.setattr(ClaimLedger, "_end", end)


@bug(ClaimLedgerMachine)
def end_the_claims_of_others(patch: pytest.MonkeyPatch) -> None:
    """One refused build ends every pending claim."""

    def refused(self: ClaimLedger, consumer: str, why: str) -> Any:
        return real(self, consumer, why) and [
            one for key in list(self.pending) if (one := self.release(key)) is not None
        ]

    real = ClaimLedger.refused_by_compute
    patch.setattr(ClaimLedger, "refused_by_compute", refused)


@bug(ClaimLedgerMachine)
def count_a_written_claim_twice(patch: pytest.MonkeyPatch) -> None:
    """A pending claim counts beside the allocation that was seen of it."""
    patch.setattr(NodeMirror, "holds", lambda self, consumer, allocations, since_s: False)
