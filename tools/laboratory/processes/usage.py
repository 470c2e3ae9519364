# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of processes."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import time
from pathlib import Path

from tools.laboratory.processes.table import Process, Stat, session_of, stat_of


def cpu_seconds(process: Process) -> float:
    """CPU time of a process and the others of its session since their start."""
    stats = [stat_of(pid) for pid in session_of(process.pid)]
    return sum(seconds_of(stat) for stat in stats if stat)


def seconds_of(stat: Stat) -> float:
    """CPU time of one process since its start."""
    return stat.cpu_ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(process: Process) -> int:
    """Memory of a process and its forked processes; a page that n processes share counts one nth (PSS)."""
    total_kb = 0
    for pid in session_of(process.pid):
        with contextlib.suppress(OSError):
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            total_kb += int(found[1]) if found else 0
    return total_kb // 1024


def cpu_of_threads(leader: int) -> dict[int, float]:
    """CPU seconds so far of every thread of a session."""
    found = {}
    for pid in session_of(leader):
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                nanoseconds = (task / "schedstat").read_text().split()[0]
                found[int(task.name)] = int(nanoseconds) / 1e9
    return found


def own_memory_mb() -> float:
    """The maximum memory of this process."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def own_cpu_s() -> float:
    """CPU time of this process so far."""
    return round(time.process_time(), 2)
