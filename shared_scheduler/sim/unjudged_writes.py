# SPDX-License-Identifier: Apache-2.0
"""The check of one simulated scheduler after writes that only Placement has judged: what ``AllocationWriter`` does with
a thread, in virtual time.  Both follow ``placement/overcommit_rules.py``.

The simulated Placement announces nothing, so every write that is to be serialised is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shared_scheduler.core.events import AllocationDeleted, WriteCode
from shared_scheduler.placement import overcommit_rules
from shared_scheduler.placement.overcommit_rules import Overfull
from shared_scheduler.placement.write_course import WriteCourse
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.deletes import Deletes
from shared_scheduler.sim.lone_write import LoneWrite
from shared_scheduler.sim.surroundings import Surroundings


class UnjudgedWrites:
    """Ends each write, after the check if it needs one.  ``send`` sends it again from the beginning.  ``run`` runs a
    step, while the process is frozen later."""

    def __init__(
        self,
        around: Surroundings,
        clock: LocalClock,
        rng: Random,
        deletes: Deletes,
        run: Callable[[Callable[[], None]], None],
        send: Callable[[LoneWrite], None],
    ) -> None:
        self._agenda = around.agenda
        self._placement = around.placement
        self._trace = around.trace
        self._delay_s = around.placement_delay_s
        self._clock = clock
        self._rng = rng
        self._deletes = deletes
        self._run = run
        self._send = send

    def end(self, lone: LoneWrite, code: WriteCode) -> None:
        """End a write, or check it first."""
        if overcommit_rules.needs_check(lone.course, code, guarded=False):
            self._run(lambda: self._read(lone))
        else:
            lone.ended(lone, code)

    def _read(self, lone: LoneWrite) -> None:
        """Read the usage of its providers."""
        takes_s = len(lone.course.part) * (self._delay_s() + self._placement.takes_s(1))
        self._agenda.work(takes_s, self._run, lambda: self._check(lone))

    def _check(self, lone: LoneWrite) -> None:
        if not self._placement.answers:
            self._check_again(lone)
            return
        found = self._overfull(lone)
        if found is None:
            lone.ended(lone, WriteCode.WRITTEN)
            return
        self._trace.note("placement", f"{lone.effect.claim_id}: {found}")
        delete = overcommit_rules.undoing(lone.course)
        self._deletes.begin(delete, lambda deleted: self._run(lambda: self._taken_back(lone, found, deleted)))

    def _check_again(self, lone: LoneWrite) -> None:
        if overcommit_rules.may_check_again(lone.effect, self._clock.now):
            self._agenda.work(overcommit_rules.CHECK_AGAIN_S, self._run, lambda: self._read(lone))
        else:
            lone.detail = "the check for over-commit failed"
            lone.ended(lone, overcommit_rules.unchecked(lone.effect, self._clock.now))

    def _overfull(self, lone: LoneWrite) -> Overfull | None:
        """The first provider that is over-committed, except those that have gone."""
        for provider, asked in lone.course.part.items():
            if provider not in self._placement.providers:
                continue
            capacities = self._placement.capacities(provider)
            found = overcommit_rules.overfull(provider, asked, self._placement.used(provider), capacities)
            if found is not None:
                return found
        return None

    def _taken_back(self, lone: LoneWrite, found: Overfull, deleted: AllocationDeleted) -> None:
        code, lone.detail = overcommit_rules.taken_back(found, deleted)
        lone.tries += 1
        lone.course.unsure = not deleted.gone
        if deleted.gone and overcommit_rules.may_try_again(lone.tries):
            wait_s = overcommit_rules.RACE_BACKOFF.wait_s(self._rng)
            self._agenda.work(wait_s, self._run, lambda: self._try_again(lone, code))
        else:
            lone.ended(lone, code)

    def _try_again(self, lone: LoneWrite, code: WriteCode) -> None:
        if self._clock.now >= lone.effect.deadline_s:
            lone.ended(lone, code)
            return
        effect = overcommit_rules.next_try(lone.effect)
        lone.course = WriteCourse.begin(effect, may_arrive=lone.course.may_arrive)
        self._send(lone)
