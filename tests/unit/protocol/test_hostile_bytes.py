# SPDX-License-Identifier: Apache-2.0
"""Malicious bytes and numbers: no uncaught exception, bounded work, bounded memory."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.errors import RemoteProtocolError
from shared_scheduler.protocol.messages import Heartbeat, Hello, Increment, Leave, Role, Snapshot
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import MessageWindow, NodeMessage
from tests.support.examples import examples
from tests.unit.protocol.samples import MESSAGES, NODE
from tools.laboratory.fuzz.mutations import mutated_bytes

#: function calls that one body may cost: some for its type, and so many for each of its bytes
CALLS_OF_ANY_BODY, CALLS_PER_BYTE = 60, 1
#: what a body may become in memory, for a moment: Python objects are larger than their bytes
MEMORY_OF_ANY_BODY_BYTES, MEMORY_PER_BYTE = 8 * limits.KIB, 16

BODIES = [encode(message) for message in MESSAGES]


def mutation(rng: Random) -> bytes:
    """A real body with some bytes changed, cut, inserted or repeated."""
    return mutated_bytes(rng.choice(BODIES), rng)


def one_byte_off(rng: Random) -> bytes:
    """A real body in which one byte is another."""
    body = bytearray(rng.choice(BODIES))
    body[rng.randrange(len(body))] = rng.randrange(256)
    return bytes(body)


def understood(body: bytes) -> Any:
    """The message, None where it is refused; anything else that is raised is a bug."""
    try:
        return decode(body)
    except RemoteProtocolError:
        return None


def calls_of(action: Callable[[], object]) -> int:
    """Calls of functions, ours and those of C: work that no busy machine changes."""
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def peak_of(action: Callable[[], object]) -> int:
    """Bytes that were allocated at most while it ran."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_body_costs_more_work_than_its_size_allows() -> None:
    rng = Random(1)
    for body in (mutation(rng) for _ in range(2000)):
        understood(body)  # fills what isinstance() keeps of a type that it has not met yet
        calls = calls_of(lambda body=body: understood(body))  # type: ignore[misc]
        assert calls <= CALLS_OF_ANY_BODY + CALLS_PER_BYTE * len(body), body


def test_the_memory_of_a_decoded_body_is_bounded_by_its_size() -> None:
    rng = Random(2)
    for body in (mutation(rng) for _ in range(1000)):
        peak = peak_of(lambda body=body: understood(body))  # type: ignore[misc]
        assert peak <= MEMORY_OF_ANY_BODY_BYTES + MEMORY_PER_BYTE * len(body), body


# --- the window --------------------------------------------------------------------------------

anything = st.one_of(st.integers(1, 5), st.integers(1, limits.COUNT_MAX))
filling = st.sampled_from(["", "x" * limits.LEAF_TEXT_MAX_CHARS])
digests = st.integers(0, limits.DIGEST_MAX)
spoken: st.SearchStrategy[NodeMessage] = st.one_of(
    st.builds(Increment, st.just(NODE), anything, anything, st.builds(lambda x: {"cn.x": x}, filling)),
    st.builds(lambda e, s, d: Snapshot(NODE, e, s, "h", {}, {}, {}, d), anything, anything, digests),
    st.builds(lambda e, s, d: Heartbeat(NODE, e, s, "h", d), anything, anything, digests),
    st.builds(lambda e, s: Leave(NODE, e, s), anything, anything),
    st.builds(lambda e: Hello(Role.AGENT, "a", e, NODE, "h"), anything),
)
moments = st.sampled_from([0.0, 0.001, 1.0, 30.0, 100.0, -50.0])  # clocks jump back, too


def a_window() -> MessageWindow:
    return MessageWindow(NODE, Random(1), ResyncTurns(str))


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(spoken, moments), max_size=40))
def test_a_window_with_arbitrary_messages_stays_consistent_and_bounded(told: list[Any]) -> None:
    window, now = a_window(), 1000.0
    applied: list[tuple[int, int]] = []
    for message, passed_s in told:
        now += passed_s
        outcome = window.receive(message, now, lambda: 1)
        applied += [(one.epoch, one.sequence) for one in outcome.apply]
        window.on_tick(now)
        window.validate()
        assert window.held <= limits.HELD_MAX_MESSAGES
    assert applied == sorted(applied)


def test_a_window_drops_early_messages_above_its_bound() -> None:
    window = a_window()
    window.receive(Snapshot(NODE, 1, 1, "h", {}, {}, {}, 1), 0.0, lambda: 1)
    text = "x" * limits.LEAF_TEXT_MAX_CHARS
    for sequence in range(3, 3003):
        window.receive(Increment(NODE, 1, sequence, {"cn.x": text}), 0.0, lambda: 1)
    held = limits.HELD_MAX_BYTES // limits.LEAF_TEXT_MAX_CHARS
    assert 0 < window.held <= held
    assert window.lag == 3001


def test_a_conversation_in_which_a_byte_is_off_now_and_then_never_breaks_a_window() -> None:
    rng, window, now = Random(3), a_window(), 0.0
    heard = 0
    for _ in range(3000):
        now += rng.choice([0.0, 0.01, 2.0])
        message = understood(one_byte_off(rng))
        if isinstance(message, NodeMessage) and message.node == NODE:
            window.receive(message, now, lambda: 1)
            heard += 1
        window.on_tick(now)
        window.validate()
    assert heard > 30, "nothing was left of the conversation"
