# SPDX-License-Identifier: Apache-2.0
"""Runs many worlds, one per seed, in several processes, and sums up their outcomes."""

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

from shared_scheduler.daemon.endings import ENDING
from shared_scheduler.sim.found_changes import FOUND
from shared_scheduler.sim.report import endings_of, named, window_counters
from shared_scheduler.sim.run import drawn, run
from shared_scheduler.sim.world import World

#: seeds that a worker process gets at a time
CHUNK = 8
#: chunks under way per worker, so that no worker idles while the oldest chunk is awaited
CHUNKS_PER_WORKER = 4
#: violations of one seed that are shown
VIOLATIONS_SHOWN_MAX = 3
#: threshold of the garbage collector: a world allocates much and makes few cycles, so collections rarely find any
GC_THRESHOLD = 100_000


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """The outcome of one seed; ``broken`` has a line for each violation or exception, none if there is none."""

    seed: int
    broken: tuple[str, ...]
    counts: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)


def run_seed(seed: int) -> SeedOutcome:
    """Run the world of one seed.  An exception of the code under test breaks this seed and does not end the run."""
    try:
        world = run(drawn(seed))
    except Exception as error:
        return SeedOutcome(seed, (f"raised {type(error).__name__}: {error}",))
    broken = tuple(violation.line() for violation in world.checkers.violations[:VIOLATIONS_SHOWN_MAX])
    return SeedOutcome(seed, broken, _counts(world), world.checkers.checked)


def _counts(world: World) -> Counter[str]:
    counts = Counter(world.counters)
    counts["virtual_s"] = int(world.now)
    counts["messages"] = world.network.counters["deliveries"]
    counts.update({f"claims_{name}": n for name, n in endings_of(world).items()})
    counts.update({f"windows_{name}": n for name, n in window_counters(world).items()})
    return counts


def run_seeds(seeds: range, jobs: int) -> Generator[SeedOutcome]:
    """Outcomes in the order of the seeds.  Close the generator: its end, early or not, ends the workers.

    :raises BrokenProcessPool: when a worker ended by itself
    """
    if jobs == 1:
        yield from map(run_seed, seeds)
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


def _in_order(pool: ProcessPoolExecutor, seeds: range, chunks_max: int) -> Iterator[SeedOutcome]:
    """Submit a bounded number of chunks.  ``pool.map`` submits all at once; when it ends early, it cancels futures that
    the thread of the pool is about to finish.  That thread then dies, and nothing waits for the workers."""
    chunks = (seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK))
    under_way = deque(pool.submit(_run_chunk, chunk) for chunk in islice(chunks, chunks_max))
    while under_way:
        yield from under_way.popleft().result()
        under_way.extend(pool.submit(_run_chunk, chunk) for chunk in islice(chunks, 1))


def _run_chunk(seeds: range) -> list[SeedOutcome]:
    return list(map(run_seed, seeds))


def _begin_worker() -> None:
    """Restore the default handling of signals, and ignore SIGINT: the parent handles it and ends its workers."""
    gc.set_threshold(GC_THRESHOLD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent was killed; it would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely while worlds run in this process."""
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def cpu_s() -> float:
    """CPU seconds of this process and its ended workers."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def speed(virtual_s: float, wall_s: float, used_cpu_s: float) -> dict[str, float]:
    """The speed of the simulation per CPU second, which depends less on the load of the machine than on wall time."""
    return {
        "wall_s": round(wall_s, 2),
        "cpu_s": round(used_cpu_s, 2),
        "simulated_s_per_cpu_s": round(virtual_s / used_cpu_s, 1) if used_cpu_s else 0.0,
    }


@dataclass(slots=True)
class SwarmTotal:
    """The sum of the outcomes of many seeds."""

    seeds: int = 0
    broken: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: SeedOutcome) -> None:
        """Add the outcome of one seed."""
        self.seeds += 1
        self.broken += bool(outcome.broken)
        self.counts.update(outcome.counts)
        self.checks.update(outcome.checks)

    def figures(self, wall_s: float, used_cpu_s: float) -> dict[str, Any]:
        """The figures to print, as text or JSON."""
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
            "foreign_changes": named(counts, FOUND),
            "faults": named(counts, "fault_"),
            "checks": sum(self.checks.values()),
            "checks_by_invariant": dict(sorted(self.checks.items())),
        }
