# SPDX-License-Identifier: Apache-2.0
"""One write of a simulated scheduler that is alone: it merges, it got a conflict or no answer, or no agent has judged
it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared_scheduler.core.effects import WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.write_course import WriteCourse
from shared_scheduler.sim.write_calls import CallReply


@dataclass(slots=True, eq=False)
class LoneWrite:
    """One write.  ``ended`` is called once, with the write and its result.  ``pause`` frees its host while it waits,
    ``resume`` takes it again (``WriteQueue``)."""

    course: WriteCourse
    ended: Callable[[LoneWrite, WriteCode], None]
    pause: Callable[[], None] = lambda: None
    resume: Callable[[], bool] = lambda: True
    detail: str = ""
    sent_s: float = 0.0
    tries: int = 0  # that have over-committed a provider, and were taken back

    @property
    def effect(self) -> WriteAllocation:
        return self.course.effect

    def replied(self, reply: CallReply) -> None:
        """Note an answer that does not end it."""
        self.course.replied(reply.code is not WriteCode.UNREACHABLE, reply.may_arrive, reply.sent)
        self.detail = reply.detail
