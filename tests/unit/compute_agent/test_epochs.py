# SPDX-License-Identifier: Apache-2.0
"""Stories of an agent that changes while it runs: a new epoch, new times."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from compute_agent import events as ev
from compute_agent.agent_settings import EPOCH_STEP_MAX, EPOCHS_BURST, EPOCHS_PER_S, AgentSettings
from compute_agent.core import AgentCore
from compute_agent.effects import Broadcast, Keep, KeepEpoch, NoticeCode, ReadTree
from compute_agent.epochs import Epochs, ResyncCase
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S, COUNT_MAX, EPOCH_ASKED_MAX, SILENT_AFTER_S
from shared_scheduler.protocol.messages import Heartbeat, Hello, Resync, Snapshot, Verdict
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import MessageWindow, WindowFreshness
from tests.unit.compute_agent.core_node import EPOCH, SCHEDULER, SETTINGS, Node, notices, said
from tests.unit.compute_agent.node_facts import HOST, NODE, SlotFit, claim, report


def life(seed: int) -> Node:
    """A life whose chances are its own."""
    node = Node()
    node.core = AgentCore(NODE, HOST, "ssched.agent.cmp-1", EPOCH, SlotFit(), SETTINGS, random.Random(seed), node.now)
    node.start()
    return node


class TestReload:
    def test_shorter_times_count_at_once_and_not_after_the_next_read(self) -> None:
        node = Node()
        node.core.reconfigure(AgentSettings(placement_poll_s=3600, claim_check_after_s=3600), node.now)
        node.start()
        node.send(claim("c1", "vm-1"))
        node.pass_s(30)

        node.core.reconfigure(AgentSettings(placement_poll_s=200, claim_check_after_s=5), node.now)
        effects = node.pass_s(CARRIED_OUT_WITHIN_S + 6)
        assert node.core.ledger.pending == {}
        assert not [one for one in effects if isinstance(one, ReadTree)]

        assert [one for one in node.pass_s(220) if isinstance(one, ReadTree)]


class TestEpochOfThePast:
    """Schedulers follow an epoch above the agent's own: its clock was set back and its memory lost."""

    def test_it_begins_an_epoch_above_with_one_fresh_snapshot_for_all(self) -> None:
        node = Node()
        node.start()

        effects = node.send(Resync(NODE, SCHEDULER, EPOCH + 100, 0))

        (told,) = said(effects, Snapshot)
        assert told.epoch == node.core.epoch > EPOCH + 100
        assert told.leaves["agent.ready"] is True
        assert told.digest == digest_of(told.leaves, told.consumers, told.claims)
        assert [one.epoch for one in said(effects, Hello)] == [told.epoch]
        keep = KeepEpoch(NODE, told.epoch, cause=f"{NODE}@{EPOCH + 100}/0")
        assert effects.index(keep) < effects.index(Broadcast(told))
        assert NoticeCode.EPOCH_BEGUN in notices(effects)
        assert {heartbeat.epoch for heartbeat in said(node.pass_s(20), Heartbeat)} == {told.epoch}

    def test_two_runs_that_are_asked_for_the_same_epoch_choose_different_ones(self) -> None:
        """Each had lost its memory, and another scheduler told it of the epoch before both."""
        lives = [life(seed) for seed in range(50)]

        for node in lives:
            node.send(Resync(NODE, SCHEDULER, EPOCH + 100, 0))

        assert all(node.core.epoch > EPOCH + 100 for node in lives)
        assert len({node.core.epoch for node in lives}) == len(lives)

    @given(st.lists(st.integers(0, COUNT_MAX), max_size=20))
    def test_an_epoch_grows_above_each_requested_one_and_numbers_are_not_exhausted(self, asks: list[int]) -> None:
        epochs = Epochs(EPOCH, random.Random(1))
        for number, asked in enumerate(asks):
            before = epochs.epoch
            if epochs.judge(asked, number / EPOCHS_PER_S) is ResyncCase.SURPASS:
                epochs.surpass(asked)
                assert max(before, asked) < epochs.epoch <= EPOCH_ASKED_MAX + EPOCH_STEP_MAX
            assert epochs.epoch >= before

    def test_a_window_that_followed_the_future_follows_the_agent_again(self) -> None:
        window = MessageWindow(NODE, random.Random(1), ResyncTurns(str))
        window.receive(Heartbeat(NODE, EPOCH + 100, 3, HOST, 0), 0.0, lambda: 0)
        node = Node()
        node.start()
        node.now = SILENT_AFTER_S + 1
        window.on_tick(node.now)

        asked = window.receive(node.core.publisher.pipe.heartbeat(), node.now, lambda: 0).resync
        assert asked is not None
        (snapshot,) = said(node.send(Resync(NODE, SCHEDULER, asked.epoch, asked.after_sequence)), Snapshot)

        assert window.receive(snapshot, node.now, lambda: 0).apply == (snapshot,)
        assert window.freshness is WindowFreshness.FRESH

    def test_pending_claims_stay(self) -> None:
        node = Node()
        node.start()
        node.send(claim("c1", "vm-1"))

        effects = node.send(Resync(NODE, SCHEDULER, EPOCH + 100, 0))

        (snapshot,) = said(effects, Snapshot)
        assert snapshot.claims == {"c1": "vm-1"}
        assert snapshot.consumers["vm-1"].member
        assert not [one for one in effects if isinstance(one, Keep)]

    def test_a_repeated_verdict_is_reflected_in_the_new_epoch(self) -> None:
        node = Node()
        node.start()
        node.pass_s(1)
        (before,) = said(node.send(claim("c1", "vm-1")), Verdict)
        assert before.reflected_sequence > 1
        node.send(Resync(NODE, SCHEDULER, EPOCH + 100, 0))

        (again,) = said(node.send(claim("c1", "vm-1")), Verdict)

        assert again.accepted
        assert (again.epoch, again.reflected_sequence) == (node.core.epoch, 1)

    def test_many_schedulers_that_ask_at_once_get_one_new_epoch(self) -> None:
        node = Node()
        node.start()

        effects = node.send(*(Resync(NODE, f"s{index}", EPOCH + 100, 0) for index in range(9)))

        assert {one.epoch for one in said(effects, Snapshot)} == {node.core.epoch}
        assert all(isinstance(one, Broadcast) for one in effects if isinstance(getattr(one, "message", 0), Snapshot))

    def test_a_node_that_has_published_nothing_sends_hello_and_waits_until_it_is_ready(self) -> None:
        node = Node()
        node.tell(ev.ChannelChanged(True))

        effects = node.send(Resync(NODE, SCHEDULER, EPOCH + 100, 0))
        assert [one.epoch for one in said(effects, Hello)] == [node.core.epoch]
        assert said(effects, Snapshot) == []

        effects = node.tell(ev.TrackerConnected("tap"), report())
        assert [one.epoch for one in said(effects, Snapshot)] == [node.core.epoch]

    def test_an_impossible_epoch_is_refused(self) -> None:
        node = Node()
        node.start()

        effects = node.send(Resync(NODE, SCHEDULER, EPOCH_ASKED_MAX + 1, 0))

        assert node.core.epoch == EPOCH
        assert [one.epoch for one in said(effects, Snapshot)] == [EPOCH]
        assert NoticeCode.EPOCH_REFUSED in notices(effects)

    def test_the_highest_accepted_epoch_leaves_numbers_for_all_later_starts(self) -> None:
        node = Node()
        node.start()

        effects = node.send(Resync(NODE, SCHEDULER, EPOCH_ASKED_MAX, 0))

        (snapshot,) = said(effects, Snapshot)
        assert decode(encode(snapshot)) == snapshot
        assert COUNT_MAX - snapshot.epoch > 2**61
        node.send(Resync(NODE, SCHEDULER, snapshot.epoch + 1, 0))
        assert node.core.epoch == snapshot.epoch

    def test_epochs_do_not_follow_one_another_faster_than_they_may(self) -> None:
        node = Node()
        node.start()

        begun = []
        for _ in range(3 * EPOCHS_BURST):
            begun += said(node.send(Resync(NODE, SCHEDULER, node.core.epoch + 1, 0)), Hello)
        assert len(begun) == EPOCHS_BURST

        node.pass_s(1 / EPOCHS_PER_S)
        begun += said(node.send(Resync(NODE, SCHEDULER, node.core.epoch + 1, 0)), Hello)
        assert len(begun) == EPOCHS_BURST + 1
        assert [one.epoch for one in begun] == sorted({one.epoch for one in begun})

    def test_claims_that_were_decided_on_the_last_epoch_cost_one_snapshot_together(self) -> None:
        """The simulator's seed 32: each of them, and each repetition, cost a snapshot."""
        node = Node()
        effects = node.start()
        for number in range(20):
            effects += node.send(claim(f"c{number}", seen_epoch=EPOCH - 1, seen_sequence=3))
            effects += node.pass_s(0.02)

        assert len(said(effects, Verdict)) == 20
        assert len(said(effects, Snapshot)) == 1

        # when the picture that it was sent is lost, an ask brings another
        assert len(said(node.send(Resync(NODE, SCHEDULER, 0, 0)), Snapshot)) == 1
        # and later claims may have missed something new
        node.pass_s(10.0)
        assert len(said(node.send(claim("c20", seen_epoch=EPOCH - 1)), Snapshot)) == 1
