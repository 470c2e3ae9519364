# SPDX-License-Identifier: Apache-2.0
"""The judge of ``tools/chaos`` knows a lie when it sees one."""

from __future__ import annotations

import pytest

from tools.realcloud.chaos import reasons
from tools.realcloud.chaos.story import Blow, Deed, Story, Wish
from tools.realcloud.chaos.witness import Memory, Sight

NO_HOST = "No valid host was found. There are not enough hosts available."
NO_ANSWER = "MessagingTimeout: Timed out waiting for a reply to message ID 1"
BOTH = frozenset({"c1", "c2"})


def seen(*used_mb: int, open_hosts: frozenset[str] = BOTH) -> Memory:
    """One look a second at two hosts of 1200 MB: c1 is full, c2 holds so much."""
    sights = [Sight(float(at), {"c1": 1200, "c2": used}, open_hosts) for at, used in enumerate(used_mb)]
    return Memory({"c1": 1200, "c2": 1200}, sights)


def failed(why: str = NO_HOST, began_at: float = 1.0, wish: Wish | None = None) -> Deed:
    wish = wish or Wish(400, BOTH)
    return Deed(1, "boot", "server", began_at, wish, ended_at=began_at + 1, ok=False, why=why)


def told(deed: Deed, memory: Memory, *others: Deed, blows: tuple[Blow, ...] = ()) -> str:
    return reasons.lie(deed, Story([deed, *others], list(blows)), memory)


def test_no_host_is_a_lie_where_a_host_had_room_all_the_time() -> None:
    assert "c2 had room" in told(failed(), seen(800, 800, 800, 800))


@pytest.mark.parametrize(
    ("memory", "why"),
    [
        (seen(1200, 1200, 1200, 1200), "it was full"),
        (seen(800, 1200, 800, 800), "it was full for a moment"),
        (seen(800, 800, 800, 800, open_hosts=frozenset({"c1"})), "it was closed"),
    ],
)
def test_no_host_is_true_where_none_had_room_all_the_time(memory: Memory, why: str) -> None:
    assert told(failed(), memory) == "", why


def test_what_others_may_have_held_for_a_moment_counts() -> None:
    beside = Deed(2, "boot", "other", 0.5, Wish(400, BOTH))
    before = Deed(2, "boot", "other", 0.1, Wish(400, BOTH), ended_at=0.5, ok=True)

    assert told(failed(), seen(800, 800, 800, 800), beside) == ""
    assert "c2 had room" in told(failed(), seen(800, 800, 800, 800), before)


def test_a_host_that_was_not_allowed_does_not_count() -> None:
    assert told(failed(wish=Wish(400, frozenset({"c1"}))), seen(800, 800, 800, 800)) == ""


def test_no_answer_is_true_only_while_a_scheduler_is_down() -> None:
    deed, memory = failed(NO_ANSWER, began_at=10.0), seen(800)

    assert told(deed, memory, blows=(Blow("scheduler killed", "sched1", 5.0, 10.5),)) == ""
    assert "no scheduler was killed" in told(deed, memory, blows=(Blow("scheduler killed", "sched1", 1.0, 9.0),))
    assert "no scheduler was killed" in told(deed, memory, blows=(Blow("host disabled", "c1", 5.0, 10.5),))


def test_any_other_reason_is_none() -> None:
    assert told(failed("KeyError: 'cell1'"), seen(1200, 1200)) == "a reason that no request may have here"
