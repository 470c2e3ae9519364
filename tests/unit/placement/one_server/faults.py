# SPDX-License-Identifier: Apache-2.0
"""What may happen to a call of Placement.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from shared_scheduler.placement.connection import CONCURRENT_UPDATE, Reply, no_reply


class CarriedOut(StrEnum):
    """Whether Placement carries out a write that its caller gives up."""

    NEVER = "never"
    AT_ONCE = "at once"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Fault:
    """One write that goes wrong; a status of 0 is no answer, for which its caller waits unless it was not ``sent``."""

    name: str
    carried_out: CarriedOut = CarriedOut.NEVER
    status: int = 0
    code: str = ""
    sent: bool = True

    @property
    def is_waited_for(self) -> bool:
        return self.sent and not self.status

    @property
    def reply(self) -> Reply:
        """What the caller gets."""
        if self.status:
            return Reply(self.status, None, self.code, self.name, guards_capacity=True)
        return no_reply(self.name, self.sent)


LOST = Fault("lost")
UNHEARD = Fault("unheard", CarriedOut.AT_ONCE)
LATE = Fault("late", CarriedOut.LATE)
REFUSED = Fault("no connection", sent=False)
BROKEN = Fault("broken", status=500)
BROKEN_LATER = Fault("broken after it was done", CarriedOut.AT_ONCE, status=500)
ODD = Fault("not Placement", status=404)
CONFLICT = Fault("conflict", status=409, code=CONCURRENT_UPDATE)

#: faults that are met in one world
TOGETHER = (
    (LOST,), (UNHEARD,), (LATE,), (LOST, UNHEARD, LATE), (BROKEN, BROKEN_LATER, LOST), (CONFLICT, LATE, ODD),
    (REFUSED, UNHEARD),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Faults:
    """So many calls go wrong at most, each with the probability ``rate``.

    ``of_reads``: so may reads, which get no answer.  ``of_answers``: now and then, the core gets the answer to a write
    long after it has given it up."""

    kinds: tuple[Fault, ...]
    count_max: int
    rate: float
    of_reads: bool
    of_answers: bool


def drawn_faults(rng: Random) -> Faults:
    """The faults of a world."""
    count_max, rate = rng.choice((0, 1, 1, 2, 2, 3, 4)), rng.choice((0.3, 0.6, 1.0))
    return Faults(rng.choice(TOGETHER), count_max, rate, rng.random() < 0.2, rng.random() < 0.2)
