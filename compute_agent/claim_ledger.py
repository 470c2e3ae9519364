# SPDX-License-Identifier: Apache-2.0
"""The ledger of one node: it judges claims, one after another, against what the node holds.

The *tracker's* leaves are what nova-compute reports.  The *effective* leaves are those plus every pending claim.
Amounts of Placement's kind are the sum over the node's consumers: the allocations that Placement was seen to hold,
plus the pending claims that it was not seen to hold yet.  nova-compute's own facts are taken as they are, even if they
make an amount negative, because nova-compute also claims without asking the agent.

The life of a claim on its node
===============================
An accepted claim is *pending*: it is counted on top of what nova-compute's resource tracker holds, until there is
evidence that this is no longer needed.  Minutes may pass between the verdict and the moment at which the tracker takes
the instance over (builds queue), so no timer ends a claim.  A timer only makes the agent read Placement.

=======  =================================================  ==========  ============================================
state    evidence                                           next        counted afterwards
=======  =================================================  ==========  ============================================
(asked)  does not fit, or the node is not authoritative     (refused)   nothing
(asked)  its Release arrived first                          (refused)   nothing
(asked)  its server group refuses it (group_ledger.py)      (refused)   nothing
(asked)  fits                                               pending     allocations, usage and topology of the claim
pending  the tracker counts the consumer in a new way       taken_over  the tracker's leaves; allocations as claimed
pending  Placement has its allocation, and the tracker has  taken_over  the same
         counted the consumer in the same way all the time
         for ``SETTLED_AFTER_S``, or, if no migration may
         wait, for ``AUDITED_AFTER_S``
pending  the scheduler releases it                          released    nothing
pending  nova-compute refused to claim for the consumer     refused     what Placement has
pending  Placement had its allocation and has it no longer  vanished    what Placement has
pending  Placement does not have it, and it is so old that  vanished    what Placement has
         the scheduler's write cannot be carried out later
=======  =================================================  ==========  ============================================

*In a new way*: a resize to the same host claims for an instance that the tracker counts already.  Therefore each
pending claim remembers how its consumer was counted when it was accepted ("instance", "migration:<uuid>"), and only
another way takes it over.  Ways that disappear are removed from it, so that they count as new when they return.
A claim may also arrive after its instance, by way of an earlier claim, or the resize may begin and end while nobody
reports.  No other way follows then.  A resize that waits is a migration, which holds the old allocation here, and which
the tracker does not know.  If Placement shows no such consumer, none waits, and what the tracker counts after its next
audit is no failed build; otherwise this is certain only after a time in which no resize waits.  The time begins again
when nova-compute was away, because its queue waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from compute_agent.agent_settings import AUDITED_AFTER_S, MAX_EARLY_RELEASES, SETTLED_AFTER_S
from compute_agent.effects import KeptClaim
from compute_agent.events import Member, TrackerReported
from compute_agent.fair_memory import FairMemory
from compute_agent.group_ledger import GroupLedger
from compute_agent.placement_mirror import NodeMirror
from shared_scheduler.model.resources import Rule, first_shortage, sum_amounts
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S, CLAIMS_PER_NODE_MAX
from shared_scheduler.protocol.messages import Allocations, Claim, Consumer, Leaf, Reason, RefusalCode, Usage

#: The leaves from which nova-compute makes inventories.  (It reports ``reserved_host_*`` to Placement only.)
CAPACITY = (
    "cn.vcpus",
    "cn.memory_mb",
    "cn.local_gb",
    "cn.cpu_allocation_ratio",
    "cn.ram_allocation_ratio",
    "cn.disk_allocation_ratio",
)
#: The allocations of a consumer that holds nothing.
_NOTHING: Allocations = {}
_NO_GROUPS: Mapping[str, str] = {}
_NO_GENERATIONS: Mapping[str, int] = {}


class ClaimEnd(StrEnum):
    """How a pending claim ended."""

    TAKEN_OVER = "taken_over"
    RELEASED = "released"
    REFUSED = "refused"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class EndedClaim:
    """The end of a pending claim.  Each claim ends exactly once."""

    claim: Claim
    how: ClaimEnd
    why: str = ""


@dataclass(slots=True)
class PendingClaim:
    """An accepted claim that the tracker has not taken over yet."""

    claim: Claim
    accepted_at_s: float
    known_as: frozenset[str] = frozenset()
    #: whether a read has shown its allocations in Placement
    written: bool = False
    #: whether its NUMA or PCI part does not fit on top of the newest leaves of the tracker
    in_doubt: bool = False

    def kept(self) -> KeptClaim:
        return KeptClaim(self.claim, self.known_as)


def _ways(member: Member | None) -> frozenset[str]:
    """The ways in which the tracker counts a consumer."""
    if member is None:
        return frozenset()
    found = {"instance"} if member.instance else set()
    if member.migration:
        found.add(f"migration:{member.migration}")
    return frozenset(found)


class TopologyFit(Protocol):
    """Nova's own NUMA and PCI fit (``shared_scheduler/novalib/topology.py``), or none at all."""

    def consume(self, leaves: Mapping[str, Leaf], topology: str) -> Mapping[str, Leaf] | Reason:
        """The leaves that change when ``topology`` is consumed from ``leaves`` (None: removed), or a refusal."""


class ClaimLedger:
    """What one node holds, and which claims it can still accept."""

    def __init__(self, node: str, fit: TopologyFit, groups: Mapping[str, str] = _NO_GROUPS) -> None:
        self.node = node
        self.groups = GroupLedger(groups)
        self.mirror = NodeMirror()
        self.members: dict[str, Member] = {}
        self.pending: dict[str, PendingClaim] = {}
        self.leaves: dict[str, Leaf] = {}
        self._fit = fit
        self._tracker_leaves: dict[str, Leaf] = {}
        #: claim id, consumer and scheduler of a release whose claim did not arrive yet
        self._early_releases: FairMemory[tuple[str, str, str], None] = FairMemory(MAX_EARLY_RELEASES)
        self._consumers: dict[str, Consumer] = {}
        self._members_are_known = False
        self._counted_since_s: float | None = None  # nova-compute has reported without a break; None: it does not

    # -- judging ----------------------------------------------------------------------------------

    def judge(self, claim: Claim, now: float) -> Reason | None:
        """Accept the claim, or return the reason to refuse it.  A refusal changes nothing."""
        present = self._present()
        refused = self._reason_before_capacity(claim) or self._shortage(claim)
        reason = refused or self.groups.judge(claim, present, self.members.keys())
        if reason is not None:
            return reason
        changed = self._topology_of(claim)
        if isinstance(changed, Reason):
            return changed
        self.groups.learn(claim, present)
        known_as = _ways(self.members.get(claim.consumer))
        self.pending[claim.claim_id] = PendingClaim(claim, now, known_as)
        self.mirror.set_claimed(claim.consumer, claim.allocations)
        _apply(self.leaves, changed)
        _add_usage(self.leaves, claim.usage)
        return None

    def restore(self, kept: KeptClaim, now: float) -> None:
        """Count a claim that an earlier run of this agent accepted, until there is evidence of its end."""
        self.pending[kept.claim.claim_id] = PendingClaim(kept.claim, now, kept.known_as)
        self.mirror.set_claimed(kept.claim.consumer, kept.claim.allocations)
        self.groups.learn(kept.claim, self._present())
        self._count_again()

    def _reason_before_capacity(self, claim: Claim) -> Reason | None:
        released = (claim.claim_id, claim.consumer, claim.scheduler)
        if released in self._early_releases:
            self._early_releases.forget(released)
            return Reason(RefusalCode.RELEASED)
        if claim.claim_id in self.pending:
            return Reason(RefusalCode.MALFORMED, {"field": "claim_id", "why": "of another claim"})
        if len(self.pending) >= CLAIMS_PER_NODE_MAX:
            return Reason(RefusalCode.TOO_MANY_CLAIMS, {"most": CLAIMS_PER_NODE_MAX})
        return _malformed(claim)

    def _shortage(self, claim: Claim) -> Reason | None:
        """Placement's capacity rule for each provider of this tree.

        Placement itself checks other providers (shared storage).
        """
        if not self._ours(claim):
            return Reason(RefusalCode.NO_INVENTORY, {"providers": [*sorted(claim.allocations)]})
        shortage = first_shortage(
            {rp: facts.inventories for rp, facts in self.mirror.providers.items()},
            self.used(),
            self._ours(claim),
        )
        if shortage is None:
            return None
        none = shortage.rule is Rule.NO_INVENTORY
        code = RefusalCode.NO_INVENTORY if none else RefusalCode.NO_CAPACITY
        return Reason(code, shortage.detail())

    def _present(self) -> set[str]:
        """Instances that are or will be on this node."""
        return self.members.keys() | {held.claim.consumer for held in self.pending.values()}

    def _topology_of(self, claim: Claim) -> Mapping[str, Leaf] | Reason:
        return self._fit.consume(self.leaves, claim.topology) if claim.topology else {}

    # -- the life of pending claims (table above) -------------------------------------------------

    def release(self, claim_id: str, consumer: str, scheduler: str) -> EndedClaim | None:
        """End a claim that its scheduler releases.  An unknown id is remembered, because its release arrived first.

        A release that names another consumer or scheduler than the claim is not from the scheduler that cast it, and
        changes nothing."""
        held = self.pending.get(claim_id)
        if held is None:
            self._early_releases.set(scheduler, (claim_id, consumer, scheduler), None)
            return None
        if (held.claim.consumer, held.claim.scheduler) != (consumer, scheduler):
            return None
        return self._end([claim_id], ClaimEnd.RELEASED)[0]

    def holds_claim(self, claim: Claim) -> bool:
        """Whether this claim is pending, and not another one with its id."""
        held = self.pending.get(claim.claim_id)
        return held is not None and (held.claim.consumer, held.claim.scheduler) == (claim.consumer, claim.scheduler)

    def refused_by_compute(self, consumer: str, why: str) -> list[EndedClaim]:
        ids = [key for key, held in self.pending.items() if held.claim.consumer == consumer]
        return self._end(ids, ClaimEnd.REFUSED, why)

    def reported(self, report: TrackerReported, now: float) -> list[EndedClaim]:
        """Take a report of the tracker.  Claims that it has taken over end, once nova-compute has audited the node."""
        self._take_members(report)
        self._take_leaves(report)
        taken = [key for key, held in self.pending.items() if report.ready and self._is_taken_over(held)]
        for key in taken:
            self._note_taken(self.pending[key], now)
        endings = self._end(taken, ClaimEnd.TAKEN_OVER)
        self._count_again()
        self._members_are_known |= report.complete and report.ready
        if self._counted_since_s is None and report.complete and report.ready:
            self._counted_since_s = now
        self._forget_groups()
        return endings

    def tracker_lost(self) -> None:
        """Note that nova-compute does not report any more: what it has queued waits until it does again."""
        self._counted_since_s = None

    def allocations_read(
        self,
        consumers: Mapping[str, Allocations],
        started_at_s: float,
        check_after_s: float,
        generations: Mapping[str, int] = _NO_GENERATIONS,
    ) -> list[EndedClaim]:
        """Take a complete read of the tree's consumers.  Claims that it disproves end."""
        self.mirror.set_allocations(consumers, started_at_s, generations)
        gone = [
            key
            for key, held in self.pending.items()
            if started_at_s > held.accepted_at_s and self._is_disproved(held, started_at_s, check_after_s)
        ]
        endings = self._end(gone, ClaimEnd.VANISHED)
        settled = [key for key, held in self.pending.items() if self._is_settled(held, started_at_s)]
        endings += self._end(settled, ClaimEnd.TAKEN_OVER, "the tracker counted its consumer before")
        self.mirror.forget_claimed({held.claim.consumer for held in self.pending.values()})
        self._forget_groups()
        return endings

    def _is_taken_over(self, held: PendingClaim) -> bool:
        known = _ways(self.members.get(held.claim.consumer))
        held.known_as &= known
        return bool(known - held.known_as)

    def _note_taken(self, held: PendingClaim, now: float) -> None:
        """Assume that Placement has the allocation, because a build begins after the allocation was written."""
        claim = held.claim
        if not self._is_in_placement(held):
            self.mirror.set_known(claim.consumer, self._ours(claim), now)

    def _is_disproved(self, held: PendingClaim, started_at_s: float, check_after_s: float) -> bool:
        if self._is_in_placement(held):
            held.written = True
            return False
        carried_out_s = held.accepted_at_s + check_after_s + CARRIED_OUT_WITHIN_S
        return held.written or started_at_s >= carried_out_s

    def _is_settled(self, held: PendingClaim, started_at_s: float) -> bool:
        """Whether the tracker counts what a claim was for, in a way that is older than the claim."""
        if self._counted_since_s is None or not held.written or "instance" not in held.known_as:
            return False
        may_wait = not self.mirror.known.keys() <= self._explained()
        settled_after_s = SETTLED_AFTER_S if may_wait else AUDITED_AFTER_S
        return started_at_s >= max(held.accepted_at_s, self._counted_since_s) + settled_after_s

    def _is_in_placement(self, held: PendingClaim) -> bool:
        claim = held.claim
        return self.mirror.holds(claim.consumer, self._ours(claim), held.accepted_at_s)

    def _end(self, claim_ids: Iterable[str], how: ClaimEnd, why: str = "") -> list[EndedClaim]:
        endings = [EndedClaim(self.pending.pop(key).claim, how, why) for key in claim_ids]
        if endings:
            self._count_again()
        return endings

    def _forget_groups(self) -> None:
        """Forget the groups of consumers that are neither instances here, nor claimed, nor in Placement."""
        if self._members_are_known:
            self.groups.forget(self.groups.known.keys() - self._present() - self.mirror.known.keys())

    # -- views ------------------------------------------------------------------------------------

    def capacity(self) -> tuple[Leaf, ...]:
        """The values of ``CAPACITY`` as the tracker reported them; None for those that it did not report."""
        return tuple(self._tracker_leaves.get(name) for name in CAPACITY)

    def used(self) -> dict[str, dict[str, int]]:
        """Provider -> resource class -> amount, summed over all counted consumers."""
        return sum_amounts(self._counted().values())

    def holds_something(self, consumer: str) -> bool:
        """Whether any allocation is counted for this consumer."""
        return bool(self._counted().get(consumer))

    def awaits(self, consumer: str) -> bool:
        """Whether a claim for this consumer is pending."""
        return any(held.claim.consumer == consumer for held in self.pending.values())

    def explains(self, consumer: str) -> bool:
        """Whether it is an instance here, a migration that nova-compute counts, or the consumer of a pending claim."""
        return consumer in self._explained()

    def _explained(self) -> set[str]:
        return self._present() | {member.migration for member in self.members.values()}

    def consumers(self) -> dict[str, Consumer]:
        """All consumers that hold an allocation here, or are or will be instances here."""
        counted = self._counted()
        present = self._present()
        self._consumers = {
            consumer: self._consumer(consumer, counted.get(consumer, _NOTHING), consumer in present)
            for consumer in counted.keys() | self.members.keys()
        }
        return self._consumers

    def _consumer(self, uuid: str, allocations: Allocations, member: bool) -> Consumer:
        """Return the same object as last time if it is equal, so that the comparison of the pipe is cheap."""
        last, group = self._consumers.get(uuid), self.groups.known.get(uuid, "")
        generation = self._generation(uuid, allocations)
        known = last is not None and last.allocations is allocations and last.generation == generation
        if last is not None and known and last.member is member and last.group == group:
            return last
        whole = bool(generation) and self.mirror.is_whole(uuid)
        return Consumer(allocations, member, group, generation, whole)

    def _generation(self, uuid: str, allocations: Allocations) -> int:
        """The generation that Placement had with these allocations; 0 if a pending claim is counted with them."""
        known = self.mirror.known.get(uuid)
        return known.generation if known is not None and known.allocations is allocations else 0

    def claims(self) -> dict[str, str]:
        return {key: held.claim.consumer for key, held in self.pending.items()}

    def kept(self) -> tuple[KeptClaim, ...]:
        return tuple(held.kept() for held in self.pending.values())

    def in_doubt(self) -> Iterator[str]:
        return (key for key, held in self.pending.items() if held.in_doubt)

    def _counted(self) -> dict[str, Allocations]:
        counted = {key: known.allocations for key, known in self.mirror.known.items()}
        for held in self.pending.values():
            if not self._is_in_placement(held):
                consumer = held.claim.consumer
                both = sum_amounts((counted.get(consumer, {}), self._ours(held.claim)))
                counted[consumer] = both
        return counted

    def _ours(self, claim: Claim) -> Allocations:
        """The part of the claim's allocations in this node's tree; all of them while the tree is not known."""
        if not self.mirror.tree_known:
            return claim.allocations
        providers = self.mirror.providers
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
    if not claim.allocations:  # no evidence could end it
        return Reason(RefusalCode.MALFORMED, {"field": "allocations", "why": "empty"})
    for provider, resources in claim.allocations.items():
        if not resources:
            return Reason(RefusalCode.MALFORMED, {"field": f"allocations.{provider}", "why": "empty"})
        for resource_class, amount in resources.items():
            if amount <= 0:
                field = f"allocations.{provider}.{resource_class}"
                return Reason(RefusalCode.MALFORMED, {"field": field, "why": f"{amount} <= 0"})
    return None


def _apply(target: dict[str, Leaf], changed: Mapping[str, Leaf]) -> None:
    """Set the changed leaves in ``target``; None removes a leaf."""
    for name, value in changed.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = value


def _add_usage(leaves: dict[str, Leaf], usage: Usage) -> None:
    """Add the usage to the leaves that nova-compute will change when it takes the claim over, as HostState does."""
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
