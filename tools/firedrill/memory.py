# SPDX-License-Identifier: Apache-2.0
"""What a process has taken of the machine."""

from __future__ import annotations

import resource
import time


def memory_mb() -> float:
    """The most that this process ever held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def cpu_s() -> float:
    """CPU time of this process so far."""
    return round(time.process_time(), 2)
