# SPDX-License-Identifier: Apache-2.0
"""A long ``simulate --seeds`` that ends before its time: at once, with a summary, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cmd.waiting import WAIT_S, eventually

JOBS = 2
SEEDS = 1_000_000
#: a worker that has computed for so long has begun to run worlds
BUSY_S = 0.5
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """What a process has computed; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return 0.0 if fields[0] == "Z" else (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Swarm:
    """The command in a process group of its own, its workers at work."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "shared_scheduler.cmd.manage", "simulate", "--seed", "1",
                   "--seeds", str(SEEDS), "--jobs", str(JOBS), "--format", "json"]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.workers: list[int] = eventually(self._busy)

    def _busy(self) -> list[int]:
        assert self.process.poll() is None
        workers = children_of(self.process.pid)
        return workers if len(workers) == JOBS and all(cpu_s(pid) > BUSY_S for pid in workers) else []

    def ended(self) -> tuple[int, dict[str, Any], str]:
        """Exit code, the summary, and what was said besides."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, json.loads(out), err


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    swarm = Swarm()
    yield swarm
    try:
        os.killpg(swarm.process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    swarm.process.communicate()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=("time limit", "Ctrl-C")
)
def test_a_signal_ends_a_run_with_a_summary_of_its_results(swarm: Swarm, number: signal.Signals, code: int) -> None:
    computed_s = sum(map(cpu_s, swarm.workers))

    os.killpg(swarm.process.pid, number)  # as a terminal and a time limit do: everybody hears it

    ended, figures, told = swarm.ended()
    assert ended == code
    assert figures["seeds_asked"] == SEEDS > figures["seeds"]
    assert figures["cpu_s"] >= computed_s, "what the workers computed is counted"
    assert f"the first seed that was not run is {1 + figures['seeds']}" in told
    assert "Traceback" not in told
    assert not any(map(cpu_s, swarm.workers)), "no worker is left"


def test_a_worker_that_dies_ends_it_with_one_line(swarm: Swarm) -> None:
    os.kill(swarm.workers[0], signal.SIGKILL)

    ended, figures, told = swarm.ended()
    assert ended == 2
    assert figures["seeds"] < SEEDS and figures["cpu_s"] > BUSY_S
    assert "simulate: a worker process was killed" in told and "Traceback" not in told
    assert not any(map(cpu_s, swarm.workers)), "no worker is left"


def test_workers_whose_parent_is_killed_do_not_stay(swarm: Swarm) -> None:
    swarm.process.kill()

    assert eventually(lambda: not any(map(cpu_s, swarm.workers)))
