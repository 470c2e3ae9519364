# SPDX-License-Identifier: Apache-2.0
"""What carries out the writes and deletes of a core, as the threads of ``placement/batch_writer.py`` do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.claims import WRITE_GRACE_S
from shared_scheduler.core.write_queue import INTERNAL_ERROR, Work, not_carried_out
from shared_scheduler.placement.allocation_writer import REFUSED, AllocationWriter
from shared_scheduler.placement.client import TIMEOUT_S, PlacementClient
from shared_scheduler.placement.connection import Meaning
from shared_scheduler.placement.consumer_write import first_write
from shared_scheduler.sim.agenda import Agenda
from tests.unit.placement.one_server.story import Story

#: how long after the core has given up a write its answer comes, if it is lost at first
LOST_FOR_S = WRITE_GRACE_S + 15.0

Event = ev.AllocationWritten | ev.AllocationDeleted


class Works:
    """One at a time for each consumer.  The calls of one take place when it begins, and run ahead of the core: they
    take their time from what happens ``beside``, and the core gets the answer when it is over."""

    def __init__(
        self,
        writer: AllocationWriter,
        client: PlacementClient,
        rng: Random,
        steps: Agenda,
        beside: Agenda,
        story: Story,
        give: Callable[[ev.Event], None],
    ) -> None:
        self._writer, self._client, self._rng, self._give = writer, client, rng, give
        self._steps, self._beside, self._story = steps, beside, story
        self._waiting: list[Work] = []
        self._busy: set[str] = set()
        #: whether the answers to some writes are lost at first
        self.loses_answers = False

    @property
    def under_way(self) -> bool:
        return bool(self._busy)

    def is_busy(self, consumer: str) -> bool:
        return consumer in self._busy or any(work.consumer == consumer for work in self._waiting)

    def add(self, work: Work) -> None:
        """The core wants this."""
        self._story.add(self._steps.now, "core:", type(work).__name__, work.claim_id, work.consumer)
        self._waiting.append(work)
        self._steps.after(0.0, self._begin)

    def _begin(self) -> None:
        for work in [*self._waiting]:
            if work.consumer not in self._busy:
                self._waiting.remove(work)
                self._busy.add(work.consumer)
                self._carry_out(work)

    def _carry_out(self, work: Work) -> None:
        self._beside.now = self._steps.now  # that of another consumer may have run ahead already
        event = self._answer_to(work)
        assert event.detail != INTERNAL_ERROR, event
        self._story.add(self._beside.now, "    ends:", event)
        self._steps.at(self._heard_s(work), self._end, work, event)

    def _answer_to(self, work: Work) -> Event:
        if isinstance(work, ef.DeleteAllocation):
            return self._writer.delete(work)
        if self._steps.now >= work.deadline_s:
            return not_carried_out(work, ev.WriteCode.NEVER_SENT, "its deadline has passed")
        if work.policy is ef.ConsumerPolicy.NEW and self._rng.random() < 0.5:
            return self._write_in_a_batch(work)
        return self._writer.write(work)

    def _write_in_a_batch(self, work: ef.WriteAllocation) -> Event:
        wait_s = min(TIMEOUT_S, max(work.deadline_s - self._steps.now, 0.5))
        reply = self._client.write_many([first_write(work)], work.request_id, wait_s)
        if reply.meaning is Meaning.DONE:
            return self._writer.written(work, reply)
        if reply.meaning in REFUSED:
            return not_carried_out(work, REFUSED[reply.meaning], reply.describe())
        self._writer.batch_failed([work], reply)
        return self._writer.write(work, reply if reply.meaning is Meaning.UNKNOWN else None)

    def _heard_s(self, work: Work) -> float:
        """When the core gets the answer."""
        ended_s = self._beside.now
        if isinstance(work, ef.WriteAllocation) and self.loses_answers and self._rng.random() < 0.1:
            return max(ended_s, work.deadline_s + LOST_FOR_S)
        return ended_s

    def _end(self, work: Work, event: Event) -> None:
        self._busy.discard(work.consumer)
        self._give(event)
        self._begin()
