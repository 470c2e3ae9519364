# SPDX-License-Identifier: Apache-2.0
"""Only evidence that is newer than a claim says anything about it, and nothing is due again and again."""

from __future__ import annotations

from compute_agent import events as ev
from compute_agent.agent_settings import SETTLED_AFTER_S
from compute_agent.claim_ledger import ClaimEnd, ClaimLedger
from compute_agent.events import Member
from compute_agent.group_ledger import GroupLedger
from compute_agent.placement_mirror import NodeMirror
from shared_scheduler.protocol.limits import AGENT_SNAPSHOTS_BURST
from shared_scheduler.protocol.messages import (
    ClaimGroup,
    GroupPolicy,
    Heartbeat,
    Increment,
    RefusalCode,
    Resync,
    Snapshot,
    Verdict,
)
from tests.unit.compute_agent.core_node import EPOCH, SCHEDULER, Node, said
from tests.unit.compute_agent.node_facts import NODE, SlotFit, claim, report, root

CHECK_AFTER_S = 15.0


def ledger(vcpus: int = 4, groups: dict[str, str] | None = None) -> ClaimLedger:
    made = ClaimLedger(NODE, SlotFit(), groups or {})
    made.mirror.set_tree([root(vcpus)])
    return made


def vcpus_used(book: ClaimLedger) -> int:
    return book.used().get(NODE, {}).get("VCPU", 0)


# -- what Placement was seen to hold


def test_a_move_to_the_same_host_with_equal_amounts_is_not_proved_by_what_the_server_had() -> None:
    # given a server whose allocation was read
    book = ledger()
    book.reported(report({"vm-1": Member(instance=True)}), 0.0)
    book.allocations_read({"vm-1": {NODE: {"VCPU": 2, "MEMORY_MB": 512}}}, 1.0, CHECK_AFTER_S)
    # when a claim for it with the same amounts is accepted later
    assert book.judge(claim("c1", "vm-1", vcpus=2), 5.0) is None
    # then both count until a newer read, and nothing else fits
    assert vcpus_used(book) == 4
    refused = book.judge(claim("c2", "vm-2", vcpus=1), 5.0)
    assert refused is not None and refused.code == RefusalCode.NO_CAPACITY


def test_a_read_that_began_before_nova_compute_took_the_server_over_changes_nothing() -> None:
    # given a claim that nova-compute has taken over
    book = ledger()
    book.reported(report(), 0.0)
    assert book.judge(claim("c1", "vm-1", vcpus=2), 1.0) is None
    book.reported(report({"vm-1": Member(instance=True)}), 10.0)
    # when a read that began before that shows what the server had then
    book.allocations_read({"vm-1": {NODE: {"VCPU": 1, "MEMORY_MB": 256}}}, 9.0, CHECK_AFTER_S)
    # then
    assert vcpus_used(book) == 2


def test_a_claim_whose_allocation_was_seen_ends_with_the_first_read_without_it() -> None:
    book = ledger()
    book.reported(report(), 0.0)
    book.judge(claim("c1", "vm-1"), 1.0)
    assert book.allocations_read({"vm-1": {NODE: {"VCPU": 1, "MEMORY_MB": 256}}}, 2.0, CHECK_AFTER_S) == []

    [ended] = book.allocations_read({}, 3.0, CHECK_AFTER_S)

    assert (ended.claim.claim_id, ended.how) == ("c1", ClaimEnd.VANISHED)


def test_a_way_that_ended_counts_as_new_when_it_returns() -> None:
    # given a claim for a server that is counted as an instance
    book = ledger()
    book.reported(report({"vm-1": Member(instance=True)}), 0.0)
    book.judge(claim("c1", "vm-1"), 1.0)
    # when it leaves the node, and is built there again
    assert book.reported(report({}), 2.0) == []
    [ended] = book.reported(report({"vm-1": Member(instance=True)}), 3.0)
    # then nova-compute has taken the claim over
    assert ended.how is ClaimEnd.TAKEN_OVER


def test_a_generation_that_alone_has_changed_is_published() -> None:
    book = ledger()
    book.reported(report(), 0.0)
    held = {"vm-1": {NODE: {"VCPU": 1}}}
    book.allocations_read(held, 1.0, CHECK_AFTER_S, {"vm-1": 1})
    assert book.consumers()["vm-1"].generation == 1

    book.allocations_read(held, 2.0, CHECK_AFTER_S, {"vm-1": 2})

    assert book.consumers()["vm-1"].generation == 2


def test_aggregates_of_a_provider_that_alone_have_changed_are_published() -> None:
    mirror = NodeMirror()
    mirror.set_tree([root(aggregates=frozenset({"rack-1"}))])

    mirror.set_tree([root(aggregates=frozenset({"rack-2"}), generation=2)])

    assert mirror.leaves()[f"rp.{NODE}"]["aggregates"] == ["rack-2"]  # type: ignore[index,call-overload]


# -- groups


def test_groups_are_kept_until_nova_compute_has_named_its_servers() -> None:
    # given an agent that was restarted, and knew the group of a server
    book = ledger(groups={"vm-1": "group"})
    # when Placement is read before nova-compute has reported
    book.allocations_read({}, 1.0, CHECK_AFTER_S)
    assert book.groups.known == {"vm-1": "group"}
    # then the complete report decides
    book.reported(report(), 2.0)
    assert book.groups.known == {}


def test_a_second_claim_for_a_server_is_not_refused_because_of_the_first() -> None:
    groups = GroupLedger({"vm-1": "group"})
    asked = claim("c2", "vm-1", group=ClaimGroup("group", GroupPolicy.ANTI_AFFINITY, 1, (), None))
    assert groups.judge(asked, {"vm-1"}, set()) is None


# -- readiness and answers


def test_a_first_report_that_is_not_complete_makes_nobody_ready() -> None:
    # given an agent whose nova-compute has told of one change only
    node = Node()
    node.start(report({}, complete=False, vcpus_used=1))
    assert not node.core.ready
    [verdict] = said(node.send(claim("c1")), Verdict)
    assert verdict.reason is not None and verdict.reason.code == RefusalCode.NOT_AUTHORITATIVE
    # when it has told everything
    node.tell(report())
    # then
    [verdict] = said(node.send(claim("c2")), Verdict)
    assert verdict.accepted


def test_a_verdict_that_is_repeated_in_the_next_epoch_is_reflected_by_its_first_snapshot() -> None:
    # given an accepted claim, some increments later than the first snapshot
    node = Node()
    node.start()
    for number in range(5):
        node.tell(report({}, complete=False, vcpus_used=number))
        node.pass_s(1.0)
    [first] = said(node.send(claim("c1", "vm-1")), Verdict)
    assert first.reflected_sequence > 1
    # when a scheduler makes the agent begin another epoch, and the claim arrives again
    node.send(Resync(NODE, SCHEDULER, EPOCH + 3, 0))
    [second] = said(node.send(claim("c1", "vm-1")), Verdict)
    # then
    assert (second.accepted, second.epoch > EPOCH, second.reflected_sequence) == (True, True, 1)


def test_a_refusal_carries_what_was_accepted_a_moment_before() -> None:
    # given two claims, the second within the interval of increments
    node = Node(vcpus=2)
    node.start()
    node.pass_s(10.0)
    seen = {"seen_epoch": EPOCH, "seen_sequence": node.core.publisher.pipe.sequence}
    node.send(claim("c1", "vm-1", **seen))
    node.send(claim("c2", "vm-2", **seen))
    # when a third one does not fit
    effects = node.send(claim("c3", "vm-3", **seen))
    # then its scheduler learns of both with the refusal
    [verdict] = said(effects, Verdict)
    assert not verdict.accepted
    told = {claim_id for news in verdict.news for claim_id in news.claims}
    assert told == {"c1", "c2"}
    assert said(effects, Increment)


def test_a_doubt_is_answered_by_a_read_that_began_after_it() -> None:
    # given reads of Placement under way
    node = Node()
    node.start()
    node.pass_s(30.0)
    before_s = node.now
    node.now += 1.0
    # when a scheduler asks for a recheck, and then the older reads arrive
    node.core.step(ev.MessagesArrived((Resync(NODE, SCHEDULER, 0, 0, True),), node.now), node.now)
    answers = node.core.step(ev.TreeRead(node.tree, before_s), node.now)
    answers += node.core.step(ev.AllocationsRead({}, before_s), node.now)
    assert said(answers, Snapshot) == said(answers, Heartbeat) == []
    # then newer ones answer it
    answers = node.core.step(ev.TreeRead(node.tree, node.now), node.now)
    answers += node.core.step(ev.AllocationsRead({}, node.now), node.now)
    assert said(answers, Snapshot)


# -- rest


def test_an_agent_whose_snapshots_are_limited_waits_for_the_next_one() -> None:
    # given more schedulers than snapshots that may be sent at once, each at another moment
    node = Node()
    node.start()
    asked = [f"ssched.scheduler.{number}" for number in range(int(AGENT_SNAPSHOTS_BURST) + 2)]
    effects = [effect for name in asked for effect in node.send(Resync(NODE, name, 0, 0))]
    sent = len(said(effects, Snapshot))
    assert sent < len(asked)
    # then the others are served later, and until then nothing is due (pass_s checks it)
    assert said(node.pass_s(60.0), Snapshot)


def test_placement_is_read_now_and_then_while_a_claim_waits() -> None:
    # given an accepted claim that is neither written nor built
    node = Node()
    node.start()
    node.send(claim("c1", "vm-1"))
    # when a minute passes, then it is read a few times
    reads = [effect for effect in node.pass_s(40.0) if type(effect).__name__ == "ReadAllocations"]
    assert 1 <= len(reads) <= 6


def test_a_resize_to_the_same_host_waits_as_long_as_nova_compute_is_down() -> None:
    # given a resize to the same host, whose allocation is written
    node, here, asked = Node(), report({"vm-1": Member()}), claim("c1", "vm-1", vcpus=2)
    node.start(here)
    node.pass_s(1)
    assert said(node.send(asked), Verdict)[0].accepted
    node.allocations = {"vm-1": asked.allocations, "m-1": {NODE: {"VCPU": 1}}}
    node.pass_s(60)
    # when nova-compute goes away before it has begun, and its queue waits for longer than any resize takes
    node.tell(ev.TrackerLost("its process ended"))
    node.pass_s(SETTLED_AFTER_S + 60)
    node.tell(ev.TrackerConnected("tap"), here)
    # then the claim is counted until nova-compute does that
    assert node.core.ledger.pending.keys() == {"c1"}
    node.pass_s(1)
    node.tell(report({"vm-1": Member(instance=True, migration="m-1")}))
    assert not node.core.ledger.pending


def test_a_report_before_the_audit_says_nothing_about_a_resize_to_the_same_host() -> None:
    # given a resize to the same host that waits for a nova-compute that has started again
    node, here, asked = Node(), report({"vm-1": Member()}), claim("c1", "vm-1", vcpus=2)
    node.start(here)
    node.pass_s(1)
    assert said(node.send(asked), Verdict)[0].accepted
    # when the tap cannot read the tracker at first, and reports nothing as all that it knows
    node.tell(ev.TrackerLost("its process ended"), ev.TrackerConnected("tap"))
    node.tell(ev.TrackerReported({}, {}, complete=True, ready=False))
    node.tell(here)
    # then the instance, which it reports after that, is not the resize
    assert node.core.ledger.pending.keys() == {"c1"}
    node.tell(report({"vm-1": Member(instance=True, migration="m-1")}))
    assert not node.core.ledger.pending


def test_a_late_claim_ends_although_nova_compute_was_down_meanwhile() -> None:
    # given an instance, a claim for it that arrives late, and the migration of another one
    node, here, asked = Node(), report({"vm-1": Member()}), claim("c1", "vm-1")
    node.allocations = {"vm-1": asked.allocations, "m-1": {NODE: {"VCPU": 1}}}
    node.start(here)
    node.pass_s(1)
    assert said(node.send(asked), Verdict)[0].accepted
    node.tell(ev.TrackerLost("its process ended"))
    node.pass_s(600)
    # when nova-compute has been back for as long as a resize may wait
    node.tell(ev.TrackerConnected("tap"), here)
    node.pass_s(SETTLED_AFTER_S - 60)
    assert node.core.ledger.pending
    node.pass_s(120)
    # then it is counted once
    assert not node.core.ledger.pending
