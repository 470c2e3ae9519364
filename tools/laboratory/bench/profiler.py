# SPDX-License-Identifier: Apache-2.0
"""CPU profiles of a process during a measurement: CPU seconds by thread, and stacks sampled by py-spy.

A profiled measurement shows hot spots; its figures are not comparable, because sampling takes CPU time.
"""

import json
import os
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.laboratory.bench.environment import World
from tools.laboratory.errors import LabError
from tools.laboratory.processes.table import session_of
from tools.laboratory.processes.usage import cpu_of_threads

RATE_HZ = 400
TOP = 60
END_TIMEOUT_S = 60


@contextmanager
def profiled(world: World, process: str, stacks: Path) -> Iterator[None]:
    """Sample a process and its forked processes; writes collapsed stacks to `stacks`, and summaries to files beside it.

    The stacks (`.top`) are samples with the interpreter's lock; the CPU seconds (`.threads`) are those of the kernel.
    """
    program = world.layout.openstack / "bin" / "py-spy"
    if not program.exists():
        raise LabError(f"{program} does not exist; install py-spy into that environment, or omit --profile")
    target = world.processes.alive(process)
    if target is None:
        raise LabError(f"{process} does not run; see {world.layout.log_of(process)}")
    stacks.parent.mkdir(parents=True, exist_ok=True)
    argv = [str(program), "record", "--pid", str(target.pid), "--subprocesses", "--rate", str(RATE_HZ), "--format",
            "raw", "--output", str(stacks), "--duration", "3600", "--gil", "--nonblocking"]  # fmt: skip
    before = cpu_of_threads(target.pid)
    sampler = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        after = cpu_of_threads(target.pid)
        sampler.send_signal(signal.SIGINT)
        sampler.wait(END_TIMEOUT_S)
    names = names_of_threads(program, target.pid)
    stacks.with_suffix(".threads").write_text(by_thread(before, after, names))
    stacks.with_suffix(".top").write_text(summary(stacks.read_text()))


def names_of_threads(program: Path, leader: int) -> dict[int, str]:
    """Python's names of the threads of a session."""
    found = {}
    for pid in session_of(leader):
        dump = subprocess.run([str(program), "dump", "--json", "--pid", str(pid)], capture_output=True, check=False)
        with suppress(ValueError):
            for thread in json.loads(dump.stdout):
                found[thread["os_thread_id"]] = thread["thread_name"] or "?"
    return found


def by_thread(before: dict[int, float], after: dict[int, float], names: dict[int, str]) -> str:
    """CPU seconds of each thread, summed over threads with the same name except digits."""
    used: defaultdict[str, float] = defaultdict(float)
    for thread, seconds in after.items():
        name = names.get(thread, "ended or native").rstrip("0123456789-_")
        used[name] += seconds - before.get(thread, 0.0)
    total = sum(used.values())
    most_first = sorted(used.items(), key=lambda one: -one[1])
    lines = [f"{seconds:8.3f} s {seconds / max(total, 1e-9):6.1%} {name}" for name, seconds in most_first]
    return "\n".join([f"{total:8.3f} s in all, {os.cpu_count()} cores", *lines]) + "\n"


def summary(collapsed: str) -> str:
    """The functions with the most samples, with and without the functions that they call."""
    total, own, with_calls = 0, Counter[str](), Counter[str]()
    for line in collapsed.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        total += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames):
            with_calls[frame] += int(count)
    lines = [f"{total} samples that held the interpreter's lock, {RATE_HZ} a second", "", "with calls:"]
    lines += [f"{count / max(1, total):6.1%} {frame}" for frame, count in with_calls.most_common(3 * TOP)]
    lines += ["", "own:", *(f"{count / max(1, total):6.1%} {frame}" for frame, count in own.most_common(TOP))]
    return "\n".join(lines) + "\n"
