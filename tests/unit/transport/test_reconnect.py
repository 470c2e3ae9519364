# SPDX-License-Identifier: Apache-2.0
"""The pauses between two connections to a broker."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from shared_scheduler.transport import reconnect, transport_settings
from shared_scheduler.transport.reconnect import Reconnector
from shared_scheduler.transport.urls import parse_transport_url


@dataclass
class Pauses:
    """Stands for the back-off: notes the number of attempts, and does not wait."""

    max_s: float = transport_settings.RECONNECT_BACKOFF.max_s
    attempts: list[int] = field(default_factory=list)

    def wait_s(self, _rng: random.Random, attempts: int) -> float:
        self.attempts.append(attempts)
        return 0.0


def test_the_pauses_grow_until_a_connection_has_held_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, stopping, now_s = Pauses(), threading.Event(), [0.0]
    monkeypatch.setattr(transport_settings, "RECONNECT_BACKOFF", pauses)
    monkeypatch.setattr(reconnect, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    held_s = [0.0, 1.0, 2 * pauses.max_s, 1.0]

    def serve(_connection: object) -> None:
        now_s[0] += held_s.pop(0)
        if not held_s:
            stopping.set()
        raise ConnectionResetError("lost")

    url = parse_transport_url("memory://")
    Reconnector(url, "test", "receives", stopping, random.Random(1)).run(serve, lambda: None)

    assert pauses.attempts == [1, 2, 0, 1]
