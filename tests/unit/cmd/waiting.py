# SPDX-License-Identifier: Apache-2.0
"""Waits for another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: a process may be slow to begin on a busy machine
WAIT_S = 300.0


def eventually(found: Callable[[], Any]) -> Any:
    """What it finds at last."""
    until_s = time.monotonic() + WAIT_S
    while not (it := found()):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return it
