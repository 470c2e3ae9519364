# SPDX-License-Identifier: Apache-2.0
"""A Placement whose calls take time and go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from shared_scheduler.model.resources import Inventory
from shared_scheduler.placement.client import TIMEOUT_S, PlacementClient
from shared_scheduler.placement.connection import CONCURRENT_UPDATE, Reply, UnreachableError
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations, generation_after
from shared_scheduler.placement.consumer_write import ConsumerWrite
from shared_scheduler.placement.reader import ListedProvider
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from shared_scheduler.sim.agenda import Agenda
from tests.unit.placement.one_server.faults import CarriedOut, Fault, Faults
from tests.unit.placement.one_server.story import Story

CALL_S, SMALL_CALL_S = 0.005, 0.002
#: how long after its time-out a call is carried out
LATE_BY_S = (0.0, 0.2, 2.0, 9.0, 30.0, CARRIED_OUT_WITHIN_S)
#: the latest moment, seconds after it was sent
LATEST_S = CARRIED_OUT_WITHIN_S - 0.1


class NoNetwork:
    """Carries nothing: what is not simulated here must not be asked."""

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:
        raise AssertionError(f"nobody answers {method} {path}")


class UnsurePlacement(PlacementClient):
    """While a call is under way, what happens ``beside`` it goes on; ``changed`` is called after each change.

    ``consumers``: what stands.  ``late_calls``: the writes that are still carried out."""

    def __init__(self, rng: Random, faults: Faults, beside: Agenda, story: Story, changed: Callable[[], None]) -> None:
        super().__init__(NoNetwork())
        self.guards_capacity = True
        self.consumers: dict[str, ConsumerAllocations] = {}
        self.late_calls: list[ConsumerWrite] = []
        self._rng, self._faults, self._faults_left = rng, faults, faults.count_max
        self._beside, self._story, self._changed = beside, story, changed
        self._generation = 1

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self._faults_left = 0

    def pause(self, for_s: float) -> bool:
        """Time passes for the caller; what else is due happens meanwhile."""
        self._beside.run_until(self._beside.now + for_s)
        return False

    def stands(self, consumer: str) -> ConsumerAllocations:
        """What a consumer has."""
        return self.consumers.get(consumer, ConsumerAllocations())

    def remove(self, consumer: str) -> None:
        """Nova removes what a server has."""
        self.consumers.pop(consumer, None)

    # -- writes

    def write(self, write: ConsumerWrite, request_id: str = "", timeout_s: float | None = None) -> Reply:
        return self._send([write], TIMEOUT_S if timeout_s is None else timeout_s)

    def write_many(
        self, writes: Iterable[ConsumerWrite], request_id: str = "", timeout_s: float | None = None
    ) -> Reply:
        return self._send([*writes], TIMEOUT_S if timeout_s is None else timeout_s)

    def _send(self, writes: list[ConsumerWrite], timeout_s: float) -> Reply:
        fault = self._drawn_fault()
        told = [(write.consumer, sorted(write.allocations), write.generation) for write in writes]
        self._story.add(self._beside.now, "    PUT", told, "" if fault is None else fault.name)
        if fault is None:
            self.pause(CALL_S)
            return self._carry_out(writes)
        self._let_go_wrong(fault, writes, timeout_s)
        return fault.reply

    def _drawn_fault(self) -> Fault | None:
        if self._faults_left <= 0 or self._rng.random() > self._faults.rate:
            return None
        self._faults_left -= 1
        return self._rng.choice(self._faults.kinds)

    def _let_go_wrong(self, fault: Fault, writes: list[ConsumerWrite], timeout_s: float) -> None:
        if fault.carried_out is CarriedOut.LATE:
            self.late_calls += writes
            late_s = max(timeout_s, min(timeout_s + self._rng.choice(LATE_BY_S), LATEST_S))
            self._beside.after(late_s, self._carry_out_late, writes)
        self.pause(CALL_S)
        if fault.carried_out is CarriedOut.AT_ONCE:
            self._carry_out(writes)
        if fault.is_waited_for:
            self.pause(max(0.0, timeout_s - CALL_S))

    def _carry_out_late(self, writes: list[ConsumerWrite]) -> None:
        for write in writes:
            self.late_calls.remove(write)
        reply = self._carry_out(writes)
        told = [(write.consumer, sorted(write.allocations), write.generation) for write in writes]
        self._story.add(self._beside.now, "    carried out late", told, reply.status)

    def _carry_out(self, writes: list[ConsumerWrite]) -> Reply:
        """All of them, if each has the generation that its consumer has."""
        if any(self.stands(write.consumer).generation != write.generation for write in writes):
            return Reply(409, None, CONCURRENT_UPDATE, "a generation conflicts", guards_capacity=True)
        for write in writes:
            self.remove(write.consumer)
            if write.allocations:
                self.consumers[write.consumer] = _stored(write)
        self._generation += 1
        self._changed()
        return Reply(204, None, guards_capacity=True)

    # -- reads

    def consumer(self, uuid: str, timeout_s: float | None = None) -> ConsumerAllocations:
        if self._faults.of_reads and self._drawn_fault() is not None:
            self.pause(TIMEOUT_S if timeout_s is None else timeout_s)
            raise UnreachableError("no answer")
        self.pause(CALL_S)
        found = self.stands(uuid)
        self._story.add(self._beside.now, "    GET", uuid, sorted(found.allocations), found.generation)
        return found

    def providers(self, in_tree: str = "", required: str = "") -> tuple[ListedProvider, ...]:
        """Each node is a tree of its own."""
        self.pause(SMALL_CALL_S)
        return (ListedProvider(in_tree, in_tree, 1, None, in_tree),)

    def generation(self, provider: str) -> int | None:
        self.pause(SMALL_CALL_S)
        return self._generation

    def usages(self, provider: str) -> dict[str, int]:
        """Nobody races for the room of a node here."""
        return {}

    def inventories(self, provider: str) -> dict[str, Inventory]:
        return {}


def _stored(write: ConsumerWrite) -> ConsumerAllocations:
    allocations = {provider: dict(amounts) for provider, amounts in write.allocations.items()}
    return ConsumerAllocations(allocations, generation_after(write.generation), write.project_id, write.user_id)
