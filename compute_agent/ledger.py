# SPDX-License-Identifier: Apache-2.0
"""Judges claims, one after another, against what one node holds.

The *tracker's* leaves are what nova-compute says.  The *effective* leaves are those plus every
pending claim (claims.py).  Amounts of Placement's kind are the sum over the node's consumers: what
Placement was seen to hold, plus pending claims that it was not seen to hold yet.  nova-compute's own
facts are taken as they come, even if they make something negative: it also claims uninvited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from compute_agent.accounts import Accounts
from compute_agent.claims import Bounded, Ending, How, Pending, ways
from compute_agent.effects import KeptClaim
from compute_agent.events import Member, TrackerReported
from compute_agent.settings import MAX_EARLY_RELEASES
from shared_scheduler.protocol.limits import CLAIMS_PER_NODE_MAX
from shared_scheduler.protocol.messages import (
    Allocations,
    Claim,
    Consumer,
    Leaf,
    Reason,
    RefusalCode,
    Usage,
)
from shared_scheduler.state.fits import Rule, first_shortage
from shared_scheduler.state.resources import sum_amounts

#: What nova-compute makes inventories of (``reserved_host_*`` it tells to Placement alone).
CAPACITY = (
    "cn.vcpus",
    "cn.memory_mb",
    "cn.local_gb",
    "cn.cpu_allocation_ratio",
    "cn.ram_allocation_ratio",
    "cn.disk_allocation_ratio",
)


#: what somebody holds who holds nothing
_NOTHING: Allocations = {}


class TopologyFit(Protocol):
    """Nova's own NUMA and PCI fit (``sources/topology.py``), or none at all."""

    def consume(self, leaves: Mapping[str, Leaf], topology: str) -> Mapping[str, Leaf] | Reason:
        """The leaves that change when ``topology`` is taken from ``leaves`` (None: gone), or why not."""


class NoTopology:
    """Refuses everything that asks for NUMA or PCI: for worlds without Nova."""

    def consume(self, leaves: Mapping[str, Leaf], topology: str) -> Mapping[str, Leaf] | Reason:
        return Reason(RefusalCode.TOPOLOGY, {"why": "this agent has no NUMA and PCI fit"})


class Ledger:
    """What one node holds, and what it still can take."""

    def __init__(self, node: str, fit: TopologyFit) -> None:
        self.node = node
        self.accounts = Accounts()
        self.members: dict[str, Member] = {}
        self.pending: dict[str, Pending] = {}
        self.leaves: dict[str, Leaf] = {}
        self._fit = fit
        self._tracker_leaves: dict[str, Leaf] = {}
        self._early_releases: Bounded[bool] = Bounded(MAX_EARLY_RELEASES)
        self._consumers: dict[str, Consumer] = {}

    # -- judging ----------------------------------------------------------------------------------

    def judge(self, claim: Claim, now: float) -> Reason | None:
        """Take the claim, or say why not.  Nothing changes when it is refused."""
        reason = self._prejudice(claim) or self._shortage(claim)
        if reason is not None:
            return reason
        changed = self._topology_of(claim)
        if isinstance(changed, Reason):
            return changed
        known_as = ways(self.members.get(claim.consumer))
        self.pending[claim.claim_id] = Pending(claim, now, known_as)
        _apply(self.leaves, changed)
        _add_usage(self.leaves, claim.usage)
        return None

    def restore(self, kept: KeptClaim, now: float) -> None:
        """Hold a claim that an earlier life of this agent accepted, until its evidence is found."""
        self.pending[kept.claim.claim_id] = Pending(kept.claim, now, kept.known_as)
        self._count_again()

    def _prejudice(self, claim: Claim) -> Reason | None:
        if self._early_releases.forget(claim.claim_id):
            return Reason(RefusalCode.RELEASED)
        if len(self.pending) >= CLAIMS_PER_NODE_MAX:
            return Reason(RefusalCode.TOO_MANY_CLAIMS, {"most": CLAIMS_PER_NODE_MAX})
        return _malformed(claim)

    def _shortage(self, claim: Claim) -> Reason | None:
        """Placement's capacity rule for each provider of this tree.

        Other providers (shared storage) are Placement's to judge.
        """
        if claim.allocations and not self._ours(claim):
            return Reason(RefusalCode.NO_INVENTORY, {"providers": [*sorted(claim.allocations)]})
        shortage = first_shortage(
            {rp: facts.inventories for rp, facts in self.accounts.providers.items()},
            self.used(),
            self._ours(claim),
        )
        if shortage is None:
            return None
        none = shortage.rule is Rule.NO_INVENTORY
        code = RefusalCode.NO_INVENTORY if none else RefusalCode.NO_CAPACITY
        return Reason(code, shortage.detail())

    def _topology_of(self, claim: Claim) -> Mapping[str, Leaf] | Reason:
        return self._fit.consume(self.leaves, claim.topology) if claim.topology else {}

    # -- the life of pending claims (table in claims.py) -------------------------------------------

    def release(self, claim_id: str) -> Ending | None:
        """The scheduler takes it back; unknown here means that the release came first."""
        if claim_id not in self.pending:
            self._early_releases.remember(claim_id, True)
            return None
        return self._end([claim_id], How.RELEASED)[0]

    def refused_by_compute(self, consumer: str, why: str) -> list[Ending]:
        ids = [key for key, held in self.pending.items() if held.claim.consumer == consumer]
        return self._end(ids, How.REFUSED, why)

    def reported(self, report: TrackerReported, now: float) -> list[Ending]:
        """Take what the tracker says; claims that it has taken over end."""
        self._take_members(report)
        self._take_leaves(report)
        taken = [key for key, held in self.pending.items() if self._is_taken_over(held)]
        for key in taken:
            self._believe_taken(self.pending[key], now)
        endings = self._end(taken, How.TAKEN_OVER)
        self._count_again()
        return endings

    def allocations_read(
        self, consumers: Mapping[str, Allocations], started_at_s: float, check_after_s: float
    ) -> list[Ending]:
        """Take a complete read of the tree's consumers; claims that it disproves end."""
        self.accounts.set_allocations(consumers, started_at_s)
        gone = [
            key
            for key, held in self.pending.items()
            if started_at_s > held.accepted_at_s
            and self._is_disproved(held, started_at_s, check_after_s)
        ]
        return self._end(gone, How.VANISHED)

    def _is_taken_over(self, held: Pending) -> bool:
        known = ways(self.members.get(held.claim.consumer))
        held.known_as &= known
        return bool(known - held.known_as)

    def _believe_taken(self, held: Pending, now: float) -> None:
        """A build begins after the allocation was written: so Placement has it by now."""
        claim = held.claim
        if not self._is_in_placement(held):
            self.accounts.believe(claim.consumer, self._ours(claim), now)

    def _is_disproved(self, held: Pending, started_at_s: float, check_after_s: float) -> bool:
        if self._is_in_placement(held):
            held.written = True
            return False
        return held.written or started_at_s >= held.accepted_at_s + check_after_s

    def _is_in_placement(self, held: Pending) -> bool:
        claim = held.claim
        return self.accounts.holds(claim.consumer, self._ours(claim), held.accepted_at_s)

    def _end(self, claim_ids: Iterable[str], how: How, why: str = "") -> list[Ending]:
        endings = [Ending(self.pending.pop(key).claim, how, why) for key in claim_ids]
        if endings:
            self._count_again()
        return endings

    # -- views ------------------------------------------------------------------------------------

    def capacity(self) -> tuple[Leaf, ...]:
        """The tracker's ``CAPACITY``; None for what it has not told."""
        return tuple(self._tracker_leaves.get(name) for name in CAPACITY)

    def used(self) -> dict[str, dict[str, int]]:
        """Provider -> resource class -> amount, over all that is counted."""
        return sum_amounts(self._counted().values())

    def holds_something(self, consumer: str) -> bool:
        """Is anything of Placement's kind counted for this consumer?"""
        return bool(self._counted().get(consumer))

    def explains(self, consumer: str) -> bool:
        """Does an instance, a migration that nova-compute counts, or a claim stand for it?"""
        known = {member.migration for member in self.members.values()}
        waiting = {held.claim.consumer for held in self.pending.values()}
        return consumer in self.members or consumer in known or consumer in waiting

    def consumers(self) -> dict[str, Consumer]:
        """Everybody who holds something here or is (about to be) an instance here."""
        counted = self._counted()
        present = self.members.keys() | {held.claim.consumer for held in self.pending.values()}
        self._consumers = {
            consumer: self._consumer(consumer, counted.get(consumer, _NOTHING), consumer in present)
            for consumer in counted.keys() | self.members.keys()
        }
        return self._consumers

    def _consumer(self, uuid: str, allocations: Allocations, member: bool) -> Consumer:
        """The same object as last time if it is the same: then nobody has to compare it."""
        last = self._consumers.get(uuid)
        if last is not None and last.allocations is allocations and last.member is member:
            return last
        return Consumer(allocations, member)

    def claims(self) -> dict[str, str]:
        return {key: held.claim.consumer for key, held in self.pending.items()}

    def kept(self) -> tuple[KeptClaim, ...]:
        return tuple(held.kept() for held in self.pending.values())

    def in_doubt(self) -> Iterator[str]:
        return (key for key, held in self.pending.items() if held.in_doubt)

    def _counted(self) -> dict[str, Allocations]:
        counted = {key: belief.allocations for key, belief in self.accounts.beliefs.items()}
        for held in self.pending.values():
            if not self._is_in_placement(held):
                consumer = held.claim.consumer
                both = sum_amounts((counted.get(consumer, {}), self._ours(held.claim)))
                counted[consumer] = both
        return counted

    def _ours(self, claim: Claim) -> Allocations:
        """The claim's part in this node's tree; all of it while the tree is not known."""
        if not self.accounts.tree_known:
            return claim.allocations
        providers = self.accounts.providers
        return {rp: resources for rp, resources in claim.allocations.items() if rp in providers}

    # -- counting ---------------------------------------------------------------------------------

    def _take_members(self, report: TrackerReported) -> None:
        if report.complete:
            self.members = {}
        for consumer, member in report.members.items():
            if member is None:
                self.members.pop(consumer, None)
            else:
                self.members[consumer] = member

    def _take_leaves(self, report: TrackerReported) -> None:
        if report.complete:
            self._tracker_leaves = {}
        _apply(self._tracker_leaves, report.leaves)

    def _count_again(self) -> None:
        """The tracker's leaves plus all pending claims, oldest first."""
        self.leaves = dict(self._tracker_leaves)
        for held in self.pending.values():
            changed = self._topology_of(held.claim)
            held.in_doubt = isinstance(changed, Reason)
            if not isinstance(changed, Reason):
                _apply(self.leaves, changed)
            _add_usage(self.leaves, held.claim.usage)


def _malformed(claim: Claim) -> Reason | None:
    if not claim.consumer:
        return Reason(RefusalCode.MALFORMED, {"field": "consumer", "why": "empty"})
    for provider, resources in claim.allocations.items():
        for resource_class, amount in resources.items():
            if amount <= 0:
                field = f"allocations.{provider}.{resource_class}"
                return Reason(RefusalCode.MALFORMED, {"field": field, "why": f"{amount} <= 0"})
    return None


def _apply(target: dict[str, Leaf], changed: Mapping[str, Leaf]) -> None:
    """Absolute values replace, None removes."""
    for name, value in changed.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = value


def _add_usage(leaves: dict[str, Leaf], usage: Usage) -> None:
    """The numbers that nova-compute will change when it takes this over (HostState's consumption)."""
    for name, amount in (
        ("cn.vcpus_used", usage.vcpus),
        ("cn.memory_mb_used", usage.memory_mb),
        ("cn.free_ram_mb", -usage.memory_mb),
        ("cn.local_gb_used", usage.disk_gb),
        ("cn.free_disk_gb", -usage.disk_gb),
        ("stats.num_instances", usage.instances),
        ("stats.io_workload", usage.io_ops),
    ):
        value = leaves.get(name, 0)
        if amount and isinstance(value, (int, float)):
            leaves[name] = value + amount
