# SPDX-License-Identifier: Apache-2.0
"""Messages that wait to be sent are bounded in number and age."""

from __future__ import annotations

from shared_scheduler.transport.outbox import Outbox


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def bodies(outbox: Outbox) -> list[bytes]:
    found = []
    while (parcel := outbox.take(0.0)) is not None:
        found.append(parcel.body)
    return found


def test_first_in_first_out() -> None:
    outbox = Outbox()
    assert outbox.put("exchange", "", "me", b"one") and outbox.put("", "you", "me", b"two")
    first = outbox.take(0.0)
    assert first is not None
    assert (first.exchange, first.routing_key, first.sender, first.body) == (
        "exchange",
        "",
        "me",
        b"one",
    )
    assert bodies(outbox) == [b"two"]


def test_messages_that_do_not_fit_are_dropped_and_their_sender_is_told() -> None:
    outbox = Outbox(messages_max=2)
    assert [outbox.put("", "you", "me", b"%d" % n) for n in range(4)] == [True, True, False, False]
    assert bodies(outbox) == [b"0", b"1"]


def test_messages_that_waited_too_long_are_not_sent() -> None:
    clock = Clock()
    outbox = Outbox(age_max_s=30, clock=clock)
    outbox.put("", "you", "me", b"old")
    clock.now_s = 20
    outbox.put("", "you", "me", b"young")
    clock.now_s = 31
    assert bodies(outbox) == [b"young"]
    assert outbox.expired == 1


def test_waking_a_full_or_an_empty_outbox_is_harmless() -> None:
    outbox = Outbox(messages_max=1)
    outbox.wake()
    assert outbox.take(0.0) is None
    outbox.put("", "you", "me", b"one")
    outbox.wake()
    assert bodies(outbox) == [b"one"]
