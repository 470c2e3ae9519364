# SPDX-License-Identifier: Apache-2.0
"""One scheduler with its core and its writer, on a real Placement, and what Nova and others do beside it."""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Iterable
from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.change_kinds import CONFIRMED_AFTER_S
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.reconciler import Locate, ServerActivity, ServerLocation
from shared_scheduler.protocol.messages import Allocations
from tests.unit.core.scheduler_driver import SchedulerDriver
from tests.unit.placement.real_placement import Clock, World

INVENTORIES = {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192}, "DISK_GB": {"total": 100}}


def node(world: World) -> str:
    """A compute node with room for some servers."""
    return world.provider(inventories=INVENTORIES)


class Nova:
    """Where Nova's databases have the server."""

    def __init__(self) -> None:
        self.found = ServerLocation(ServerActivity.NO_OWNER)

    def __call__(self, _: str) -> ServerLocation:
        return self.found


class OneScheduler:
    """``driver``: its core; ``outcomes``: what it has answered.  What it asks of Placement is carried out at once."""

    def __init__(self, world: World, clock: Clock, locate: Locate) -> None:
        self.world = world
        self.clock = clock
        self.driver = SchedulerDriver()
        self.driver.now = clock.now
        self.writer = AllocationWriter(world.client, clock, clock.pause, random.Random(1), locate)
        self.outcomes: list[ef.Answer | ef.Fail] = []

    def carry_out(self, effects: Iterable[ef.Effect]) -> None:
        """Carry out all effects, and those that follow."""
        waiting = deque(effects)
        while waiting:
            effect = waiting.popleft()
            match effect:
                case ef.WriteAllocation():
                    waiting += self.driver.give(self.writer.write(effect))
                case ef.DeleteAllocation():
                    waiting += self.driver.give(self.writer.delete(effect))
                case ef.ExamineChange():
                    self.writer.examiner.found(effect)
                case ef.Answer() | ef.Fail():
                    self.outcomes.append(effect)

    def place(self, asked: Any) -> ef.Answer:
        """A request that finds a host."""
        self.carry_out(self.driver.ask(asked))
        answer = self.outcomes[-1]
        assert isinstance(answer, ef.Answer), answer
        return answer

    def unheard(self, answer: ef.Answer) -> None:
        """The caller does not get the answer, so all that was written is deleted."""
        self.carry_out(self.driver.give(ev.AnswerUnheard(answer.claim_ids, cause="unheard")))

    def changes(self) -> list[dict[str, Any]]:
        """The foreign changes that an operator sees after some seconds, oldest first."""
        for _ in range(2):
            self.writer.examiner.examine_due()
            self.clock.now += CONFIRMED_AFTER_S
        return list(reversed(self.writer.foreign_changes.report()["changes"]))

    # -- what others do

    def stands(self, consumer: str) -> Allocations:
        """All allocations of a consumer."""
        return self.world.client.consumer(consumer).allocations

    def add_port(self, consumer: str) -> str:
        """neutron adds a port with bandwidth; returns the provider that gives it."""
        standing, port = self.world.client.consumer(consumer), self.world.provider()
        self.world.take(consumer, {**standing.allocations, port: {"VCPU": 1}}, standing.generation)
        return port

    def remove_all(self, consumer: str) -> None:
        """Somebody deletes all allocations."""
        self.world.ok("DELETE", f"/allocations/{consumer}")

    def hand_over(self, consumer: str) -> str:
        """nova-conductor gives the allocations of a server that begins to move to its migration; returns its uuid."""
        standing, migration = self.world.client.consumer(consumer), str(uuid.uuid4())
        owner = {"project_id": "project", "user_id": "user"}
        parts = {rp: {"resources": dict(amounts)} for rp, amounts in standing.allocations.items()}
        self.world.ok("POST", "/allocations", {
            migration: {"allocations": parts, "consumer_generation": None, **owner},
            consumer: {"allocations": {}, "consumer_generation": standing.generation, **owner},
        })  # fmt: skip
        return migration
