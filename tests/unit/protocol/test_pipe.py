# SPDX-License-Identifier: Apache-2.0
"""Stories of how an agent publishes changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.errors import UnsendableMessage
from shared_scheduler.protocol.messages import Consumer, Heartbeat, Increment, Leaf, Leave
from shared_scheduler.protocol.pipe import MessagePipe
from tests.unit.protocol.samples import ALLOCATIONS, NODE, SERVER


def pipe_of(**options: Any) -> MessagePipe:
    return MessagePipe(NODE, "compute-1", 3, Random(7), **options)


def set_leaves(pipe: MessagePipe, leaves: Mapping[str, Leaf]) -> None:
    for name, value in leaves.items():
        pipe.set_leaf(name, value)


@pytest.fixture
def pipe() -> MessagePipe:
    """Quiet at time 0, with vcpus_used = 1 published as sequence 1, its next heartbeat far away."""
    pipe = pipe_of(heartbeat_interval_s=1e9)
    pipe.set_leaf("cn.vcpus_used", 1)
    assert [m.sequence for m in pipe.poll(-1.0)] == [1]
    return pipe


# --- what leaves when --------------------------------------------------------------------------


def test_the_first_change_leaves_at_once(pipe: MessagePipe) -> None:
    pipe.set_leaf("cn.vcpus_used", 2)
    assert pipe.poll(0.0) == (Increment(NODE, 3, 2, {"cn.vcpus_used": 2}),)


def test_changes_after_it_wait_and_merge_and_the_last_value_wins(pipe: MessagePipe) -> None:
    pipe.set_leaf("cn.vcpus_used", 2)
    pipe.poll(0.0)
    for used in (3, 4, 5):
        pipe.set_leaf("cn.vcpus_used", used)
        assert pipe.poll(0.002 * used) == ()
    pipe.set_leaf("cn.free_ram_mb", 10)
    assert pipe.next_deadline_s() == limits.FLUSH_INTERVAL_S
    assert pipe.poll(limits.FLUSH_INTERVAL_S) == (Increment(NODE, 3, 3, {"cn.vcpus_used": 5, "cn.free_ram_mb": 10}),)


def test_a_change_back_to_what_was_published_sends_nothing(pipe: MessagePipe) -> None:
    pipe.set_leaf("cn.vcpus_used", 2)
    pipe.set_leaf("cn.vcpus_used", 1)
    assert not pipe.has_changes
    assert pipe.poll(5.0) == ()


def test_the_same_report_twice_sends_nothing(pipe: MessagePipe) -> None:
    report = {
        "cn.vcpus_used": 1,
        "cn.supported_hv_specs": [["x86_64", "kvm", "hvm"]],
        "stats.io": 0,
    }
    set_leaves(pipe, report)
    assert len(pipe.poll(1.0)) == 1
    set_leaves(pipe, {"cn.vcpus_used": 1, "cn.supported_hv_specs": [["x86_64", "kvm", "hvm"]], "stats.io": 0})
    assert pipe.poll(2.0) == ()


def test_a_thousand_changes_in_a_second_are_fifty_increments(pipe: MessagePipe) -> None:
    sent = 0
    for n in range(1000):
        pipe.set_leaf("cn.vcpus_used", n + 2)
        sent += len(pipe.poll(n / 1000))
    assert sent == 50


def test_a_removed_leaf_is_sent_once_as_none(pipe: MessagePipe) -> None:
    pipe.set_leaf("cn.vcpus_used", None)
    assert pipe.poll(0.0) == (Increment(NODE, 3, 2, {"cn.vcpus_used": None}),)
    pipe.set_leaf("cn.vcpus_used", None)
    assert pipe.poll(1.0) == ()
    assert pipe.digest == 0


def test_replacing_the_state_drops_leaves_that_are_not_in_it(pipe: MessagePipe) -> None:
    set_leaves(pipe, {"pci.a": 1, "pci.b": 2})
    pipe.poll(0.0)
    pipe.set_leaf("pci.c", 3)
    pipe.replace({"cn.vcpus_used": 1, "pci.a": 1, "pci.d": 4}, {}, {})
    assert pipe.poll(1.0) == (Increment(NODE, 3, 3, {"pci.d": 4, "pci.b": None}),)


def test_later_changes_of_the_callers_list_have_no_effect(pipe: MessagePipe) -> None:
    cells = [{"id": 0, "memory": 1024}]
    pipe.set_leaf("numa.static", cells)  # type: ignore[arg-type]
    cells[0]["memory"] = 0
    (increment,) = pipe.poll(0.0)
    assert increment.leaves["numa.static"] == [{"id": 0, "memory": 1024}]  # type: ignore[union-attr]


# --- claims and consumers ----------------------------------------------------------------------


def test_a_claim_its_consumer_and_the_numbers_travel_together(pipe: MessagePipe) -> None:
    pipe.set_claim("claim-1", SERVER)
    pipe.set_consumer(SERVER, Consumer(ALLOCATIONS))
    pipe.set_leaf("cn.vcpus_used", 3)
    (increment,) = pipe.poll(0.0)
    assert increment == Increment(
        NODE, 3, 2, {"cn.vcpus_used": 3}, {SERVER: Consumer(ALLOCATIONS)}, {"claim-1": SERVER}
    )


def test_a_claim_that_began_and_ended_within_one_flush_is_sent_as_ended(pipe: MessagePipe) -> None:
    pipe.set_claim("claim-1", SERVER)
    pipe.set_claim("claim-1", None)
    assert pipe.poll(0.0) == (Increment(NODE, 3, 2, claims={"claim-1": None}),)
    assert pipe.take_snapshot(1.0)[1].claims == {}


def test_a_claim_that_ends_twice_is_sent_once(pipe: MessagePipe) -> None:
    pipe.set_claim("claim-1", SERVER)
    pipe.poll(0.0)
    pipe.set_claim("claim-1", None)
    assert len(pipe.poll(1.0)) == 1
    pipe.set_claim("claim-1", None)
    assert pipe.poll(2.0) == ()


def test_a_consumer_that_was_added_and_removed_is_not_sent(pipe: MessagePipe) -> None:
    pipe.set_consumer(SERVER, Consumer(ALLOCATIONS))
    pipe.set_consumer(SERVER, None)
    assert pipe.poll(0.0) == ()


# --- sequences, ring, snapshot -----------------------------------------------------------------


def test_an_epoch_starts_at_one() -> None:
    with pytest.raises(UnsendableMessage, match="epochs start at 1"):
        MessagePipe(NODE, "compute-1", 0, Random(1))


def test_a_snapshot_flushes_first_and_holds_everything(pipe: MessagePipe) -> None:
    pipe.set_leaf("cn.vcpus_used", 2)
    pipe.poll(0.0)
    pipe.set_consumer(SERVER, Consumer(ALLOCATIONS, True))
    pipe.set_claim("claim-1", SERVER)
    flushed, snapshot = pipe.take_snapshot(0.01)
    assert [m.sequence for m in flushed] == [3]
    assert snapshot.sequence == 3
    assert snapshot.leaves == {"cn.vcpus_used": 2}
    assert snapshot.consumers == {SERVER: Consumer(ALLOCATIONS, True)}
    assert snapshot.claims == {"claim-1": SERVER}
    assert snapshot.digest == digest_of(snapshot.leaves, snapshot.consumers, snapshot.claims)
    assert pipe.poll(1.0) == ()


def test_a_snapshot_is_a_picture_of_its_moment(pipe: MessagePipe) -> None:
    _, snapshot = pipe.take_snapshot(0.0)
    pipe.set_leaf("cn.vcpus_used", 9)
    pipe.flush(1.0)
    assert snapshot.leaves == {"cn.vcpus_used": 1}


def test_the_digest_follows_every_change(pipe: MessagePipe) -> None:
    rng = Random(5)
    for step in range(200):
        pipe.set_leaf(f"cn.{rng.randrange(5)}", rng.choice([None, 1, 2.5, [1, {"a": step}]]))
        pipe.set_consumer(f"c{rng.randrange(4)}", rng.choice([None, Consumer({NODE: {"VCPU": step}})]))
        pipe.set_claim(f"p{rng.randrange(4)}", rng.choice([None, "c1"]))
        _, snapshot = pipe.take_snapshot(float(step))
        assert pipe.digest == digest_of(snapshot.leaves, snapshot.consumers, snapshot.claims)
        pipe.validate()


def test_the_ring_replays_missed_increments(pipe: MessagePipe) -> None:
    for used in range(2, 6):
        pipe.set_leaf("cn.vcpus_used", used)
        pipe.flush(0.0)
    assert [m.sequence for m in pipe.since(3, 2) or ()] == [3, 4, 5]
    assert pipe.since(3, 5) == ()
    assert pipe.since(3, 6) is None  # the future
    assert pipe.since(2, 4) is None  # another life
    assert [m.sequence for m in pipe.since(3, 0) or ()] == [1, 2, 3, 4, 5]


def test_the_ring_forgets_the_oldest(pipe: MessagePipe) -> None:
    for used in range(limits.REPLAY_RING_MAX_MESSAGES + 10):
        pipe.set_leaf("cn.vcpus_used", used + 2)
        pipe.flush(0.0)
        pipe.validate()
    oldest = pipe.sequence - limits.REPLAY_RING_MAX_MESSAGES
    assert len(pipe.since(3, oldest) or ()) == limits.REPLAY_RING_MAX_MESSAGES
    assert pipe.since(3, oldest - 1) is None


def test_the_ring_is_bounded_in_bytes(pipe: MessagePipe) -> None:
    for n in range(100):
        pipe.set_leaf("cn.cpu_info", f"{n:03}" + "x" * 16_000)
        pipe.flush(0.0)
    assert pipe.since(3, 1) is None
    assert pipe.since(3, pipe.sequence - 60) is not None


def test_news_of_a_verdict_are_bounded(pipe: MessagePipe) -> None:
    for used in range(limits.VERDICT_NEWS_MAX_MESSAGES + 1):
        pipe.set_leaf("cn.vcpus_used", used + 2)
        pipe.flush(0.0)
    assert pipe.news(3, 1) is None
    assert len(pipe.news(3, 2) or ()) == limits.VERDICT_NEWS_MAX_MESSAGES
    set_leaves(pipe, {f"cn.{n}": "x" * 15_000 for n in range(4)})
    pipe.flush(0.0)
    assert len(pipe.news(3, pipe.sequence - 1) or ()) == 1
    pipe.set_leaf("cn.4", "x" * 15_000)
    pipe.flush(0.0)
    assert pipe.news(3, pipe.sequence - 2) is None


# --- too much for one increment ----------------------------------------------------------------


def test_a_large_change_is_split_into_several_increments_without_loss() -> None:
    pipe = pipe_of(body_max_bytes=1024)
    leaves = {f"cn.leaf{n}": "x" * n for n in range(1, 200, 7)}
    set_leaves(pipe, leaves)
    consumers = {f"server-{n}": Consumer(ALLOCATIONS) for n in range(20)}
    for name, consumer in consumers.items():
        pipe.set_consumer(name, consumer)
    pipe.set_claim("claim-1", "server-1")
    pieces = pipe.flush(0.0)
    assert len(pieces) > 3
    assert [piece.sequence for piece in pieces] == list(range(1, len(pieces) + 1))
    assert all(len(encode(piece)) <= 1024 for piece in pieces)
    assert {k: v for piece in pieces for k, v in piece.leaves.items()} == leaves
    assert {k: v for piece in pieces for k, v in piece.consumers.items()} == consumers
    # the one that schedulers wait for comes first
    assert pieces[0].claims == {"claim-1": "server-1"}


def test_ten_thousand_entries_are_split_by_number_too() -> None:
    pipe = pipe_of()
    for n in range(limits.LEAVES_PER_NODE_MAX):
        pipe.set_leaf(f"l{n}", 1)
        pipe.set_consumer(f"c{n}", Consumer({}))
    pieces = pipe.flush(0.0)
    assert sum(len(p.leaves) + len(p.consumers) for p in pieces) == 2 * limits.LEAVES_PER_NODE_MAX
    flushed, snapshot = pipe.take_snapshot(0.0)
    assert flushed == () and encode(snapshot)


def test_one_entry_too_many_is_refused_by_name() -> None:
    pipe = pipe_of()
    for n in range(limits.CLAIMS_PER_NODE_MAX):
        pipe.set_claim(f"claim-{n}", SERVER)
    with pytest.raises(UnsendableMessage, match="claim 'one-more': more than 1024"):
        pipe.set_claim("one-more", SERVER)
    pipe.set_claim("claim-0", None)
    pipe.flush(0.0)
    pipe.set_claim("one-more", SERVER)


def test_ended_claims_without_a_flush_are_bounded() -> None:
    pipe = pipe_of()
    with pytest.raises(UnsendableMessage):
        for n in range(3 * limits.CLAIMS_PER_NODE_MAX):
            pipe.set_claim(f"claim-{n}", SERVER)
            pipe.set_claim(f"claim-{n}", None)


@pytest.mark.parametrize(
    "value",
    [math.nan, 2**64, b"x", {1: 2}, "\udcff", ["x" * 16_000] * 5, object()],
    ids=["no number", "too big", "bytes", "a key that is no text", "a surrogate", "too long", "no plain data"],
)
def test_a_leaf_that_receivers_reject_is_refused_and_changes_nothing(pipe: MessagePipe, value: Any) -> None:
    with pytest.raises(UnsendableMessage, match=r"leaf 'cn\.bad'"):
        pipe.set_leaf("cn.bad", value)
    assert pipe.poll(0.0) == ()


def test_a_bad_consumer_is_refused(pipe: MessagePipe) -> None:
    with pytest.raises(UnsendableMessage, match="consumer"):
        pipe.set_consumer(SERVER, Consumer({NODE: {"VCPU": -1}}))
    with pytest.raises(UnsendableMessage, match="claim"):
        pipe.set_claim("", SERVER)


@pytest.mark.parametrize("name", ["stats." + "x" * limits.LEAF_NAME_MAX_CHARS, "stats.\n", ""])
def test_a_state_with_a_name_that_cannot_be_sent_lacks_only_that(name: str) -> None:
    pipe = pipe_of()
    errors = pipe.replace({name: 1, "cn.vcpus": 4}, {"x" * 65: Consumer({})}, {"": SERVER})

    assert len(errors) == 3
    assert [one.leaves for one in pipe.flush(0.0)] == [{"cn.vcpus": 4}]


# --- heartbeats -------------------------------------------------------------------------------------


def polled(pipe: MessagePipe, until_s: float) -> list[tuple[float, object]]:
    """When the pipe sends which messages, polled exactly at its deadlines."""
    now, sent = 0.0, list[tuple[float, object]]()
    while (now := max(now, pipe.next_deadline_s())) < until_s:
        sent += [(now, message) for message in pipe.poll(now)]
    return sent


def test_an_idle_node_sends_rare_heartbeats_and_nothing_else() -> None:
    pipe = pipe_of()
    pipe.set_leaf("cn.vcpus", 4)
    pipe.poll(0.0)
    heard = polled(pipe, 2000.0)
    assert all(m == Heartbeat(NODE, 3, 1, "compute-1", pipe.digest) for _, m in heard)
    moments = [moment for moment, _ in heard]
    assert abs(moments[0] - limits.HEARTBEAT_INTERVAL_S) <= limits.HEARTBEAT_JITTER * limits.HEARTBEAT_INTERVAL_S
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    longest_s = limits.QUIET_INTERVALS * limits.HEARTBEAT_INTERVAL_S
    assert all((1 - limits.QUIET_JITTER) * longest_s <= gap <= longest_s for gap in gaps)
    assert max(gaps) - min(gaps) > limits.QUIET_JITTER * longest_s / 2
    assert longest_s < limits.SILENT_AFTER_S


def test_a_heartbeat_soon_after_the_last_change_reveals_its_loss() -> None:
    # given an idle node
    pipe = pipe_of()
    polled(pipe, 200.0)
    # when it changes
    pipe.set_leaf("cn.vcpus_used", 1)
    assert [m.sequence for m in pipe.poll(200.0)] == [1]
    # then a heartbeat with the new sequence follows as soon as it always did
    (heard_s, heartbeat), *_ = polled(pipe, 300.0)
    assert isinstance(heartbeat, Heartbeat) and heartbeat.sequence == 1
    assert heard_s - 200.0 <= limits.HEARTBEAT_INTERVAL_S * (1 + limits.HEARTBEAT_JITTER)


def test_a_node_that_changes_again_and_again_sends_no_more_heartbeats_than_an_idle_one() -> None:
    pipe = pipe_of()
    pipe.poll(0.0)
    sent = []
    for second in range(1, 481):
        pipe.set_leaf("cn.vcpus_used", second)
        sent += [type(m) for m in pipe.poll(float(second))]
    assert sent.count(Increment) == 480
    assert 9 <= sent.count(Heartbeat) <= 12  # each compares the digests


def test_a_heartbeat_can_be_asked_for_within_a_spread() -> None:
    pipe = pipe_of()
    pipe.poll(0.0)
    pipe.heartbeat_within(0.0, 0.5)
    assert 0.0 <= pipe.next_deadline_s() <= 0.5
    assert pipe.poll(0.5) == (Heartbeat(NODE, 3, 0, "compute-1", 0),)


def test_an_increment_takes_the_place_of_the_heartbeat_of_the_same_time() -> None:
    pipe = pipe_of()
    pipe.poll(0.0)
    pipe.set_leaf("cn.vcpus", 4)
    assert [type(m) for m in pipe.poll(20.0)] == [Increment]


def test_a_heartbeat_that_cannot_be_put_off_follows_the_increment_of_the_same_time() -> None:
    pipe = pipe_of()
    pipe.poll(0.0)
    pipe.heartbeat_within(0.0, 0.5)
    pipe.set_leaf("cn.vcpus", 4)
    out = pipe.poll(1.0)
    assert [type(m) for m in out] == [Increment, Heartbeat]
    assert out[1].sequence == 1


def test_leave_follows_the_last_changes(pipe: MessagePipe) -> None:
    pipe.set_leaf("cn.vcpus_used", 7)
    assert pipe.leave(0.0) == (
        Increment(NODE, 3, 2, {"cn.vcpus_used": 7}),
        Leave(NODE, 3, 2),
    )
