# SPDX-License-Identifier: Apache-2.0
"""The table of the window's states: all of it happens, and nothing else."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from shared_scheduler.protocol.messages import Leave
from shared_scheduler.protocol.phases import ASKING, FRESHNESS, TRANSITIONS
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import NOTHING, Cause, MessageWindow, WindowPhase, WindowTimes
from tests.unit.protocol.window_driver import DIGEST, NODE, Receiver, heartbeat, hello, increment, snapshot


class Watched(MessageWindow):
    """Remembers which rows of the table it has used."""

    used: ClassVar[set[tuple[WindowPhase, Cause]]] = set()

    def _step(self, cause: Cause, now: float) -> None:
        self.used.add((self.phase, cause))
        super()._step(cause, now)


def random_life(rng: Random, is_distrusted: bool) -> None:
    """A window that is told anything in any order; only its own rules keep it sane."""
    window = Watched(NODE, rng, ResyncTurns(str, TokenBucket(1, 2)), WindowTimes(silent_after_s=20.0, gap_max_s=8.0))
    now = 0.0
    for turn in range(60):
        if is_distrusted and turn % 6 == 5:
            window.distrust(now)
            window.validate()
        epoch = max(1, window.epoch + rng.choice([-1, 0, 0, 0, 0, 0, 1]))
        sequence = max(1, (window.sequence or 0) + rng.randint(-2, 4))
        now += rng.choice([0.0, 0.0, 0.01, 1.0, 9.0, 21.0])
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                window.receive(increment(sequence, epoch), now, lambda: DIGEST)
            case 4 | 5:
                window.receive(heartbeat(sequence, epoch, rng.choice([DIGEST, 1])), now, lambda: DIGEST)
            case 6:
                window.receive(snapshot(sequence, epoch), now, lambda: DIGEST)
            case 7:
                window.receive(hello(epoch), now, lambda: DIGEST)
            case 8:
                window.receive(Leave(NODE, epoch, sequence), now, lambda: DIGEST)
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
        random_life(Random(seed), is_distrusted=seed % 10 == 0)
    assert Watched.used == set(TRANSITIONS)


def test_every_phase_has_a_freshness_and_can_be_left() -> None:
    assert set(FRESHNESS) == set(WindowPhase)
    for phase in WindowPhase:
        assert any(after is not phase for (before, _), after in TRANSITIONS.items() if before is phase)


def test_only_a_snapshot_or_all_that_was_missing_makes_a_stale_node_fresh() -> None:
    causes = {
        c for (before, c), after in TRANSITIONS.items() if before is WindowPhase.LOST and after is WindowPhase.IN_ORDER
    }
    assert causes == {Cause.SNAPSHOT_ALL, Cause.APPLIED_ALL}


def test_a_silent_node_is_never_asked_and_a_differing_one_always() -> None:
    assert frozenset({WindowPhase.GAP, WindowPhase.DIFFERS, WindowPhase.LOST}) == ASKING


def test_nothing_is_one_object(fresh: Receiver) -> None:
    assert fresh.window.receive(heartbeat(5), fresh.now, lambda: DIGEST) is NOTHING


def test_the_counters_are_names_for_metrics(fresh: Receiver) -> None:
    fresh.take(increment(6))
    counts = fresh.window.counters.as_dict()
    assert counts["increments_applied"] == 1 and counts["snapshots_applied"] == 1
