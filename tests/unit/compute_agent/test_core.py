# SPDX-License-Identifier: Apache-2.0
"""Stories of the agent's core: its events, its effects, and its messages to schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compute_agent import events as ev
from compute_agent.core import OPEN_AFTER_S
from compute_agent.effects import (
    Broadcast,
    Cast,
    Effect,
    Keep,
    KeptClaim,
    Notice,
    NoticeCode,
    ReadAllocations,
    ReadTree,
)
from compute_agent.ends_of_builds import AGAIN_AFTER_S, ENDS_MAX
from compute_agent.events import Member
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.limits import (
    BUILD_REASON_MAX_CHARS,
    CARRIED_OUT_WITHIN_S,
    FLUSH_INTERVAL_S,
    HEARTBEAT_ENDS_MAX,
    HEARTBEAT_INTERVAL_S,
    QUIET_INTERVALS,
)
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    RefusalCode,
    Release,
    Resync,
    Role,
    Snapshot,
    Verdict,
    Want,
)
from tests.unit.compute_agent.core_node import EPOCH, SCHEDULER, SETTINGS, Node, notices, said
from tests.unit.compute_agent.node_facts import HOST, NODE, claim, report, root


def carried(passed: Sequence[list[Effect]]) -> list[tuple[int, tuple[BuildResult, ...]]]:
    """The second, and the ends of builds, of each heartbeat to all that has some."""
    sent = [(second, one) for second, effects in enumerate(passed, 1) for one in effects if isinstance(one, Broadcast)]
    beats = [(second, one.message) for second, one in sent if isinstance(one.message, Heartbeat)]
    return [(second, beat.ends) for second, beat in beats if beat.ends]


def seen(node: Node, claim_id: str) -> Claim:
    """A claim of a scheduler that knows all that the node has published, to which an increment suffices."""
    return claim(claim_id, seen_epoch=EPOCH, seen_sequence=node.core.publisher.pipe.sequence, increment_suffices=True)


def new_scheduler(number: int) -> Hello:
    """The Hello of a scheduler that starts, which is answered at once."""
    return Hello(Role.SCHEDULER, f"s{number}", 1, want=Want.SNAPSHOT, spread_ms=0)


class TestStart:
    def test_a_new_agent_is_heard_of_by_a_hello_and_one_snapshot(self) -> None:
        effects = Node().start()

        assert said(effects, Hello) == [Hello(Role.AGENT, "ssched.agent.cmp-1", EPOCH, NODE, HOST)]
        (snapshot,) = said(effects, Snapshot)
        assert snapshot.leaves["agent.ready"] is True
        assert snapshot.leaves["agent.mode"] == "tap"
        assert snapshot.leaves[f"rp.{NODE}"]["inventories"]["VCPU"][0] == 4  # type: ignore[index,call-overload]
        assert snapshot.digest == digest_of(snapshot.leaves, snapshot.consumers, snapshot.claims)
        assert said(effects, Increment) == []

    def test_with_a_dead_nova_compute_the_agent_publishes_that_it_is_not_ready(self) -> None:
        node = Node()
        node.tell(ev.ChannelChanged(True), ev.Tick())

        effects = node.pass_s(OPEN_AFTER_S + 1)

        (snapshot,) = said(effects, Snapshot)
        assert snapshot.leaves["agent.ready"] is False

    def test_nothing_is_published_before_the_agent_can_be_reached(self) -> None:
        """A claim that follows the snapshot would come back, or be for the connection of an earlier life."""
        # given a node that is ready, or whose time is over, while the agent has no queue
        node = Node()
        early = node.tell(ev.TrackerConnected("tap"), report()) + node.pass_s(OPEN_AFTER_S + 1)
        assert node.core.ready
        assert said(early, object) == []

        # when it has one, then it is heard of as always
        effects = node.tell(ev.ChannelChanged(True))

        assert [type(one) for one in said(effects, object)] == [Hello, Snapshot]

    def test_an_epoch_that_begins_without_the_broker_is_published_when_it_is_back(self) -> None:
        node = Node()
        node.start()
        node.tell(ev.ChannelChanged(False))

        early = node.send(Resync(NODE, SCHEDULER, EPOCH + 5, 0)) + node.pass_s(OPEN_AFTER_S + 1)
        effects = node.tell(ev.ChannelChanged(True))

        assert said(early, Snapshot) == []
        assert [type(one) for one in said(effects, object)] == [Hello, Snapshot]
        assert said(effects, Snapshot)[0].epoch == node.core.epoch > EPOCH + 5

    def test_nothing_is_accepted_before_nova_compute_has_audited(self) -> None:
        node = Node()
        node.tell(ev.ChannelChanged(True), ev.TrackerConnected("tap"))
        node.tell(ev.TrackerReported({}, {}, complete=True, ready=False))

        (verdict,) = said(node.send(claim("c1")), Verdict)

        assert verdict.reason is not None
        assert verdict.reason.code == RefusalCode.NOT_AUTHORITATIVE

    def test_nothing_is_accepted_before_placement_was_read(self) -> None:
        node = Node()
        node.reachable = False
        node.start()

        (verdict,) = said(node.send(claim("c1")), Verdict)
        assert not verdict.accepted

        node.reachable = True
        assert NoticeCode.READY in notices(node.pass_s(SETTINGS.retry_most_s + 1))

    def test_an_instance_reported_before_the_tree_causes_no_busy_loop(self) -> None:
        node = Node()
        node.reachable = False
        node.start()

        node.tell(report({"vm-1": Member()}, complete=False))
        reads = [one for one in node.pass_s(60) if isinstance(one, ReadTree | ReadAllocations)]

        assert 0 < len(reads) < 30

    def test_a_node_without_provider_is_read_until_nova_compute_has_created_it(self) -> None:
        node = Node()
        node.tree = ()
        assert NoticeCode.TREE_MISSING in notices(node.start())

        node.tree = (root(),)
        assert NoticeCode.READY in notices(node.tell(ev.TreeChanged()))


class TestClaims:
    def test_an_accepted_claim_is_kept_then_answered_then_published(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)

        effects = node.send(claim("c1", "vm-1", seen_epoch=EPOCH, seen_sequence=1))

        kinds = [type(one.message if isinstance(one, Broadcast | Cast) else one) for one in effects]
        assert [kind for kind in kinds if kind is not Notice] == [Keep, Verdict, Increment]
        (verdict,), (increment,) = said(effects, Verdict), said(effects, Increment)
        assert verdict.accepted and verdict.reflected_sequence == increment.sequence
        assert increment.claims == {"c1": "vm-1"}
        assert increment.leaves["cn.vcpus_used"] == 1
        assert increment.consumers["vm-1"] is not None

    def test_where_the_increment_of_a_claim_suffices_it_is_all_that_is_sent(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)

        effects = node.send(seen(node, "c1"))

        kinds = [type(one.message if isinstance(one, Broadcast | Cast) else one) for one in effects]
        assert [kind for kind in kinds if kind is not Notice] == [Keep, Increment]
        (increment,) = said(effects, Increment)
        assert increment.claims == {"c1": "instance-of-c1"}
        # and the same claim once more is answered with a verdict that names it
        (verdict,) = said(node.send(seen(node, "c1")), Verdict)
        assert verdict.accepted and verdict.reflected_sequence == increment.sequence

    def test_while_an_increment_waits_a_verdict_is_sent_at_once(self) -> None:
        # given an increment of a moment ago
        node = Node()
        node.start()
        node.pass_s(1)
        node.send(seen(node, "c1"))
        node.now += FLUSH_INTERVAL_S / 2
        # when a claim is accepted, then its scheduler does not wait for the next one
        effects = node.send(seen(node, "c2"))
        (verdict,) = said(effects, Verdict)
        assert verdict.accepted and said(effects, Increment) == []
        # which follows soon
        (increment,) = said(node.pass_s(FLUSH_INTERVAL_S), Increment)
        assert (increment.claims, increment.sequence) == ({"c2": "instance-of-c2"}, verdict.reflected_sequence)

    def test_a_refusal_and_a_scheduler_without_a_copy_get_a_verdict(self) -> None:
        node = Node(vcpus=1)
        node.start()
        node.pass_s(1)

        (first,) = said(node.send(claim("c1", increment_suffices=True)), Verdict)
        (second,) = said(node.send(seen(node, "c2")), Verdict)

        assert (first.accepted, second.accepted) == (True, False)

    def test_a_refusal_is_sent_although_an_increment_is_due_that_has_a_claim_with_the_same_id(self) -> None:
        # given a claim whose increment waits for that of another one
        node = Node()
        node.start()
        node.pass_s(1)
        node.send(seen(node, "c1"))
        node.now += FLUSH_INTERVAL_S / 2
        node.send(seen(node, "c2"))
        # when it is due, and another scheduler uses the same id
        node.now += FLUSH_INTERVAL_S / 2
        effects = node.send(replace(seen(node, "c2"), scheduler="ssched.scheduler.b"))
        # then that one is told that its claim is refused
        (verdict,) = said(effects, Verdict)
        assert verdict.reason is not None and verdict.reason.code == RefusalCode.MALFORMED

    def test_the_loser_gets_the_news_with_its_refusal(self) -> None:
        # given two schedulers that decided on the same sequence
        node = Node(vcpus=1)
        node.start()
        seen = node.core.publisher.pipe.sequence
        winner = claim("c1", seen_epoch=EPOCH, seen_sequence=seen)
        loser = claim("c2", seen_epoch=EPOCH, seen_sequence=seen, scheduler="ssched.scheduler.b")

        # when their claims arrive together
        first, second = said(node.send(winner, loser), Verdict)

        # then the second one learns why, and of all that was news to it
        assert first.accepted and not second.accepted
        assert second.reason is not None and second.reason.code == RefusalCode.NO_CAPACITY
        assert [one.claims for one in second.news] == [{"c1": "instance-of-c1"}]

    def test_a_scheduler_that_saw_nothing_gets_a_snapshot_with_its_verdict(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)

        effects = node.send(claim("c1"))

        assert said(effects, Verdict)[0].news == ()
        (cast,) = [one for one in effects if isinstance(one, Cast) and isinstance(one.message, Snapshot)]
        assert cast.address == SCHEDULER
        assert isinstance(cast.message, Snapshot) and cast.message.claims == {"c1": "instance-of-c1"}

    def test_a_claim_that_arrives_twice_is_counted_once_and_answered_alike(self) -> None:
        node = Node(vcpus=1)
        node.start()

        first = said(node.send(claim("c1")), Verdict)[0]
        again = said(node.send(claim("c1")), Verdict)[0]

        assert first.accepted and again.accepted
        assert first.reflected_sequence == again.reflected_sequence
        assert len(node.core.ledger.pending) == 1

    def test_a_claim_for_another_node_is_refused(self) -> None:
        node = Node()
        node.start()

        (verdict,) = said(node.send(claim("c1", node="somebody-else")), Verdict)

        assert verdict.reason is not None and verdict.reason.code == RefusalCode.WRONG_NODE

    def test_a_refusal_for_lack_of_room_makes_the_agent_read_placement(self) -> None:
        # given an allocation that went without anybody telling us
        node = Node(vcpus=1)
        node.start()
        node.allocations["vm-1"] = {NODE: {"VCPU": 1}}
        node.tell(report({"vm-1": Member()}, vcpus_used=0))
        node.pass_s(2)
        node.allocations.clear()

        # when a claim is refused for it
        refused = said(node.send(claim("c1")), Verdict)[0]
        again = said(node.send(claim("c2")), Verdict)[0]

        # then the next one finds the room, and a hundred refusals are not a hundred reads
        assert not refused.accepted and again.accepted
        node.done.clear()
        for index in range(100):
            node.send(claim(f"more-{index}"))
        assert len([one for one in node.done if isinstance(one, ReadAllocations)]) <= 1

    def test_a_claim_that_waited_too_long_is_not_taken_for_a_scheduler_that_gave_up(self) -> None:
        node = Node()
        node.start()
        late = claim("c1", deadline_ms=500)

        effects = node.tell(ev.MessagesArrived((late,), node.now - 0.6))

        (verdict,) = said(effects, Verdict)
        assert verdict.reason is not None and verdict.reason.code == RefusalCode.EXPIRED
        assert node.core.ledger.pending == {}

    def test_a_claim_that_was_decided_on_an_earlier_life_does_not_begin_again(self) -> None:
        # given a node whose agent has started anew
        node = Node()
        node.start()

        # when a copy of it arrives late
        effects = node.send(claim("c1", "vm-1", seen_epoch=EPOCH - 1, seen_sequence=99))

        # then it is refused, for nothing would ever end it
        (verdict,) = said(effects, Verdict)
        assert verdict.reason is not None and verdict.reason.code == RefusalCode.EXPIRED
        assert node.core.ledger.pending == {}

    def test_a_claim_that_was_decided_on_a_forgotten_life_does_not_begin_again(self) -> None:
        """The simulator's seed 34: memory lost, clock set back, and a copy of a claim that was built."""
        node = Node()
        node.start()

        effects = node.send(claim("c1", "vm-1", seen_epoch=EPOCH + 1, seen_sequence=99))

        (verdict,) = said(effects, Verdict)
        assert verdict.reason is not None and verdict.reason.code == RefusalCode.EXPIRED
        assert node.core.ledger.pending == {}

    def test_a_claim_that_began_and_ended_between_two_increments_is_published_as_ended(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)
        seen: dict[str, Any] = {"seen_epoch": EPOCH, "seen_sequence": node.core.publisher.pipe.sequence}
        node.send(claim("c0", **seen))  # leaves at once; what follows waits for the flush

        node.send(claim("c1", **seen), Release("c1", NODE, SCHEDULER, "instance-of-c1"))
        (increment,) = said(node.pass_s(1), Increment)

        assert increment.claims == {"c1": None}


class TestTakeOver:
    def test_a_boot_is_one_claim_one_take_over_and_no_read_of_placement(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)
        asked = claim("c1", "vm-1")
        node.send(asked)
        node.allocations["vm-1"] = asked.allocations
        node.pass_s(1)

        effects = node.tell(report({"vm-1": Member()}, complete=False, vcpus_used=1, running_vms=1))

        (increment,) = said(effects, Increment)
        assert increment.claims == {"c1": None}
        assert "cn.vcpus_used" not in increment.leaves  # what was promised is what is
        assert increment.leaves["cn.running_vms"] == 1
        assert not [one for one in effects if isinstance(one, ReadAllocations)]
        assert [kept.claims for kept in effects if isinstance(kept, Keep)] == [()]

    def test_a_deleted_servers_resources_are_free_within_a_second_of_placement(self) -> None:
        node = Node()
        node.start()
        node.allocations["vm-1"] = {NODE: {"VCPU": 1}}
        node.tell(report({"vm-1": Member()}, vcpus_used=1))
        node.pass_s(1)

        # when the tracker frees it, and the allocation goes 140 ms later
        node.tell(report({"vm-1": None}, complete=False, vcpus_used=0))
        node.pass_s(0.14)
        node.allocations.clear()
        effects = node.pass_s(0.86)

        gone = [one for one in said(effects, Increment) if one.consumers.get("vm-1", 0) is None]
        assert len(gone) == 1

    def test_a_migrations_allocation_at_its_source_is_free_soon_after_its_end(self) -> None:
        """Nova moves the source's allocation to the migration's uuid, and deletes that one late."""
        node = Node()
        node.start()
        node.allocations["vm-1"] = {NODE: {"VCPU": 1}}
        node.tell(report({"vm-1": Member()}, vcpus_used=1))
        node.pass_s(1)
        node.allocations["migration-1"] = node.allocations.pop("vm-1")

        # when the server has left, and its migration holds the room for two more seconds
        node.tell(report({"vm-1": None}, complete=False, vcpus_used=0))
        node.pass_s(2)
        node.allocations.clear()
        node.pass_s(10)

        assert node.core.ledger.consumers() == {}

    def test_an_instance_without_a_claim_makes_the_agent_read_placement(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)
        node.allocations["vm-9"] = {NODE: {"VCPU": 3}}

        effects = node.tell(report({"vm-9": Member()}, complete=False, vcpus_used=3))

        assert [one for one in effects if isinstance(one, ReadAllocations)]
        assert node.core.ledger.used()[NODE]["VCPU"] == 3

    def test_a_claim_without_an_allocation_is_read_from_placement_and_ended(self) -> None:
        node = Node()
        node.start()
        node.send(claim("c1"))

        effects = node.pass_s(SETTINGS.claim_check_after_s + CARRIED_OUT_WITHIN_S + 0.1)

        ended = [one for one in effects if isinstance(one, Notice) and one.code == NoticeCode.ENDED]
        assert [one.detail["how"] for one in ended] == ["vanished"]

    def test_a_claim_whose_server_nova_compute_counts_is_not_read_from_placement(self) -> None:
        node = Node()
        node.start()
        node.send(claim("c1", "vm-1"))
        node.allocations["vm-1"] = {NODE: {"VCPU": 1}}
        node.pass_s(1)
        node.tell(report({"vm-1": Member()}, complete=False, vcpus_used=1))

        effects = node.pass_s(2 * SETTINGS.claim_check_after_s)

        assert not [one for one in effects if isinstance(one, ReadAllocations)]

    def test_a_pending_claim_is_read_from_placement_again_after_a_read_that_failed(self) -> None:
        node = Node()
        node.start()
        node.send(claim("c1", "vm-1"))
        node.allocations["vm-1"] = {NODE: {"VCPU": 1}}
        node.reachable = False
        node.pass_s(SETTINGS.claim_check_after_s + 0.1)
        node.reachable = True

        effects = node.pass_s(SETTINGS.retry_most_s)

        assert [one for one in effects if isinstance(one, ReadAllocations)]

    def test_a_claim_that_nova_compute_refuses_is_freed_and_published(self) -> None:
        node = Node()
        node.start()
        node.send(claim("c1", "vm-1"))
        node.pass_s(1)

        effects = node.tell(ev.ClaimRefused("vm-1", "instance_claim", "NUMA"))

        (increment,) = said(effects, Increment)
        assert (increment.claims, increment.consumers) == ({"c1": None}, {"vm-1": None})


class TestEndsOfBuilds:
    def test_the_end_of_a_build_is_shown_with_the_scheduler_that_placed_it(self) -> None:
        node = Node()
        node.start()
        node.send(claim("c1", "vm-1"))

        told = said(node.tell(ev.BuildEnded("vm-1", False, "NoMoreFixedIps: none")), BuildResult)

        assert told == [BuildResult(NODE, EPOCH, "vm-1", False, "NoMoreFixedIps: none", SCHEDULER, 1)]

    def test_a_server_that_was_placed_without_a_claim_has_no_scheduler(self) -> None:
        node = Node()
        node.start()

        told = said(node.tell(ev.BuildEnded("vm-9", True)), BuildResult)

        assert told == [BuildResult(NODE, EPOCH, "vm-9", True, number=1)]

    def test_the_next_heartbeat_after_two_minutes_carries_an_end_once_more(self) -> None:
        # given a build that has ended
        node = Node()
        node.start()
        [told] = said(node.tell(ev.BuildEnded("vm-1", True)), BuildResult)
        # when much time passes
        passed = [node.pass_s(1) for _ in range(5 * int(AGAIN_AFTER_S))]
        # then one heartbeat has it, and no message of its own
        [(second, ends)] = carried(passed)
        assert ends == (told,)
        assert AGAIN_AFTER_S <= second <= AGAIN_AFTER_S + QUIET_INTERVALS * HEARTBEAT_INTERVAL_S
        assert [said(effects, BuildResult) for effects in passed if said(effects, BuildResult)] == []

    def test_a_heartbeat_for_one_scheduler_carries_none(self) -> None:
        node = Node()
        node.start()
        node.tell(ev.BuildEnded("vm-1", True))
        node.now += AGAIN_AFTER_S

        publisher = node.core.publisher
        publisher.due(node.now)  # the next one to all
        publisher.resync(Resync(NODE, SCHEDULER, EPOCH, publisher.pipe.sequence), node.now)
        [answer] = publisher.due(node.now)

        assert isinstance(answer, Cast) and isinstance(answer.message, Heartbeat)
        assert answer.message.ends == ()

    def test_an_end_waits_for_the_broker(self) -> None:
        # given a build that ends while the broker is away
        node = Node()
        node.start()
        node.tell(ev.ChannelChanged(False), ev.BuildEnded("vm-1", True))
        # when it is back after many heartbeats
        node.pass_s(3 * AGAIN_AFTER_S)
        node.tell(ev.ChannelChanged(True))
        # then the next heartbeat has the end
        [(_, ends)] = carried([node.pass_s(1) for _ in range(int(AGAIN_AFTER_S))])
        assert [one.consumer for one in ends] == ["vm-1"]

    def test_the_ends_that_are_carried_are_bounded(self) -> None:
        # given more builds that end at once than are kept
        node = Node()
        node.start()
        for number in range(ENDS_MAX + 5):
            node.tell(ev.BuildEnded(f"vm-{number}", True))
        # when heartbeats follow
        ends = [part for _, part in carried([node.pass_s(1) for _ in range(60 * 60)])]
        # then each carries some, the oldest first, and the first five are forgotten
        assert max(map(len, ends)) == HEARTBEAT_ENDS_MAX
        assert [one.number for part in ends for one in part] == list(range(6, ENDS_MAX + 6))

    def test_a_heartbeat_with_long_reasons_can_be_sent(self) -> None:
        node = Node()
        node.start()
        for number in range(3):
            node.tell(ev.BuildEnded(f"vm-{number}", False, "\N{EURO SIGN}" * BUILD_REASON_MAX_CHARS))

        passed = [node.pass_s(1) for _ in range(10 * int(AGAIN_AFTER_S))]

        assert len([codec.encode(beat) for effects in passed for beat in said(effects, Heartbeat)]) > 0
        assert [one.consumer for _, ends in carried(passed) for one in ends] == ["vm-0", "vm-1", "vm-2"]

    def test_an_end_that_no_message_can_hold_stops_no_heartbeat(self) -> None:
        node = Node()
        node.start()
        node.tell(ev.BuildEnded("vm-1", False, "\n"), ev.BuildEnded("vm-2", True))

        passed = [node.pass_s(1) for _ in range(2 * int(AGAIN_AFTER_S))]

        assert [one.consumer for _, ends in carried(passed) for one in ends] == ["vm-2"]

    def test_the_scheduler_that_placed_it_is_told_first_and_all_are_told_the_second_time(self) -> None:
        # given a server that a scheduler has placed, and one of which no scheduler is known
        node = Node()
        node.start()
        node.send(claim("c1", "vm-1"))
        # when their builds end
        sent = node.tell(ev.BuildEnded("vm-1", True)) + node.tell(ev.BuildEnded("vm-9", True))
        # then the scheduler gets the first one by itself, and all get the other one
        ends = [one for one in sent if isinstance(one, Broadcast | Cast) and isinstance(one.message, BuildResult)]
        assert [type(one) for one in ends] == [Cast, Broadcast]
        assert [end.consumer for end in said(sent, BuildResult)] == ["vm-1", "vm-9"]
        assert isinstance(ends[0], Cast) and ends[0].address == SCHEDULER
        # and later all get both
        [(_, again)] = carried([node.pass_s(1) for _ in range(2 * int(AGAIN_AFTER_S))])
        assert [one.consumer for one in again] == ["vm-1", "vm-9"]

    def test_a_claim_that_nova_compute_refuses_ends_the_build(self) -> None:
        node = Node()
        node.start()
        node.send(claim("c1", "vm-1"))

        told = said(node.tell(ev.ClaimRefused("vm-1", "instance_claim", "NUMA")), BuildResult)

        assert told == [BuildResult(NODE, EPOCH, "vm-1", False, "NUMA", SCHEDULER, 1)]
        assert said(node.tell(ev.ClaimRefused("vm-1", "resize_claim", "NUMA")), BuildResult) == []

    def test_an_agent_that_has_started_anew_knows_who_placed_the_servers_of_its_claims(self) -> None:
        # given claims that an earlier run has accepted, and whose servers nova-compute has not begun to build
        node = Node((KeptClaim(claim("c1", "vm-1")), KeptClaim(claim("c2", "vm-2"))))
        node.start()
        # when it refuses one and builds the other one
        refused = said(node.tell(ev.ClaimRefused("vm-1", "instance_claim", "NUMA")), BuildResult)
        built = said(node.tell(ev.BuildEnded("vm-2", True)), BuildResult)
        # then their scheduler is told both
        assert refused == [BuildResult(NODE, EPOCH, "vm-1", False, "NUMA", SCHEDULER, 1)]
        assert built == [BuildResult(NODE, EPOCH, "vm-2", True, "", SCHEDULER, 2)]


class TestPeace:
    def test_a_repeated_report_publishes_nothing(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)

        effects = node.tell(report()) + node.pass_s(5)

        assert said(effects, Increment) == []

    def test_what_cannot_be_sent_is_named_once_for_as_long_as_it_is_there(self) -> None:
        # given a leaf that no message can hold
        node, odd = Node(), report(odd=float("nan"))
        node.start()
        told = [notices(node.tell(odd)) for _ in range(3)]
        assert [one.count(NoticeCode.UNSENDABLE) for one in told] == [1, 0, 0]
        # when it is gone, and comes back
        assert NoticeCode.UNSENDABLE not in notices(node.tell(report()))
        # then it is named again, because nothing is remembered of what is gone
        assert NoticeCode.UNSENDABLE in notices(node.tell(odd))

    def test_an_idle_node_sends_heartbeats_and_nothing_else(self) -> None:
        node = Node()
        node.start()
        node.allocations["vm-1"] = {NODE: {"VCPU": 1}}
        node.tell(report({"vm-1": Member()}, vcpus_used=1))
        node.pass_s(1)

        effects = node.pass_s(600)

        assert {type(one.message) for one in effects if isinstance(one, Broadcast | Cast)} == {Heartbeat}
        assert 600 / 48 <= len(said(effects, Heartbeat)) <= 600 / 43 + 1

    def test_a_generation_changed_by_an_allocation_is_not_published(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)
        node.tree = (root(generation=2),)

        effects = node.tell(ev.TreeChanged()) + node.pass_s(1)

        assert said(effects, Increment) == []

    def test_placement_down_is_asked_with_patience(self) -> None:
        node = Node()
        node.start()
        node.reachable = False
        node.pass_s(SETTINGS.placement_poll_s * 2)

        for _ in range(100):
            node.tell(ev.TreeChanged())
        reads = [one for one in node.pass_s(60) if isinstance(one, ReadTree)]

        assert node.core.ready
        assert len(reads) < 30


class TestSchedulers:
    def test_a_gap_is_replayed_from_the_ring(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)
        seen = node.core.publisher.pipe.sequence
        node.tell(report(complete=False, vcpus_used=1))

        effects = node.send(Resync(NODE, SCHEDULER, EPOCH, seen))

        assert [(one.address, type(one.message)) for one in effects if isinstance(one, Cast)] == [
            (SCHEDULER, Increment)
        ]

    def test_another_epoch_gets_a_snapshot(self) -> None:
        node = Node()
        node.start()

        effects = node.send(Resync(NODE, SCHEDULER, EPOCH - 1, 3))

        assert len(said(effects, Snapshot)) == 1

    def test_many_new_schedulers_are_served_by_one_broadcast(self) -> None:
        node = Node()
        node.start()
        effects = node.send(*(new_scheduler(number) for number in range(9)))

        (told,) = [one for one in effects if isinstance(one, Broadcast) and isinstance(one.message, Snapshot)]
        assert isinstance(told, Broadcast)

    def test_schedulers_that_start_together_get_one_snapshot(self) -> None:
        # given eight schedulers that start within two seconds and let 10,000 agents spread their answers over 20 s
        node = Node()
        node.start()
        effects = []
        for number in range(8):
            hello = Hello(Role.SCHEDULER, f"s{number}", 1, want=Want.SNAPSHOT, spread_ms=20_000)
            effects += node.send(hello) + node.pass_s(0.25)
        # then one broadcast serves all that have asked by then, and perhaps one more those that came after it
        effects += node.pass_s(25)
        assert 1 <= len(said(effects, Snapshot)) <= 2

    def test_those_that_ask_later_get_their_own_snapshot_if_more_have_one(self) -> None:
        # given five schedulers that got one broadcast
        node = Node()
        node.start()
        node.send(*(new_scheduler(number) for number in range(5)))
        node.pass_s(1)
        # when three others ask that started at the same time but were slower
        effects = node.send(*(new_scheduler(number) for number in range(5, 8)))
        # then the five need not decode a second snapshot
        sent = [one for one in effects if isinstance(one.message, Snapshot)]
        assert [one.address for one in sent if isinstance(one, Cast)] == ["s5", "s6", "s7"]
        assert len(sent) == 3

    def test_one_broadcast_serves_those_that_ask_later_if_they_are_more(self) -> None:
        node = Node()
        node.start()
        node.send(new_scheduler(0))
        node.pass_s(1)

        effects = node.send(*(new_scheduler(number) for number in range(1, 8)))

        (sent,) = [one for one in effects if isinstance(one.message, Snapshot)]
        assert isinstance(sent, Broadcast)

    def test_schedulers_of_long_ago_do_not_count_when_all_start_again(self) -> None:
        node = Node()
        node.start()
        node.send(*(new_scheduler(number) for number in range(5)))
        node.pass_s(60)

        effects = node.send(*(new_scheduler(number) for number in range(5, 8)))

        (sent,) = [one for one in effects if isinstance(one.message, Snapshot)]
        assert isinstance(sent, Broadcast)

    def test_a_scheduler_that_knows_us_gets_a_heartbeat_within_its_spread(self) -> None:
        node = Node()
        node.start()

        effects = node.send(Hello(Role.SCHEDULER, "s1", 1, want=Want.HEARTBEAT, spread_ms=400))
        effects += node.pass_s(0.4)

        assert [one.address for one in effects if isinstance(one, Cast) and isinstance(one.message, Heartbeat)] == [
            "s1"
        ]

    def test_a_broker_that_returns_is_greeted_and_shown_a_heartbeat(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)

        node.tell(ev.ChannelChanged(False))
        effects = node.tell(ev.ChannelChanged(True)) + node.pass_s(1)

        assert len(said(effects, Hello)) == 1
        assert len(said(effects, Heartbeat)) == 1
        assert said(effects, Snapshot) == []


class TestEnds:
    def test_nova_compute_dies_and_returns(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)

        lost = node.tell(ev.TrackerLost("socket closed"))
        assert [one.leaves for one in said(lost, Increment)] == [{"agent.ready": False}]
        assert not said(node.send(claim("c1")), Verdict)[0].accepted

        back = node.tell(ev.TrackerConnected("tap"), report()) + node.pass_s(1)
        assert [one.leaves for one in said(back, Increment)] == [{"agent.ready": True}]

    def test_a_tap_that_connects_again_must_report_everything_first(self) -> None:
        node = Node()
        node.start()

        assert NoticeCode.NOT_READY in notices(node.tell(ev.TrackerConnected("tap")))
        assert NoticeCode.READY not in notices(node.tell(report(complete=False)))
        assert NoticeCode.READY in notices(node.tell(report()))

    def test_no_claim_is_judged_after_nova_compute_has_started_anew_and_not_audited(self) -> None:
        node = Node()
        node.start()

        assert NoticeCode.NOT_READY in notices(node.tell(ev.TrackerReported({}, {}, complete=True, ready=False)))
        assert not said(node.send(claim("c1")), Verdict)[0].accepted

    def test_no_claim_is_judged_while_placement_has_no_provider_of_the_node(self) -> None:
        node = Node()
        node.start()
        node.tree = ()

        assert NoticeCode.NOT_READY in notices(node.tell(ev.TreeChanged()))
        assert not said(node.send(claim("c1")), Verdict)[0].accepted

    def test_a_clean_shutdown_leaves_and_nothing_after(self) -> None:
        node = Node()
        node.start()

        effects = node.tell(ev.Stopping())

        assert len(said(effects, Leave)) == 1
        assert node.core.next_deadline_s(node.now) is None
        assert node.send(claim("c1")) == []

    def test_a_restarted_agent_counts_its_accepted_claims(self) -> None:
        first = Node(vcpus=1)
        first.start()
        kept = [one for one in first.send(claim("c1", "vm-1")) if isinstance(one, Keep)][-1]

        second = Node(kept.claims, vcpus=1)
        effects = second.start()

        assert said(effects, Snapshot)[0].claims == {"c1": "vm-1"}
        assert not said(second.send(claim("c2")), Verdict)[0].accepted


class TestRestartOfNovaCompute:
    def test_a_node_with_less_capacity_is_read_at_once_without_a_tree_event(self) -> None:
        """nova-conductor gives the record only; nova-compute writes Placement before that."""
        node = Node(vcpus=3)
        node.tell(ev.TrackerConnected("fallback"), report(vcpus=3))
        assert node.core.ready

        node.tree = (root(2, generation=2),)
        node.tell(report(vcpus=2))
        effects = node.send(*(claim(f"c{index}") for index in range(3)))

        assert [one.accepted for one in said(effects, Verdict)] == [True, True, False]

    def test_a_node_with_the_same_capacity_is_not_read_for_its_usage(self) -> None:
        node = Node()
        node.tell(ev.TrackerConnected("fallback"), report())

        effects = node.tell(report(vcpus_used=2))

        assert not [one for one in effects if isinstance(one, ReadTree)]

    def test_a_tree_that_changed_while_the_tap_was_disconnected_is_read_at_once(self) -> None:
        # given a node that serves, whose nova-compute goes away
        node = Node(vcpus=4)
        node.start()
        node.tell(ev.TrackerLost("its process ended"))

        # when it comes back with more CPUs, and wrote them to Placement before the tap was connected
        node.tree = (root(vcpus=8, generation=2),)
        effects = node.tell(ev.TrackerConnected("tap"), report())

        # then the agent does not wait for its next poll
        assert any(isinstance(effect, ReadTree) for effect in effects)
        assert node.core.ledger.mirror.providers[NODE].inventories["VCPU"].total == 8
