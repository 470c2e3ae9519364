# SPDX-License-Identifier: Apache-2.0
"""Every kind of fault occurs in the worlds that the seeds of every run draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from shared_scheduler.core.effects import Answer
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from shared_scheduler.sim.computes import SimTracker, Size
from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.placement import PROXY_TIMEOUT_S
from shared_scheduler.sim.run import FAULTS_FROM_S, RunPlan, drawn, run
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.test_simulator import SEEDS

#: what users, the conductor and nova-computes do beyond what is asked of a scheduler
ODD = {"builds_failed", "builds_given_up", "alternates_used", "migrations", "deleted", "phantoms", "zeros"}
#: what the network does
NETWORK_FAULTS = {"lost", "duplicated", "delayed", "garbled", "rejected_UnknownVersion", "rejected_UnknownMessageType"}


def kinds_of(seed: int) -> tuple[set[str], set[str]]:
    """The kinds of faults that it has, and all that there are."""
    plan = drawn(seed)
    world = World(plan.seed, plan.sizes, plan.workload, plan.network_faults)
    faults = Faults(world, world.rng("faults"))
    if plan.fault_every_s:
        faults.draw(FAULTS_FROM_S, plan.duration_s, plan.fault_every_s, rare=True)
    return {fault.kind for fault in faults.planned}, set(faults.kinds())


def test_every_kind_of_fault_is_among_them() -> None:
    seen: set[str] = set()
    for seed in SEEDS:
        kinds, every = kinds_of(seed)
        seen |= kinds
        if seen == every:
            return
    pytest.fail(f"no seed has {every - seen}")


def test_the_clock_of_a_scheduler_jumps_less_in_all_than_it_waits_for_late_writes() -> None:
    # given a scheduler whose clock jumps several times, while one write may be under way
    world = World(1, Sizes(nodes=1, schedulers=1), Workload(rate_per_s=1e-9), NetworkFaults())
    faults, clock = Faults(world, world.rng("faults")), world.schedulers[0].clock
    ahead_s = clock.now - world.now
    for at_s in range(1, 6):
        faults.plan("scheduler_clock_jumps", at_s, 1.0)
    # when all have passed, then it still waits for what a proxy ends
    world.run(10.0)
    assert 0 < clock.now - world.now - ahead_s <= CARRIED_OUT_WITHIN_S - PROXY_TIMEOUT_S


@pytest.fixture
def noticed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """What a tracker does that no counter of a world tells."""
    seen: Counter[str] = Counter()
    audit, zeros = SimTracker.audit, SimTracker.zeros

    def audited(self: SimTracker) -> object:
        seen["phantoms"] += len(self.phantoms)
        return audit(self)

    def zeroed(self: SimTracker) -> object:
        seen["zeros"] += 1
        return zeros(self)

    monkeypatch.setattr(SimTracker, "audit", audited)
    monkeypatch.setattr(SimTracker, "zeros", zeroed)
    yield seen


@pytest.mark.long
def test_everything_that_a_compute_and_a_network_can_do_is_done(noticed: Counter[str]) -> None:
    missing = ODD | NETWORK_FAULTS
    for seed in SEEDS:
        world = run(drawn(seed))
        missing -= {name for name, times in (world.counters + world.network.counters + noticed).items() if times}
        if not missing:
            return
    pytest.fail(f"in no world: {missing}")


@pytest.mark.long
def test_requests_for_a_hundred_at_once_are_placed_whole_or_leave_nothing() -> None:
    # given users who ask for up to a hundred servers in one request, of two nodes that take 32 claims at once
    workload = Workload(
        rate_per_s=0.5, lifetime_s=15.0, several=1.0, several_max=100, build_fails=0.0, not_root_only=0.0
    )
    size = Size(vcpus=64, memory_mb=262_144, disk_gb=8_000)
    world = run(RunPlan(11, 40.0, Sizes(nodes=2, schedulers=2, size=size), workload))
    # then large ones have been placed, others were told that there is no room, and nothing is wrong
    placed = [len(one.servers) for one in world.users.asked.values() if isinstance(one.outcome, Answer)]
    assert max(placed) > 2 * 32
    assert world.counters["failed_no_valid_host"] > 0
    assert world.checkers.violations == []
