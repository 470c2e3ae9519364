# SPDX-License-Identifier: Apache-2.0
"""Messages gather while no answer is expected, and are read at once otherwise."""

from __future__ import annotations

import threading

from shared_scheduler.transport.gathering import Gathering
from shared_scheduler.transport.transport_settings import EAGER_S, GATHER_S


class Waits(threading.Event):
    """Records waits in the place of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_s.append(timeout)
        return self.is_set()


def test_messages_gather_while_nothing_was_cast_for_a_while() -> None:
    # given a scheduler that has just cast a claim
    now, waits = [100.0], Waits()
    gathering = Gathering(lambda: now[0], waits)
    gathering.hurry()
    # then it reads at once
    gathering.wait()
    now[0] += EAGER_S - 0.01
    gathering.wait()
    assert waits.waited_s == []
    # until it has cast nothing for a while
    now[0] += 0.02
    gathering.wait()
    assert waits.waited_s == [GATHER_S]


def test_a_claim_ends_the_wait() -> None:
    # given a thread that waits for much longer than this test may take
    waiting, woken = threading.Event(), threading.Event()

    class Long(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waiting.set()
            return super().wait(60.0)

    gathering = Gathering(hurried=Long())

    def read() -> None:
        gathering.wait()
        woken.set()

    threading.Thread(target=read, daemon=True).start()
    assert waiting.wait(30.0)
    # when a claim is cast, then it reads
    gathering.hurry()
    assert woken.wait(30.0)
