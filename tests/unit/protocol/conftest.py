# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the stories of windows."""

from __future__ import annotations

import pytest

from shared_scheduler.protocol.window import WindowFreshness
from tests.unit.protocol.window_driver import Receiver, snapshot


@pytest.fixture
def fresh() -> Receiver:
    """In order at sequence 5 of epoch 1."""
    receiver = Receiver()
    assert receiver.take(snapshot(5)) == ["snapshot 1.5"]
    assert receiver.window.freshness is WindowFreshness.FRESH
    return receiver
