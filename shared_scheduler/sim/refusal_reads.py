# SPDX-License-Identifier: Apache-2.0
"""The reads of the list of nodes that refusals wait for, in virtual time.

What ``sync/decision_reads.py`` and ``sync/revalidator.py`` do with threads and Nova's database: a request that has no
valid host is answered when a read has ended.  How old that read may be, and which refusals share one, is decided by the
code of the product (``sync/refusal_ages.py`` and ``sync/shared_read.py``).  Reads for other reasons are left out, as is
the second decision after a read that shows something new.  Drawn worlds do not wait for these reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.sim.schedulers import SimScheduler
from shared_scheduler.sim.world import World
from shared_scheduler.sync.read_registry import NODE_LIST, SOURCES
from shared_scheduler.sync.refusal_ages import REFUSALS_BURST, REFUSALS_PER_S, SHARED_S, RefusalAges
from shared_scheduler.sync.shared_read import SharedRead

[TIMES] = (source.times for source in SOURCES if source.name == NODE_LIST)
#: what a query for the list takes in a cloud of ten thousand nodes
READ_S = 0.03


class RefusalWorld(World):
    """A world whose schedulers read the list of nodes before they answer that there is no host."""

    def __init__(self, *args: Any, **more: Any) -> None:
        """See ``World``."""
        self.refusals: dict[str, Refusals] = {}  # by scheduler
        super().__init__(*args, **more)

    def answered(self, scheduler: SimScheduler, effect: ef.Answer | ef.Fail) -> None:
        """See ``SchedulerListener``."""
        if not isinstance(effect, ef.Fail) or effect.code not in ef.NO_HOST:
            super().answered(scheduler, effect)
            return
        if scheduler.name not in self.refusals:
            self.refusals[scheduler.name] = Refusals(self, scheduler)
        end = super().answered
        self.refusals[scheduler.name].wait(lambda: end(scheduler, effect))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A refusal that is answered when the read of this number has ended."""

    number: int
    since_s: float
    end: Callable[[], None]


class Refusals:
    """The reads of one scheduler, and the refusals that wait for them."""

    def __init__(self, world: RefusalWorld, scheduler: SimScheduler) -> None:
        self._world = world
        self._scheduler = scheduler
        self._ages = RefusalAges()
        self._read = SharedRead(TIMES, world.rng(f"node list of {scheduler.name}"))
        self._waiting: list[_Waiting] = []
        #: when the reads began
        self.begun_s: list[float] = []

    def wait(self, end: Callable[[], None]) -> None:
        """Call ``end`` when a read has ended that is young enough for a refusal now."""
        now = self._world.now
        number = self._read.wanted(now, self._ages.max_age_s(now))
        self._waiting.append(_Waiting(number, now, end))
        self._go_on()

    def _go_on(self) -> None:
        """End the refusals whose reads have ended; one that still waits begins the next read, if none is in flight."""
        ended = [one for one in self._waiting if one.number <= self._read.ended]
        self._waiting = [one for one in self._waiting if one.number > self._read.ended]
        for one in ended:
            self._end(one)
        if self._waiting and self._read.begin(self._world.now):
            self._begun()

    def _end(self, refusal: _Waiting) -> None:
        age_s, where = refusal.since_s - self._read.newest_s, self._scheduler.name
        self._world.checkers.check("no_is_checked", age_s < SHARED_S, where, "trusts a read", age_s, "s old")
        refusal.end()

    def _begun(self) -> None:
        self.begun_s.append(self._world.now)
        self._check()
        self._world.agenda.work(READ_S, self._read_ended)

    def _read_ended(self) -> None:
        if self._scheduler.up:
            self._read.end(self._world.now, succeeded=True)
            self._go_on()

    def _check(self) -> None:
        """Between any earlier read and this one, both counted, there are no more than the burst and one a second."""
        count, now = len(self.begun_s), self._world.now
        most = (REFUSALS_BURST + 1 + (now - at_s) * REFUSALS_PER_S for at_s in self.begun_s)
        too_many = [most for number, most in enumerate(most) if count - number > most]
        what = (count, "reads of the list of nodes in", now - self.begun_s[0], "s")
        self._world.checkers.check("few_reads", not too_many, self._scheduler.name, *what)
