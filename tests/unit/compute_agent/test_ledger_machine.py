# SPDX-License-Identifier: Apache-2.0
"""The ledger against a simple model, in random order: never over capacity, each claim one ending."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from compute_agent.claims import Ending
from compute_agent.events import Member
from compute_agent.ledger import Ledger
from shared_scheduler.protocol.messages import Claim
from tests.unit.compute_agent.worlds import NODE, SlotFit, claim, report, root

CAPACITY = 6
CHECK_AFTER_S = 15.0


class OneNode(RuleBasedStateMachine):
    """Placement and nova-compute as they truly are, and the ledger that only hears of them.

    The model obeys what Nova obeys: an instance is built after its allocation was written, and the
    allocation is deleted after the instance left the tracker.
    """

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0
        self.book = Ledger(NODE, SlotFit())
        self.book.accounts.set_tree([root(CAPACITY)])
        self.placement: dict[str, Claim] = {}
        self.tracker: dict[str, Claim] = {}
        self.accepted: dict[str, Claim] = {}
        self.ended: list[str] = []
        self.tell()

    def tell(self) -> None:
        self.now += 0.5
        members = {consumer: Member() for consumer in self.tracker}
        used = sum(one.usage.vcpus for one in self.tracker.values())
        self.note(self.book.reported(report(dict(members), vcpus_used=used), self.now))

    def note(self, endings: list[Ending]) -> None:
        self.ended += [ending.claim.claim_id for ending in endings]

    @rule(target=claims, vcpus=st.integers(1, 4))
    def ask(self, vcpus: int) -> object:
        self.made += 1
        self.now += 0.5
        asked = claim(f"c{self.made}", vcpus=vcpus)
        if self.book.judge(asked, self.now) is not None:
            held = {**self.placement, **self.unended()}
            assert sum(one.usage.vcpus for one in held.values()) + vcpus > CAPACITY
            return multiple()
        self.accepted[asked.consumer] = asked
        return asked

    def unended(self) -> dict[str, Claim]:
        return {
            consumer: one
            for consumer, one in self.accepted.items()
            if one.claim_id not in self.ended
        }

    @rule(one=claims)
    def write(self, one: Claim) -> None:
        if one.claim_id not in self.ended:
            self.placement[one.consumer] = one

    @rule(one=claims)
    def build(self, one: Claim) -> None:
        if one.consumer in self.placement:
            self.tracker[one.consumer] = one
            self.tell()

    @rule(one=claims)
    def destroy(self, one: Claim) -> None:
        if self.tracker.pop(one.consumer, None):
            self.tell()
            self.placement.pop(one.consumer)
            self.look()

    @rule(one=claims)
    def release(self, one: Claim) -> None:
        if one.consumer not in self.placement:
            ending = self.book.release(one.claim_id)
            self.note([ending] if ending else [])

    @rule()
    def look(self) -> None:
        self.now += 0.5
        seen = {consumer: one.allocations for consumer, one in self.placement.items()}
        self.note(self.book.allocations_read(seen, self.now, CHECK_AFTER_S))

    @rule()
    def wait(self) -> None:
        self.now += CHECK_AFTER_S

    @rule()
    def restart(self) -> None:
        kept = self.book.kept()
        self.book = Ledger(NODE, SlotFit())
        self.book.accounts.set_tree([root(CAPACITY)])
        for one in kept:
            self.book.restore(one, self.now)
        self.tell()
        self.look()

    @invariant()
    def the_truth_is_never_over_capacity(self) -> None:
        assert sum(one.usage.vcpus for one in self.placement.values()) <= CAPACITY

    @invariant()
    def each_claim_ends_at_most_once(self) -> None:
        assert len(self.ended) == len(set(self.ended))
        assert not set(self.ended) & set(self.book.claims())

    @invariant()
    def what_the_tracker_holds_and_what_is_pending_is_counted_once(self) -> None:
        pending = [held.claim for held in self.book.pending.values()]
        expected = sum(one.usage.vcpus for one in [*self.tracker.values(), *pending])
        assert self.book.leaves["cn.vcpus_used"] == expected

    @invariant()
    def every_holder_is_counted(self) -> None:
        held = {**self.placement, **self.unended()}
        used = self.book.used().get(NODE, {}).get("VCPU", 0)
        assert used >= sum(one.usage.vcpus for one in held.values())


TestOneNode = OneNode.TestCase
TestOneNode.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
