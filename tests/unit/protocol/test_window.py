# SPDX-License-Identifier: Apache-2.0
"""What a scheduler believes of one node, story by story."""

from __future__ import annotations

import itertools
from random import Random
from typing import ClassVar

import pytest

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.bucket import TokenBucket
from shared_scheduler.protocol.errors import MisroutedMessage
from shared_scheduler.protocol.messages import (
    Beat,
    Goodbye,
    Hello,
    Increment,
    Role,
    Snapshot,
)
from shared_scheduler.protocol.phases import ASKING, FRESHNESS, TRANSITIONS
from shared_scheduler.protocol.window import (
    NOTHING,
    Cause,
    Freshness,
    MessageWindow,
    NodeMessage,
    Outcome,
    Phase,
    ResyncWish,
    WindowTimes,
)

NODE = "5a6de3ab-cf6e-4c5e-9a43-7b6ac1a6a9a1"
DIGEST = 4711


def increment(sequence: int, epoch: int = 1) -> Increment:
    return Increment(NODE, epoch, sequence, {"cn.vcpus_used": sequence})


def snapshot(sequence: int, epoch: int = 1) -> Snapshot:
    return Snapshot(NODE, epoch, sequence, "compute-1", {"cn.vcpus_used": sequence}, {}, {}, DIGEST)


def beat(sequence: int, epoch: int = 1, digest: int = DIGEST) -> Beat:
    return Beat(NODE, epoch, sequence, "compute-1", digest)


def hello(epoch: int) -> Hello:
    return Hello(Role.AGENT, "ssched.agent.compute-1", epoch, NODE, "compute-1")


class Receiver:
    """A window and a clock; remembers what was applied and what was asked."""

    def __init__(self, bucket: TokenBucket | None = None, patient_until_s: float = 0.0) -> None:
        self.now = 100.0
        self.own_digest = DIGEST
        self.digests_computed = 0
        self.applied: list[str] = []
        self.asks: list[ResyncWish] = []
        self.window = MessageWindow(
            NODE,
            Random(7),
            bucket or TokenBucket(limits.SCHEDULER_RESYNCS_PER_S, limits.SCHEDULER_RESYNCS_BURST),
            WindowTimes(silent_after_s=45.0),
            patient_until_s=patient_until_s,
        )

    def take(self, *messages: NodeMessage) -> list[str]:
        """Receive these; returns what was applied, as 'snapshot 1.7' (epoch, sequence)."""
        before = len(self.applied)
        for message in messages:
            self._note(self.window.receive(message, self.now, self._digest))
        return self.applied[before:]

    def wait(self, seconds: float) -> list[ResyncWish]:
        """Let time pass, ticking exactly when the window wants it; returns what was asked."""
        before, end = len(self.asks), self.now + seconds
        while (due := self.window.next_deadline_s()) is not None and due <= end:
            self.now = max(self.now, due)
            self._note(self.window.on_tick(self.now))
        self.now = end
        return self.asks[before:]

    def _digest(self) -> int:
        self.digests_computed += 1
        return self.own_digest

    def _note(self, outcome: Outcome) -> None:
        self.window.validate()
        for message in outcome.apply:
            kind = type(message).__name__.lower()
            self.applied.append(f"{kind} {message.epoch}.{message.sequence}")
        if outcome.resync is not None:
            self.asks.append(outcome.resync)


@pytest.fixture
def fresh() -> Receiver:
    """In order at sequence 5 of epoch 1."""
    receiver = Receiver()
    assert receiver.take(snapshot(5)) == ["snapshot 1.5"]
    assert receiver.window.freshness is Freshness.FRESH
    return receiver


# --- in order ----------------------------------------------------------------------------------


def test_a_node_of_which_nothing_was_heard_is_new_and_asks_nothing() -> None:
    receiver = Receiver()
    assert receiver.window.freshness is Freshness.NEW
    assert receiver.window.next_deadline_s() is None
    assert receiver.wait(1000) == []


def test_increments_that_follow_are_applied_as_they_come(fresh: Receiver) -> None:
    assert fresh.take(increment(6)) == ["increment 1.6"]
    assert fresh.take(increment(7)) == ["increment 1.7"]
    assert (fresh.window.epoch, fresh.window.sequence, fresh.window.lag) == (1, 7, 0)


def test_a_message_that_comes_twice_is_applied_once(fresh: Receiver) -> None:
    assert fresh.take(increment(6), increment(6), increment(3)) == ["increment 1.6"]
    assert fresh.window.counters.duplicates == 2


def test_a_message_of_another_node_is_the_callers_mistake(fresh: Receiver) -> None:
    with pytest.raises(MisroutedMessage):
        fresh.take(Beat("another-node", 1, 5, "compute-2", DIGEST))


# --- gaps --------------------------------------------------------------------------------------


def test_reordered_messages_are_applied_in_order_and_nobody_asks(fresh: Receiver) -> None:
    assert fresh.take(increment(8), increment(7)) == []
    assert fresh.window.freshness is Freshness.SUSPECT
    assert fresh.window.lag == 3
    fresh.wait(limits.HOLD_S / 2)
    assert fresh.take(increment(6)) == ["increment 1.6", "increment 1.7", "increment 1.8"]
    assert fresh.window.freshness is Freshness.FRESH
    assert fresh.wait(10) == []


def test_a_lost_message_is_asked_for_once_and_its_replay_heals(fresh: Receiver) -> None:
    fresh.take(increment(7))
    assert fresh.wait(1.0) == [ResyncWish(1, 5)]
    assert fresh.take(increment(6)) == ["increment 1.6", "increment 1.7"]
    assert fresh.wait(30) == []


def test_no_gap_is_stepped_over_however_long_it_lasts(fresh: Receiver) -> None:
    fresh.take(increment(7))
    fresh.wait(limits.GAP_MAX_S + 1)
    assert fresh.window.freshness is Freshness.STALE
    assert fresh.take(increment(8)) == []
    assert fresh.take(snapshot(8)) == ["snapshot 1.8"]
    assert fresh.window.freshness is Freshness.FRESH


def test_a_gap_that_is_filled_late_is_filled_all_the_same(fresh: Receiver) -> None:
    fresh.take(increment(7))
    fresh.wait(limits.GAP_MAX_S + 1)
    # the held one was given up by then, so a replay brings both
    assert fresh.take(increment(6), increment(7)) == ["increment 1.6", "increment 1.7"]
    assert fresh.window.freshness is Freshness.FRESH


def test_unanswered_asks_back_off_with_jitter_up_to_a_minute(fresh: Receiver) -> None:
    fresh.take(increment(7))
    moments = []
    for _ in range(12):
        asks = len(fresh.asks)
        for _ in range(1000):
            fresh.take(beat(7))  # it lives, it only cannot hear us
            fresh.wait(0.5)
            if len(fresh.asks) > asks:
                break
        moments.append(fresh.now)
    waits = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert min(waits) >= limits.RESYNC_TIMEOUT_S - 0.5
    assert max(waits) <= limits.RESYNC_TIMEOUT_S + limits.BACKOFF_MAX_S + 0.5
    assert sum(waits[6:]) > 2 * sum(waits[:5])


def test_early_messages_are_bounded_and_the_nearest_are_kept(fresh: Receiver) -> None:
    fresh.take(*(increment(n) for n in range(7, 200)))
    assert fresh.window.held == limits.HELD_MAX_MESSAGES
    assert fresh.window.counters.early_dropped == 193 - limits.HELD_MAX_MESSAGES
    # the replay brings the missing one, then the ones that were dropped
    assert len(fresh.take(increment(6))) == 1 + limits.HELD_MAX_MESSAGES
    assert fresh.window.freshness is Freshness.SUSPECT
    assert len(fresh.take(*(increment(n) for n in range(6, 200)))) == 199 - 6 - 64
    assert fresh.window.freshness is Freshness.FRESH


def test_early_messages_are_bounded_in_bytes_too(fresh: Receiver) -> None:
    for sequence in range(7, 30):
        text = "x" * limits.LEAF_TEXT_MAX_CHARS
        fresh.take(Increment(NODE, 1, sequence, {"a": text, "b": text}))
    assert 0 < fresh.window.held <= limits.HELD_MAX_BYTES // (2 * limits.LEAF_TEXT_MAX_CHARS)


# --- beats -------------------------------------------------------------------------------------


def test_a_beat_reveals_a_lost_last_message(fresh: Receiver) -> None:
    assert fresh.take(beat(6)) == []
    assert fresh.window.freshness is Freshness.SUSPECT
    assert fresh.wait(1) == [ResyncWish(1, 5)]
    fresh.take(increment(6))
    assert fresh.window.freshness is Freshness.FRESH


def test_the_digest_is_computed_once_for_a_sequence(fresh: Receiver) -> None:
    fresh.take(beat(5), beat(5), beat(5))
    assert fresh.digests_computed == 1
    fresh.take(increment(6), beat(6), beat(6))
    assert fresh.digests_computed == 2


def test_a_copy_that_rots_although_nothing_happens_is_found_out(fresh: Receiver) -> None:
    fresh.take(beat(5))
    fresh.own_digest = 1
    while fresh.now < 100.0 + limits.VERIFY_AGAIN_S:
        fresh.wait(limits.BEAT_INTERVAL_S)
        fresh.take(beat(5))
    assert fresh.digests_computed == 2
    assert fresh.window.freshness is Freshness.SUSPECT


def test_an_old_beat_says_nothing(fresh: Receiver) -> None:
    fresh.take(beat(4, digest=1))
    assert fresh.digests_computed == 0
    assert fresh.window.freshness is Freshness.FRESH


def test_a_copy_that_differs_is_replaced_by_a_snapshot_of_the_same_sequence(
    fresh: Receiver,
) -> None:
    fresh.own_digest = 1
    fresh.take(beat(5))
    assert fresh.window.freshness is Freshness.SUSPECT
    assert fresh.wait(1) == [ResyncWish(0, 0)]
    fresh.own_digest = DIGEST
    assert fresh.take(snapshot(5)) == ["snapshot 1.5"]
    fresh.take(beat(5))
    assert fresh.window.freshness is Freshness.FRESH
    assert fresh.window.counters.digests_different == 1


def test_a_copy_that_differs_still_follows_the_node(fresh: Receiver) -> None:
    fresh.own_digest = 1
    fresh.take(beat(5))
    assert fresh.take(increment(6)) == ["increment 1.6"]
    assert fresh.window.freshness is Freshness.SUSPECT
    # the snapshot that was made before cannot roll it back
    assert fresh.take(snapshot(5)) == []
    assert fresh.take(snapshot(6)) == ["snapshot 1.6"]


def test_a_copy_that_always_differs_costs_ever_fewer_snapshots(fresh: Receiver) -> None:
    fresh.own_digest = 1  # as between releases that compute it differently
    asked = []
    for _ in range(200):
        fresh.take(beat(5))
        if fresh.wait(15.0):
            fresh.take(snapshot(5))
            asked.append(fresh.now)
    # back-off ends at a minute, and only a beat of that node reveals it again
    assert len(asked) < 140
    assert fresh.window.freshness is not Freshness.STALE


# --- snapshots ---------------------------------------------------------------------------------


def test_what_comes_before_the_first_snapshot_is_held(fresh: Receiver) -> None:
    receiver = Receiver()
    assert receiver.take(increment(8), increment(9)) == []
    assert receiver.window.freshness is Freshness.STALE
    assert receiver.take(snapshot(8)) == ["snapshot 1.8", "increment 1.9"]
    assert receiver.window.freshness is Freshness.FRESH
    assert receiver.wait(10) == []


def test_a_snapshot_jumps_a_gap(fresh: Receiver) -> None:
    fresh.take(increment(8), increment(9))
    assert fresh.take(snapshot(7)) == ["snapshot 1.7", "increment 1.8", "increment 1.9"]


def test_a_gap_behind_a_snapshot_is_asked_for_by_replay() -> None:
    receiver = Receiver()
    receiver.take(increment(10))
    assert receiver.take(snapshot(8)) == ["snapshot 1.8"]
    assert receiver.window.freshness is Freshness.SUSPECT
    assert receiver.wait(1) == [ResyncWish(1, 8)]


def test_a_snapshot_does_not_make_us_forget_what_else_exists() -> None:
    receiver = Receiver()
    receiver.take(beat(3), beat(9))
    assert receiver.window.lag == 9
    assert receiver.take(snapshot(7)) == ["snapshot 1.7"]
    assert receiver.window.freshness is Freshness.SUSPECT
    assert receiver.wait(1) == [ResyncWish(1, 7)]


def test_a_sequence_that_never_existed_is_forgotten_after_a_while(fresh: Receiver) -> None:
    fresh.take(beat(10**6))  # nobody can give us these
    fresh.wait(limits.GAP_MAX_S + 1)
    assert fresh.window.freshness is Freshness.STALE
    fresh.take(snapshot(6))
    assert fresh.window.freshness is Freshness.FRESH
    assert fresh.take(increment(7)) == ["increment 1.7"]


def test_an_older_snapshot_does_not_roll_back(fresh: Receiver) -> None:
    fresh.take(increment(6))
    assert fresh.take(snapshot(5), snapshot(6), snapshot(1)) == []
    assert fresh.window.sequence == 6
    assert fresh.window.counters.old_snapshots == 3


def test_waiting_for_the_first_snapshot_keeps_the_newest_messages() -> None:
    receiver = Receiver()
    receiver.take(*(increment(n) for n in range(1, 101)))
    assert receiver.window.held == limits.HELD_MAX_MESSAGES
    assert len(receiver.take(snapshot(90))) == 1 + 10


def test_asking_again_for_a_snapshot_lets_go_of_what_it_will_cover() -> None:
    receiver = Receiver()
    receiver.take(increment(3))
    assert receiver.wait(0.5) == [ResyncWish(0, 0)]
    assert receiver.window.held == 1
    assert len(receiver.wait(2.0)) >= 1
    assert receiver.window.held == 0


def test_after_a_hello_to_all_nobody_asks_for_a_while() -> None:
    receiver = Receiver(patient_until_s=105.0)
    receiver.take(beat(3))
    assert receiver.wait(4.9) == []
    assert receiver.wait(1.0) == [ResyncWish(0, 0)]


def test_patience_can_be_asked_for_later(fresh: Receiver) -> None:
    fresh.take(beat(8))
    fresh.window.be_patient(fresh.now + 5)
    assert fresh.wait(4.9) == []
    assert len(fresh.wait(0.2)) == 1


# --- epochs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [increment(1, 2), beat(0, 2), hello(2)], ids=repr)
def test_any_word_of_a_new_epoch_makes_the_copy_useless(
    fresh: Receiver, message: NodeMessage
) -> None:
    assert fresh.take(message) == []
    assert fresh.window.freshness is Freshness.STALE
    assert (fresh.window.epoch, fresh.window.sequence) == (2, None)
    assert fresh.wait(0.5) == [ResyncWish(0, 0)]
    assert fresh.take(snapshot(1, 2)) == ["snapshot 2.1"]
    assert fresh.window.freshness is Freshness.FRESH


def test_a_snapshot_of_a_new_epoch_needs_no_asking(fresh: Receiver) -> None:
    assert fresh.take(snapshot(1, 2), increment(2, 2)) == ["snapshot 2.1", "increment 2.2"]
    assert fresh.wait(10) == []


@pytest.mark.parametrize(
    "message",
    [increment(6, 1), snapshot(9, 1), beat(9, 1), hello(1), Goodbye(NODE, 1, 9)],
    ids=repr,
)
def test_an_older_epoch_changes_nothing(fresh: Receiver, message: NodeMessage) -> None:
    fresh.take(snapshot(1, 2))
    before = (
        fresh.window.phase,
        fresh.window.epoch,
        fresh.window.sequence,
        fresh.window.heard_at_s,
    )
    fresh.now += 1
    assert fresh.take(message) == []
    window = fresh.window
    assert (window.phase, window.epoch, window.sequence, window.heard_at_s) == before
    assert window.counters.old_epochs == 1


def test_what_was_held_of_an_old_epoch_is_forgotten(fresh: Receiver) -> None:
    fresh.take(increment(7), increment(2, 2))
    assert fresh.window.held == 1
    assert fresh.take(snapshot(1, 2)) == ["snapshot 2.1", "increment 2.2"]


# --- silence -----------------------------------------------------------------------------------


def test_three_missed_beats_are_silence_and_a_silent_node_is_asked_nothing(fresh: Receiver) -> None:
    fresh.wait(44)
    assert fresh.window.freshness is Freshness.FRESH
    fresh.wait(2)
    assert fresh.window.freshness is Freshness.SILENT
    assert fresh.wait(10_000) == []


def test_a_node_that_returns_unchanged_is_believed_after_its_digest(fresh: Receiver) -> None:
    fresh.take(beat(5))
    fresh.wait(60)
    fresh.take(beat(5))
    assert fresh.digests_computed == 2
    assert fresh.window.freshness is Freshness.FRESH
    assert fresh.asks == []


def test_a_node_that_returns_changed_is_asked(fresh: Receiver) -> None:
    fresh.wait(60)
    fresh.take(beat(9))
    assert fresh.wait(1) == [ResyncWish(1, 5)]


def test_an_old_word_after_silence_proves_life_only(fresh: Receiver) -> None:
    fresh.wait(60)
    fresh.take(increment(4))
    assert fresh.window.freshness is Freshness.SUSPECT
    fresh.take(beat(5))
    assert fresh.window.freshness is Freshness.FRESH


def test_a_copy_that_the_caller_dropped_needs_a_snapshot(fresh: Receiver) -> None:
    fresh.wait(60)
    fresh.window.forget(fresh.now)
    assert fresh.window.freshness is Freshness.SILENT
    fresh.take(beat(5))
    assert fresh.window.freshness is Freshness.STALE
    assert fresh.take(snapshot(5)) == ["snapshot 1.5"]


def test_a_gap_ends_in_silence_too(fresh: Receiver) -> None:
    fresh.take(increment(9))
    asked = fresh.wait(60)
    assert asked and fresh.window.freshness is Freshness.SILENT
    assert fresh.window.held == 0
    assert fresh.take(increment(6)) == ["increment 1.6"]
    assert fresh.window.freshness is Freshness.SUSPECT  # 9 is still known to exist


def test_goodbye_ends_an_epoch(fresh: Receiver) -> None:
    fresh.take(Goodbye(NODE, 1, 5))
    assert fresh.window.freshness is Freshness.SILENT
    assert fresh.take(increment(6), snapshot(9), beat(5)) == []
    assert fresh.window.freshness is Freshness.SILENT
    assert fresh.take(snapshot(1, 2)) == ["snapshot 2.1"]


def test_an_agent_that_comes_back_with_an_epoch_of_the_past_is_told(fresh: Receiver) -> None:
    fresh.take(snapshot(3, 9))
    fresh.wait(60)
    fresh.take(beat(1, epoch=4))
    assert fresh.asks == [ResyncWish(9, 0)]
    assert fresh.take(snapshot(1, epoch=10)) == ["snapshot 10.1"]


def test_a_late_beat_after_a_goodbye_tells_nobody_anything(fresh: Receiver) -> None:
    fresh.take(Goodbye(NODE, 1, 5), beat(5))
    assert fresh.asks == []
    fresh.wait(50)
    fresh.take(beat(5))
    assert fresh.asks == [ResyncWish(2, 0)]  # the same epoch lives again: it must be surpassed


def test_after_the_channel_was_away_a_copy_waits_for_proof(fresh: Receiver) -> None:
    fresh.take(beat(5))
    fresh.window.reconnected(fresh.now)
    assert fresh.window.freshness is Freshness.SUSPECT
    fresh.take(beat(5))
    assert fresh.digests_computed == 2
    assert fresh.window.freshness is Freshness.FRESH


def test_after_the_channel_was_away_the_next_in_order_is_proof(fresh: Receiver) -> None:
    fresh.window.reconnected(fresh.now)
    assert fresh.take(increment(6)) == ["increment 1.6"]
    assert fresh.window.freshness is Freshness.FRESH


# --- storms ------------------------------------------------------------------------------------


def test_a_thousand_windows_share_one_budget() -> None:
    # given: 10 asks a second are allowed, and 1,000 nodes lost something at the same moment
    bucket = TokenBucket(rate_per_s=10, burst=5)
    rng = Random(3)
    windows = []
    for n in range(1000):
        window = MessageWindow(f"node-{n}", rng, bucket)
        window.receive(Beat(f"node-{n}", 1, 5, "h", 1), 0.0, lambda: 0)
        windows.append(window)
    # when: ten seconds pass and nobody answers
    asked = 0
    for step in range(1, 101):
        for window in windows:
            asked += window.on_tick(step / 10).resync is not None
    # then: the budget was used, and kept
    assert 50 <= asked <= 105


# --- the table ---------------------------------------------------------------------------------


class Watched(MessageWindow):
    """Remembers which rows of the table it has used."""

    used: ClassVar[set[tuple[Phase, Cause]]] = set()

    def _step(self, cause: Cause, now: float) -> None:
        self.used.add((self.phase, cause))
        super()._step(cause, now)


def random_life(rng: Random) -> None:
    """A window that is told anything in any order; only its own rules keep it sane."""
    window = Watched(NODE, rng, TokenBucket(1, 2), WindowTimes(silent_after_s=20.0, gap_max_s=8.0))
    now = 0.0
    for _ in range(60):
        epoch = max(1, window.epoch + rng.choice([-1, 0, 0, 0, 0, 0, 1]))
        sequence = max(1, (window.sequence or 0) + rng.randint(-2, 4))
        now += rng.choice([0.0, 0.0, 0.01, 1.0, 9.0, 21.0])
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                window.receive(increment(sequence, epoch), now, lambda: DIGEST)
            case 4 | 5:
                window.receive(beat(sequence, epoch, rng.choice([DIGEST, 1])), now, lambda: DIGEST)
            case 6:
                window.receive(snapshot(sequence, epoch), now, lambda: DIGEST)
            case 7:
                window.receive(hello(epoch), now, lambda: DIGEST)
            case 8:
                window.receive(Goodbye(NODE, epoch, sequence), now, lambda: DIGEST)
            case 9:
                window.reconnected(now)
            case 10:
                window.forget(now)
            case 11:
                window.on_tick(now)
        window.validate()


def test_every_row_of_the_table_happens_and_nothing_else_does() -> None:
    Watched.used.clear()
    for seed in range(3000):
        random_life(Random(seed))
    assert Watched.used == set(TRANSITIONS)


def test_every_phase_has_a_freshness_and_can_be_left() -> None:
    assert set(FRESHNESS) == set(Phase)
    for phase in Phase:
        assert any(
            after is not phase for (before, _), after in TRANSITIONS.items() if before is phase
        )


def test_only_a_snapshot_or_all_that_was_missing_makes_a_stale_node_fresh() -> None:
    causes = {
        c
        for (before, c), after in TRANSITIONS.items()
        if before is Phase.LOST and after is Phase.IN_ORDER
    }
    assert causes == {Cause.SNAPSHOT_ALL, Cause.APPLIED_ALL}


def test_a_silent_node_is_never_asked_and_a_differing_one_always() -> None:
    assert frozenset({Phase.GAP, Phase.DIFFERS, Phase.LOST}) == ASKING


def test_nothing_is_one_object(fresh: Receiver) -> None:
    assert fresh.window.receive(beat(5), fresh.now, lambda: DIGEST) is NOTHING


def test_the_counters_are_names_for_metrics(fresh: Receiver) -> None:
    fresh.take(increment(6))
    counts = fresh.window.counters.as_dict()
    assert counts["increments_applied"] == 1 and counts["snapshots_applied"] == 1
