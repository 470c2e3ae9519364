# SPDX-License-Identifier: Apache-2.0
"""The broker delivers each request to two schedulers, while Placement is slow and schedulers freeze.

Both write for one server.  The writes of one of them have no answer in time, and are carried out later, or never.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.core.effects import ConsumerPolicy, WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.own_records import OwnRecord
from shared_scheduler.sim.lone_writes import LoneWrite
from shared_scheduler.sim.run import drawn, run
from shared_scheduler.sim.write_calls import CallReply

ALLOCATIONS = {"node-1": {"VCPU": 1}}
DEADLINE_S = 100.0
KINDS = ("requests_twice", "placement_slow", "scheduler_freezes")


@pytest.mark.parametrize("seed", [37, 42, 49])
def test_a_server_keeps_the_allocations_of_the_host_that_was_answered(seed: int) -> None:
    world = run(replace(drawn(seed), fault_every_s=0.7, fault_kinds=KINDS, swarm=False))
    assert world.counters["ended_twice"] > 0
    assert world.checkers.violations == []


@pytest.mark.parametrize(("now", "code"), [(0.0, None), (DEADLINE_S, WriteCode.WRITTEN)], ids=["in time", "too late"])
def test_what_either_scheduler_may_have_created_is_written_once_more(now: float, code: WriteCode | None) -> None:
    # given a write without an answer
    effect = WriteAllocation("claim", "vm", ALLOCATIONS, {}, "", "", ConsumerPolicy.NEW, False, "req", DEADLINE_S)
    lone = LoneWrite(effect, lambda *_: None)
    lone.replied(CallReply(WriteCode.UNREACHABLE, may_arrive=True))
    # when what it wrote is found: then it is sent with that generation, or counts as written if there is no time
    assert lone.compare(ConsumerAllocations(ALLOCATIONS, 1), now, OwnRecord.NONE, is_merged=False) is code
    assert (lone.generation, lone.made, lone.unfinished) == (1, 1, WriteCode.WRITTEN)
