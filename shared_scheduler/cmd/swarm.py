# SPDX-License-Identifier: Apache-2.0
"""Many worlds, one a seed, over several processes, and what they come to together."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from shared_scheduler.cmd.endings import ENDING
from shared_scheduler.sim.report import endings_of, named, window_counters
from shared_scheduler.sim.run import drawn, run
from shared_scheduler.sim.world import World

#: seeds that one process is given at a time
CHUNK = 8
#: chunks that are given out, for each process: others go on while the first of them takes its time
CHUNKS_PER_WORKER = 4
#: violations of one seed that are told
TOLD_MAX = 3
#: a world makes few cycles and much garbage: look for them this much more rarely than Python would
GC_THRESHOLD = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one seed; ``broken`` are lines for people, none if all is well."""

    seed: int
    broken: tuple[str, ...]
    counts: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)


def attempt(seed: int) -> Outcome:
    """Run one drawn world.  An exception of the code under test breaks the seed, not the run."""
    try:
        world = run(drawn(seed))
    except Exception as error:
        return Outcome(seed, (f"raised {type(error).__name__}: {error}",))
    broken = tuple(violation.line() for violation in world.checkers.violations[:TOLD_MAX])
    return Outcome(seed, broken, _counts(world), world.checkers.checked)


def _counts(world: World) -> Counter[str]:
    counts = Counter(world.counters)
    counts["virtual_s"] = int(world.now)
    counts["messages"] = world.network.counters["deliveries"]
    counts.update({f"claims_{name}": n for name, n in endings_of(world).items()})
    counts.update({f"windows_{name}": n for name, n in window_counters(world).items()})
    return counts


def many(seeds: range, jobs: int) -> Generator[Outcome]:
    """Outcomes as they come, in the order of seeds.  Close it: whatever ends it ends the workers at once.

    :raises BrokenProcessPool: one of them died
    """
    if jobs == 1:
        yield from map(attempt, seeds)
        return
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(jobs, initializer=_begin_worker) as pool:
        try:
            yield from _in_order(pool, seeds, CHUNKS_PER_WORKER * jobs)
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            pool.shutdown(cancel_futures=True)
            raise


def _in_order(pool: ProcessPoolExecutor, seeds: range, chunks_max: int) -> Iterator[Outcome]:
    """``pool.map`` would hand over everything at once, and when it ends early cancel what the pool's own thread
    is about to end: that thread then dies, and nobody waits for the workers."""
    chunks = (seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK))
    under_way = deque(pool.submit(_attempt_all, chunk) for chunk in islice(chunks, chunks_max))
    while under_way:
        yield from under_way.popleft().result()
        under_way.extend(pool.submit(_attempt_all, chunk) for chunk in islice(chunks, 1))


def _attempt_all(seeds: range) -> list[Outcome]:
    return list(map(attempt, seeds))


def _begin_worker() -> None:
    """Signals are for the parent, who ends its workers; theirs are as of any process again."""
    gc.set_threshold(GC_THRESHOLD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed tells nobody, and its workers would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def rare_collections() -> Iterator[None]:
    """While worlds run in this process."""
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def cpu_s() -> float:
    """What this process and its ended workers have had of CPUs, whoever else wanted them meanwhile."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def speed(virtual_s: float, wall_s: float, used_cpu_s: float) -> dict[str, float]:
    """How fast worlds ran; against CPU seconds, so that a shared machine does not matter much."""
    return {
        "wall_s": round(wall_s, 2),
        "cpu_s": round(used_cpu_s, 2),
        "simulated_s_per_cpu_s": round(virtual_s / used_cpu_s, 1) if used_cpu_s else 0.0,
    }


@dataclass(slots=True)
class Total:
    """The sum of many outcomes."""

    seeds: int = 0
    broken: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """One more."""
        self.seeds += 1
        self.broken += bool(outcome.broken)
        self.counts.update(outcome.counts)
        self.checks.update(outcome.checks)

    def figures(self, wall_s: float, used_cpu_s: float) -> dict[str, Any]:
        """For people and machines."""
        counts = self.counts
        return {
            "seeds": self.seeds,
            "broken_seeds": self.broken,
            "virtual_s": counts["virtual_s"],
            **speed(counts["virtual_s"], wall_s, used_cpu_s),
            "requests": counts["requests"],
            "answered": counts["answered"],
            "failed": named(counts, "failed_"),
            "claims": named(counts, "claims_"),
            "instances": counts["instances"],
            "migrations": counts["migrations"],
            "messages": counts["messages"],
            "windows": named(counts, "windows_"),
            "faults": named(counts, "fault_"),
            "checks": sum(self.checks.values()),
            "checks_by_invariant": dict(sorted(self.checks.items())),
        }

