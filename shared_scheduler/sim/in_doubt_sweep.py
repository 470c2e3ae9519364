# SPDX-License-Identifier: Apache-2.0
"""The writes in doubt of one simulated scheduler: what ``AllocationWriter.sweep`` does with a thread, in virtual time.

``placement/in_doubt_writes.py`` says which consumers are checked, when, and for how long.
"""

from __future__ import annotations

from collections.abc import Callable

from shared_scheduler.core.effects import WriteAllocation
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.consumer_conflicts import ConflictCase
from shared_scheduler.placement.in_doubt_writes import CheckResult, InDoubtWrites, WriteAttempt
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.deletes import Deletes, Owners
from shared_scheduler.sim.surroundings import Surroundings

#: interval of the sweeps
SWEEP_S = 1.0

#: what Nova says of the allocations: whether a server needs them, None while an operation is under way
_RESULTS = {True: CheckResult.RIGHTFUL, None: CheckResult.UNDER_WAY, False: CheckResult.NOTHING}


class InDoubtSweep:
    """Each consumer is visited as long as it is stored.

    ``is_busy``: whether a write or delete of a consumer waits, or is under way: it is not checked then.  ``run`` runs a
    step, while its process is frozen later.
    """

    def __init__(
        self,
        around: Surroundings,
        clock: LocalClock,
        in_doubt: InDoubtWrites,
        deletes: Deletes,
        owners: Owners,
        is_busy: Callable[[str], bool],
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        self._agenda = around.agenda
        self._placement = around.placement
        self._clock = clock
        self._in_doubt = in_doubt
        self._deletes = deletes
        self._owners = owners
        self._is_busy = is_busy
        self._run = run
        self._claim_ids: dict[str, str] = {}  # of the last write of each consumer that is visited

    def begin(self, effect: WriteAllocation) -> None:
        """Visit a consumer, whose write has just been stored."""
        is_visited = effect.consumer in self._claim_ids
        self._claim_ids[effect.consumer] = effect.claim_id
        if not is_visited:
            self._visit_later(effect.consumer)

    def _visit_later(self, consumer: str) -> None:
        self._agenda.work(SWEEP_S, self._run, lambda: self._visit(consumer))

    def _visit(self, consumer: str) -> None:
        due = dict(self._in_doubt.due(self._clock.now))
        if consumer in due and not self._is_busy(consumer):
            self._in_doubt.checked(consumer, self._clock.now, self._check(consumer, due[consumer]))
        if any(stored == consumer for stored, _ in self._in_doubt.all()):
            self._visit_later(consumer)
        else:
            del self._claim_ids[consumer]

    def _check(self, consumer: str, attempts: tuple[WriteAttempt, ...]) -> CheckResult:
        """Delete the one of the attempts that stands, if nobody needs it."""
        if not self._placement.answers:
            return CheckResult.UNANSWERED
        standing = self._placement.standing(consumer)
        for attempt in attempts:
            finding = consumer_conflicts.find_delete(standing, attempt.written, attempt.generation)
            if finding is ConflictCase.AS_WANTED:
                return self._judge(consumer, attempt)
        return CheckResult.NOTHING

    def _judge(self, consumer: str, attempt: WriteAttempt) -> CheckResult:
        if attempt.answered and not self._owners.is_in_cell(consumer):
            return CheckResult.UNDER_WAY
        part = consumer_conflicts.without(attempt.written, attempt.before)
        result = _RESULTS[self._owners.is_needed(consumer, part)]
        if result is CheckResult.NOTHING:
            self._deletes.take_back(consumer, part, attempt.before, self._claim_ids[consumer])
            self._in_doubt.deleted(consumer, attempt)
        return result
