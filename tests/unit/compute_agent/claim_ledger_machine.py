# SPDX-License-Identifier: Apache-2.0
"""A hypothesis state machine of the claim ledger, compared with a simulated node.

The machine knows Placement, nova-compute's tracker and the accepted claims; the ledger only gets their events.  The
world follows Nova's rules: an allocation is written before its instance is built, and deleted after the instance has
left the tracker; Placement refuses an allocation that does not fit, and the scheduler then releases its claim.  In any
order, the accepted claims fit, in CPUs, pinned CPUs and devices, each claim ends once, and everything is counted
exactly once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from compute_agent.claim_ledger import ClaimEnd, ClaimLedger, EndedClaim
from compute_agent.events import Member
from shared_scheduler.protocol.messages import Claim, RefusalCode
from tests.unit.compute_agent.node_facts import NODE, claim, report, root
from tests.unit.compute_agent.numa_cells import POOL, CellsFit, cell_leaves, pinned

CPUS, PINS, DEVICES = 6, 4, 2
CHECK_AFTER_S = 15.0


def asked(one: Claim) -> dict[str, int]:
    """The numbers of dedicated CPUs and devices of a claim."""
    found: dict[str, int] = json.loads(one.topology) if one.topology else {}
    return found


def total(claims: Iterable[Claim], what: str) -> int:
    return sum(asked(one).get(what, 0) for one in claims)


def cpus(claims: Iterable[Claim]) -> int:
    return sum(one.usage.vcpus for one in claims)


class ClaimLedgerMachine(RuleBasedStateMachine):
    """See the top of this module."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0
        self.placement: dict[str, Claim] = {}
        self.tracker: dict[str, Claim] = {}
        self.accepted: dict[str, Claim] = {}
        self.accepted_at_s: dict[str, float] = {}
        self.written: set[str] = set()
        self.ended: list[str] = []
        self.begin()
        self.tell()

    def begin(self) -> None:
        self.book = ClaimLedger(NODE, CellsFit())
        self.book.mirror.set_tree([root(CPUS)])

    # --- what the ledger hears -------------------------------------------------------------------

    def tell(self) -> None:
        """nova-compute reports all its instances."""
        self.now += 0.5
        members: dict[str, Member | None] = {consumer: Member() for consumer in self.tracker}
        said = report(members, vcpus_used=cpus(self.tracker.values()))
        leaves = dict(said.leaves) | self.cells()
        self.note(self.book.reported(type(said)(leaves, members, True), self.now))

    def cells(self) -> dict[str, Any]:
        found: dict[str, Any] = cell_leaves(PINS, DEVICES)
        for one in self.tracker.values():
            if one.topology:
                taken = CellsFit().consume(found, one.topology)
                assert isinstance(taken, Mapping), "nova-compute holds more than there is"
                found |= taken
        return found

    def note(self, endings: Iterable[EndedClaim]) -> None:
        for ending in endings:
            self.ended.append(ending.claim.claim_id)
            if ending.how is ClaimEnd.VANISHED:
                self.check_evidence(ending.claim)

    def check_evidence(self, one: Claim) -> None:
        """Placement has deleted the allocation, or it was not written in time."""
        assert one.consumer not in self.placement, "let go although it stands in Placement"
        age_s = self.now - self.accepted_at_s[one.claim_id]
        assert one.claim_id in self.written or age_s >= CHECK_AFTER_S, "let go too early"

    @rule()
    def read_placement(self) -> None:
        """The agent reads Placement."""
        self.now += 0.5
        seen = {consumer: one.allocations for consumer, one in self.placement.items()}
        self.note(self.book.allocations_read(seen, self.now, CHECK_AFTER_S))
        held = {**self.placement, **self.unended()}
        assert self.book.used().get(NODE, {}).get("VCPU", 0) == cpus(held.values())

    @rule()
    def wait(self) -> None:
        self.now += CHECK_AFTER_S

    # --- claims ----------------------------------------------------------------------------------

    @rule(target=claims, vcpus=st.integers(1, 4), pin=st.integers(0, 3), nic=st.integers(0, 2))
    def ask(self, vcpus: int, pin: int, nic: int) -> object:
        one = self.make(vcpus, pin, nic)
        reason = self.book.judge(one, self.now)
        if reason is None:
            self.accepted[one.claim_id] = one
            self.accepted_at_s[one.claim_id] = self.now
            return one
        held = {**self.placement, **self.unended()}.values()
        if reason.code == RefusalCode.TOPOLOGY:
            taken = {**self.tracker, **self.unended()}.values()
            too_many = total(taken, "pin") + pin > PINS or total(taken, "nic") + nic > DEVICES
            assert too_many, "refused although it fits"
        else:
            assert reason.code == RefusalCode.NO_CAPACITY
            assert cpus(held) + vcpus > CPUS or self.book.mirror.known.keys() - self.placement
        return multiple()

    def make(self, vcpus: int, pin: int, nic: int) -> Claim:
        self.made += 1
        self.now += 0.5
        wants = {name: n for name, n in (("pin", pin), ("nic", nic)) if n}
        return claim(f"c{self.made}", vcpus=vcpus, topology=json.dumps(wants) if wants else "")

    @rule(vcpus=st.integers(1, 4))
    def ask_for_what_was_released_already(self, vcpus: int) -> None:
        one = self.make(vcpus, 0, 0)
        assert self.book.release(one.claim_id, one.consumer, one.scheduler) is None
        reason = self.book.judge(one, self.now)
        assert reason is not None and reason.code == RefusalCode.RELEASED

    def unended(self) -> dict[str, Claim]:
        return {one.consumer: one for key, one in self.accepted.items() if key not in self.ended}

    def is_open(self, one: Claim) -> bool:
        return one.claim_id not in self.ended

    @rule(one=claims)
    def write(self, one: Claim) -> None:
        """The scheduler writes an accepted claim, unless it has released it."""
        if self.is_open(one) and one.consumer not in self.placement:
            if cpus(self.placement.values()) + one.usage.vcpus <= CPUS:
                self.placement[one.consumer] = one
                self.written.add(one.claim_id)
            else:
                self.release(one)

    @rule(one=claims)
    def release(self, one: Claim) -> None:
        if one.consumer not in self.placement and self.is_open(one):
            ending = self.book.release(one.claim_id, one.consumer, one.scheduler)
            assert ending is not None, "an open claim was not there"
            self.note([ending])

    # --- nova-compute ----------------------------------------------------------------------------

    @rule(one=claims)
    def build(self, one: Claim) -> None:
        if one.consumer in self.placement and self.fits_in_tracker(one):
            self.tracker[one.consumer] = one
            self.tell()

    def fits_in_tracker(self, one: Claim) -> bool:
        held = {**self.tracker, one.consumer: one}.values()
        return total(held, "pin") <= PINS and total(held, "nic") <= DEVICES

    @rule(one=claims)
    def refuse_to_build(self, one: Claim) -> None:
        if one.consumer in self.placement and one.consumer not in self.tracker:
            self.note(self.book.refused_by_compute(one.consumer, "no"))
            del self.placement[one.consumer]
            self.read_placement()

    @rule(vcpus=st.integers(1, 3))
    def build_without_a_claim(self, vcpus: int) -> None:
        one = self.make(vcpus, 0, 0)
        if cpus(self.placement.values()) + vcpus <= CPUS:
            self.placement[one.consumer] = self.tracker[one.consumer] = one
            self.read_placement()
            self.tell()

    @rule(one=claims)
    def destroy(self, one: Claim) -> None:
        if self.tracker.pop(one.consumer, None):
            self.tell()
            self.placement.pop(one.consumer)
            self.read_placement()

    @rule()
    def restart(self) -> None:
        kept = self.book.kept()
        self.begin()
        for one in kept:
            self.book.restore(one, self.now)
        self.tell()
        self.read_placement()

    # --- what must hold --------------------------------------------------------------------------

    @invariant()
    def the_truth_is_never_over_capacity(self) -> None:
        assert cpus(self.placement.values()) <= CPUS
        built_or_promised = {**self.tracker, **self.unended()}.values()
        assert total(built_or_promised, "pin") <= PINS
        assert total(built_or_promised, "nic") <= DEVICES

    @invariant()
    def what_was_accepted_fits(self) -> None:
        """Also with instances that Placement permits without a claim."""
        standing = {key: one for key, one in self.placement.items() if one.claim_id in self.accepted}
        assert cpus({**standing, **self.unended()}.values()) <= CPUS

    @invariant()
    def each_claim_ends_at_most_once(self) -> None:
        assert len(self.ended) == len(set(self.ended))
        assert set(self.accepted) - set(self.ended) == set(self.book.claims())

    @invariant()
    def what_the_tracker_holds_and_what_is_pending_is_counted_once(self) -> None:
        pending = [held.claim for held in self.book.pending.values()]
        expected = [*self.tracker.values(), *pending]
        assert self.book.leaves["cn.vcpus_used"] == cpus(expected)
        assert len(pinned(self.book.leaves)) == total(expected, "pin")
        assert self.book.leaves[POOL] == DEVICES - total(expected, "nic")
        assert not list(self.book.in_doubt())

    @invariant()
    def every_holder_is_counted(self) -> None:
        held = {**self.placement, **self.unended()}
        used = self.book.used().get(NODE, {}).get("VCPU", 0)
        assert used >= cpus(held.values())

    @invariant()
    def what_schedulers_are_told_adds_up(self) -> None:
        told = self.book.consumers()
        used = sum(one.allocations.get(NODE, {}).get("VCPU", 0) for one in told.values())
        assert used == self.book.used().get(NODE, {}).get("VCPU", 0)
        members = {consumer for consumer, one in told.items() if one.member}
        pending = {held.claim.consumer for held in self.book.pending.values()}
        assert members == self.tracker.keys() | pending
