# SPDX-License-Identifier: Apache-2.0
"""Stories of one node's ledger: which claims are accepted, and how each accepted claim ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compute_agent.agent_settings import AUDITED_AFTER_S, SETTLED_AFTER_S
from compute_agent.claim_ledger import ClaimEnd, ClaimLedger
from compute_agent.effects import KeptClaim
from compute_agent.events import Member, TrackerReported
from shared_scheduler.model.resources import Inventory
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from shared_scheduler.protocol.messages import Consumer, RefusalCode
from tests.unit.compute_agent.node_facts import NODE, SlotFit, claim, report, root

CHECK_AFTER_S = 15.0
#: the age at which the write of a claim cannot be carried out any more
OLD_S = CHECK_AFTER_S + CARRIED_OUT_WITHIN_S


def ledger(vcpus: int = 4) -> ClaimLedger:
    made = ClaimLedger(NODE, SlotFit())
    made.mirror.set_tree([root(vcpus)])
    made.reported(report(), 0.0)
    made.allocations_read({}, 0.0, CHECK_AFTER_S)
    return made


#: a late claim for an instance that is here already
HERE, LATE = report({"vm-1": Member()}, vcpus_used=1), claim("c1", "vm-1")


def with_a_late_claim() -> ClaimLedger:
    book = ledger()
    book.reported(HERE, 1.0)
    book.judge(LATE, 10.0)
    return book


def vcpus_used(book: ClaimLedger) -> int:
    return book.used().get(NODE, {}).get("VCPU", 0)


class TestJudging:
    def test_claims_are_accepted_until_the_node_is_full(self) -> None:
        book = ledger(vcpus=4)

        answers = [book.judge(claim(f"c{i}"), 1.0) for i in range(5)]

        assert answers[:4] == [None] * 4
        assert answers[4] is not None
        assert answers[4].code == RefusalCode.NO_CAPACITY
        assert answers[4].detail == {
            "provider": NODE,
            "resource_class": "VCPU",
            "asked": 1,
            "used": 4,
            "capacity": 4,
        }

    def test_an_accepted_claim_is_counted_in_every_number_that_nova_will_change(self) -> None:
        book = ledger()

        assert book.judge(claim("c1", "vm-1", vcpus=2), 1.0) is None

        assert book.leaves["cn.vcpus_used"] == 2
        assert book.leaves["cn.memory_mb_used"] == 512 + 512
        assert book.leaves["cn.free_ram_mb"] == 7680 - 512
        assert book.leaves["cn.free_disk_gb"] == 99
        assert book.leaves["stats.num_instances"] == 1
        assert book.leaves["stats.io_workload"] == 1
        assert book.claims() == {"c1": "vm-1"}
        assert book.consumers() == {"vm-1": Consumer({NODE: {"VCPU": 2, "MEMORY_MB": 512}}, member=True)}

    def test_a_refused_claim_changes_nothing(self) -> None:
        book = ledger(vcpus=1)
        before = dict(book.leaves)

        assert book.judge(claim("c1", vcpus=2), 1.0) is not None

        assert (book.leaves, book.claims(), book.consumers()) == (before, {}, {})

    def test_a_class_without_inventory_has_another_reason_than_a_full_one(self) -> None:
        refused = ledger().judge(claim("c1", allocations={NODE: {"VGPU": 1}}), 1.0)

        assert refused is not None
        assert (refused.code, refused.detail["resource_class"]) == ("no_inventory", "VGPU")

    def test_a_provider_of_another_tree_is_left_to_placement(self) -> None:
        shared_storage = {NODE: {"VCPU": 1}, "shared-storage": {"DISK_GB": 10}}
        book = ledger()

        assert book.judge(claim("c1", "vm-1", allocations=shared_storage), 1.0) is None
        assert book.consumers()["vm-1"].allocations == {NODE: {"VCPU": 1}}
        refused = book.judge(claim("c2", allocations={"elsewhere": {"VCPU": 1}}), 1.0)
        assert refused is not None and refused.code == RefusalCode.NO_INVENTORY

    @pytest.mark.parametrize(
        "changes",
        [
            {"consumer": ""},
            {"allocations": {NODE: {"VCPU": 0}}},
            {"allocations": {}},
            {"allocations": {NODE: {}}},
            {"allocations": {NODE: {}, "shared-storage": {"DISK_GB": 10}}},
        ],
    )
    def test_a_malformed_claim_is_refused_with_the_field(self, changes: dict[str, object]) -> None:
        fields = {"consumer": "vm-1"} | changes
        bad = claim("c1")
        for name, value in fields.items():
            object.__setattr__(bad, name, value)

        refused = ledger().judge(bad, 1.0)

        assert refused is not None
        assert refused.code == RefusalCode.MALFORMED
        assert str(refused.detail["field"]).split(".")[0] in changes

    def test_topology_is_judged_with_pending_claims(self) -> None:
        book = ledger()
        book.reported(TrackerReported({"numa.0": 2}), 0.5)

        answers = [book.judge(claim(f"c{i}", topology="1"), 1.0) for i in range(3)]

        assert answers[:2] == [None, None]
        assert answers[2] is not None and answers[2].code == RefusalCode.TOPOLOGY
        assert book.leaves["numa.0"] == 0


class TestEndings:
    def test_the_tracker_takes_a_claim_over_without_counting_it_twice(self) -> None:
        book = ledger()
        book.judge(claim("c1", "vm-1", vcpus=2), 1.0)

        endings = book.reported(report({"vm-1": Member()}, complete=False, vcpus_used=2), 5.0)

        assert [(one.claim.claim_id, one.how) for one in endings] == [("c1", ClaimEnd.TAKEN_OVER)]
        assert book.leaves["cn.vcpus_used"] == 2
        assert vcpus_used(book) == 2
        assert book.claims() == {}
        assert book.consumers()["vm-1"].member

    def test_other_instances_take_nothing_over(self) -> None:
        book = ledger()
        book.judge(claim("c1", "vm-1", vcpus=2), 1.0)

        endings = book.reported(report({"vm-2": Member()}, complete=False, vcpus_used=1), 5.0)

        assert endings == []
        assert book.leaves["cn.vcpus_used"] == 3

    def test_a_resize_to_the_same_host_holds_old_and_new_until_the_migration_is_tracked(self) -> None:
        # given an instance that the tracker counts and whose allocation the conductor has just moved
        # to the migration, unseen by us
        book = ledger(vcpus=8)
        book.reported(report({"vm-1": Member()}, vcpus_used=2), 1.0)
        book.allocations_read({"vm-1": {NODE: {"VCPU": 2}}}, 1.0, CHECK_AFTER_S)

        # when the claim for the new size comes
        assert book.judge(claim("c1", "vm-1", vcpus=3), 2.0) is None

        # then both are counted, before and after the next check
        assert vcpus_used(book) == 5
        book.allocations_read({"mig-1": {NODE: {"VCPU": 2}}}, 3.0, CHECK_AFTER_S)
        assert vcpus_used(book) == 5
        assert book.reported(report({"vm-1": Member()}, vcpus_used=2), 4.0) == []
        ended = book.reported(report({"vm-1": Member(migration="mig-1")}, vcpus_used=5), 5.0)
        assert [one.how for one in ended] == [ClaimEnd.TAKEN_OVER]
        assert (vcpus_used(book), book.leaves["cn.vcpus_used"]) == (5, 5)

    def test_a_release_frees_the_resources_of_the_claim(self) -> None:
        book = ledger()
        before = dict(book.leaves)
        book.judge(claim("c1"), 1.0)

        ending = book.release("c1", "instance-of-c1", "ssched.scheduler.a")

        assert ending is not None and ending.how is ClaimEnd.RELEASED
        assert (book.leaves, book.consumers()) == (before, {})
        assert book.release("c1", "instance-of-c1", "ssched.scheduler.a") is None

    def test_a_release_that_overtakes_its_claim_makes_it_refused(self) -> None:
        book = ledger()

        assert book.release("c1", "instance-of-c1", "ssched.scheduler.a") is None
        refused = book.judge(claim("c1"), 1.0)

        assert refused is not None and refused.code == RefusalCode.RELEASED

    def test_a_claim_that_nova_compute_refuses_is_not_counted_any_more(self) -> None:
        book = ledger()
        book.judge(claim("c1", "vm-1"), 1.0)

        endings = book.refused_by_compute("vm-1", "instance_claim: NUMA")

        assert [(one.how, one.why) for one in endings] == [(ClaimEnd.REFUSED, "instance_claim: NUMA")]
        assert vcpus_used(book) == 0

    def test_an_unwritten_claim_vanishes_only_once_it_is_old_enough(self) -> None:
        book = ledger()
        book.judge(claim("c1"), 10.0)

        young = book.allocations_read({}, 10.0 + OLD_S - 1, CHECK_AFTER_S)
        old = book.allocations_read({}, 10.0 + OLD_S, CHECK_AFTER_S)

        assert (young, [one.how for one in old]) == ([], [ClaimEnd.VANISHED])

    def test_a_written_claim_stays_as_long_as_placement_holds_it(self) -> None:
        book = ledger()
        asked = claim("c1", "vm-1")
        book.judge(asked, 10.0)

        for moment in (11.0, 1000.0, 100000.0):
            assert book.allocations_read({"vm-1": asked.allocations}, moment, CHECK_AFTER_S) == []
            assert vcpus_used(book) == 1
        gone = book.allocations_read({}, 100001.0, CHECK_AFTER_S)

        assert [one.how for one in gone] == [ClaimEnd.VANISHED]

    def test_a_late_claim_of_an_instance_that_is_here_ends(self) -> None:
        # given an instance, and a claim for it that arrives late; its scheduler died before it could release it
        book = with_a_late_claim()
        standing = {"vm-1": LATE.allocations}

        # when the resize that it may be for has not come for as long as one may wait, and some migration is here
        standing["migration"] = {NODE: {"MEMORY_MB": 256}}
        for moment in (11.0, 10.0 + SETTLED_AFTER_S - 1):
            assert book.reported(HERE, moment) == []
            assert book.allocations_read(standing, moment, CHECK_AFTER_S) == []
        endings = book.allocations_read(standing, 10.0 + SETTLED_AFTER_S, CHECK_AFTER_S)

        # then it is counted once
        assert [one.how for one in endings] == [ClaimEnd.TAKEN_OVER]
        assert (vcpus_used(book), book.leaves["cn.vcpus_used"]) == (1, 1)

    def test_a_late_claim_ends_soon_where_no_migration_waits(self) -> None:
        # given an instance, and a claim for it that arrives late
        book = with_a_late_claim()

        # when Placement shows no other consumer, until nova-compute has audited the node
        standing = {"vm-1": LATE.allocations}
        assert book.allocations_read(standing, 10.0 + AUDITED_AFTER_S - 1, CHECK_AFTER_S) == []
        endings = book.allocations_read(standing, 10.0 + AUDITED_AFTER_S, CHECK_AFTER_S)

        # then it is counted once
        assert [one.how for one in endings] == [ClaimEnd.TAKEN_OVER]
        assert (vcpus_used(book), book.leaves["cn.vcpus_used"]) == (1, 1)

    def test_a_written_claim_of_an_instance_that_is_built_late_stays(self) -> None:
        book = ledger()
        asked = claim("c1", "vm-1")
        book.judge(asked, 10.0)

        for moment in (11.0, 10.0 + SETTLED_AFTER_S, 100000.0):
            assert book.reported(report(), moment) == []
            assert book.allocations_read({"vm-1": asked.allocations}, moment, CHECK_AFTER_S) == []

    def test_a_restored_claim_that_holds_nothing_vanishes_although_placement_knows_its_consumer(self) -> None:
        # given a claim without allocations that an earlier release accepted and kept
        book = ledger()
        book.restore(KeptClaim(claim("c1", "vm-1", allocations={})), 1.0)

        # when Placement shows the consumer, which another claim or the server itself has written
        standing = {"vm-1": {NODE: {"VCPU": 1}}}
        endings = book.allocations_read(standing, 1.0 + OLD_S, CHECK_AFTER_S)

        assert [one.how for one in endings] == [ClaimEnd.VANISHED]
        assert book.leaves["cn.free_ram_mb"] == 7680

    def test_a_claim_whose_provider_left_the_tree_vanishes_although_placement_knows_its_consumer(self) -> None:
        child = replace(root(), uuid="child", name="child", parent=NODE, inventories={"VGPU": Inventory(4)})
        book = ledger()
        book.mirror.set_tree([root(), child])
        book.judge(claim("c1", "vm-1", allocations={"child": {"VGPU": 1}}), 1.0)

        book.mirror.set_tree([root()])
        standing = {"vm-1": {NODE: {"VCPU": 1}}}
        endings = book.allocations_read(standing, 1.0 + OLD_S, CHECK_AFTER_S)

        assert [one.how for one in endings] == [ClaimEnd.VANISHED]

    def test_a_read_that_began_before_the_claim_is_no_evidence_about_it(self) -> None:
        book = ledger()
        book.judge(claim("c1", "vm-1"), 10.0)
        book.reported(report({"vm-1": Member()}, complete=False, vcpus_used=1), 11.0)

        book.allocations_read({}, 10.5, CHECK_AFTER_S)

        assert vcpus_used(book) == 1

    def test_a_restored_claim_is_counted_until_its_evidence_is_found(self) -> None:
        first = ledger()
        first.judge(claim("c1", "vm-1"), 1.0)

        second = ClaimLedger(NODE, SlotFit())
        for kept in first.kept():
            second.restore(kept, 0.0)
        second.mirror.set_tree([root()])
        second.reported(report(), 1.0)
        assert second.leaves["cn.vcpus_used"] == 1
        assert vcpus_used(second) == 1

        ended = second.reported(report({"vm-1": Member()}, complete=False, vcpus_used=1), 2.0)
        assert [one.how for one in ended] == [ClaimEnd.TAKEN_OVER]
        assert second.leaves["cn.vcpus_used"] == 1


class TestFactsAsTheyCome:
    def test_uninvited_instances_may_make_the_node_over_full(self) -> None:
        book = ledger(vcpus=1)
        book.judge(claim("c1", "vm-1"), 1.0)

        book.reported(report({"vm-2": Member()}, complete=False, vcpus_used=1), 2.0)
        book.allocations_read({"vm-2": {NODE: {"VCPU": 1}}}, 3.0, CHECK_AFTER_S)

        assert (book.leaves["cn.vcpus_used"], vcpus_used(book)) == (2, 2)
        assert book.judge(claim("c2"), 4.0) is not None

    def test_a_pending_topology_that_fits_no_more_is_in_doubt_but_still_counted(self) -> None:
        book = ledger()
        book.reported(TrackerReported({"numa.0": 1}), 0.5)
        book.judge(claim("c1", "vm-1", topology="1"), 1.0)

        book.reported(TrackerReported({"numa.0": 0}), 2.0)

        assert list(book.in_doubt()) == ["c1"]
        assert book.leaves["cn.vcpus_used"] == 1

    def test_a_complete_report_replaces_all_that_was_known(self) -> None:
        book = ledger()
        book.reported(report({"vm-1": Member()}, complete=False, extra=1), 1.0)

        book.reported(report({"vm-2": Member()}), 2.0)

        assert set(book.members) == {"vm-2"}
        assert "cn.extra" not in book.leaves
