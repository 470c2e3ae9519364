# SPDX-License-Identifier: Apache-2.0
"""A scheduler that stands still blames no agent for it: the verdicts that came meanwhile are in time."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.core import agent_casts, write_queue
from shared_scheduler.core.effects import ConsumerPolicy, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.workload import FLAVORS, Workload
from shared_scheduler.sim.world import Sizes, World
from shared_scheduler.sim.writers import SimWriters


def missed_while_frozen() -> int:
    """The verdicts that schedulers missed in a world whose only fault is that one of them is frozen for five seconds.

    Half of the messages take up to 1.4 seconds, so claims wait for their verdicts when it begins.
    """
    workload = Workload(
        10.0, lifetime_s=2.0, several=0.0, not_root_only=0.0, build_fails=0.0, asks_again=0.0, flavors=FLAVORS[:1]
    )
    size = Size(vcpus=256, memory_mb=1_048_576, disk_gb=32_000)
    world = World(1, Sizes(nodes=4, schedulers=2, size=size), workload, NetworkFaults(late=0.5, late_max_s=1.4))
    Faults(world, world.rng("faults")).plan("scheduler_freezes", 4.0, 5.0)
    world.run(11.0)
    assert not world.checkers.violations
    return sum(one.core.counters().get("verdicts_missed", 0) for one in world.schedulers.values())


def test_no_verdict_counts_as_missed_because_its_scheduler_was_frozen() -> None:
    assert missed_while_frozen() == 0


def test_a_scheduler_that_does_not_notice_that_it_stood_still_misses_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_casts, "STOOD_STILL_S", float("inf"))
    assert missed_while_frozen() > 0


class StopsAgain:
    """A process that stops again with the first comparison after it continued."""

    def __init__(self) -> None:
        self.writers: SimWriters
        self.compared: list[str] = []

    def is_merged_move(self, consumer: str) -> bool:
        self.compared.append(consumer)
        self.writers.halt()
        return False

    def is_in_cell(self, consumer: str) -> bool:
        return False

    def is_needed(self, consumer: str, allocations: Allocations) -> bool | None:
        return None

    def written_or_deleted(self, event: AllocationWritten | AllocationDeleted) -> None:
        """The answer of a write."""

    def taken_back(self, consumer: str, allocations: Allocations) -> None:
        """A delete."""


def test_a_process_that_stops_again_compares_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    # given two writes without an answer, each by a writer of its own, whose consumers are read when the process stands
    # still
    monkeypatch.setattr(write_queue, "FURTHER_WRITER_AFTER_S", 0.0)
    world = World(1, Sizes(nodes=2, schedulers=1), Workload(0.0001), NetworkFaults())
    around = Surroundings(world.agenda, world.network, world.placement, world.trace, world.placement_delay_s)
    process, clock = StopsAgain(), LocalClock(world.agenda, Random(1))
    process.writers = writers = SimWriters("it", around, clock, Random(1), process)
    world.set_placement(False)
    for consumer in ("one", "another"):
        until_s, part = clock.now + 60.0, {f"node of {consumer}": {"VCPU": 1}}
        write = WriteAllocation(consumer, consumer, part, {}, "", "", ConsumerPolicy.NEW, False, "r", until_s)
        writers.submit(write)
    writers.halt()
    world.run(5.0)
    world.set_placement(True)
    assert process.compared == []
    # when it continues, and stops with the first of them
    writers.resume()
    # then the other one waits until it continues once more
    assert len(process.compared) == 1
    writers.resume()
    assert len(process.compared) == 2
