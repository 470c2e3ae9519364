# SPDX-License-Identifier: Apache-2.0
"""All steps of one consumer: write, compare, retry, check, delete.  Blocking; rules in ``consumer_conflicts``.

::

    write --DONE--------------------------------> written
      |  --NO_CAPACITY--------------------------> no_capacity
      |  --BAD_REQUEST--> is the provider there? -> unknown_provider | rejected
      |  --DENIED, ODD--------------------------> unreachable
      '  --CONFLICT, UNKNOWN--> read the consumer, ``consumer_conflicts.RULES`` says what follows
                                  |  written | consumer_conflict
                                  '  write again, with patience, until the deadline
                                       -> provider_conflict | consumer_conflict | unreachable

A write that was given up although it may have been carried out is remembered as doubtful.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.client import TIMEOUT_S, ConsumerWrite, PlacementClient
from shared_scheduler.placement.connection import Meaning, PlacementError, Reply
from shared_scheduler.placement.consumer_conflicts import Comparison, ConflictAction, ConsumerAllocations
from shared_scheduler.placement.in_doubt_writes import Attempt, CheckResult, InDoubtWrites
from shared_scheduler.placement.overcommit_check import OvercommitCheck
from shared_scheduler.placement.reconciler import Locate, Reconciler, put_back
from shared_scheduler.protocol.backoff import Backoff

LOG = logging.getLogger(__name__)

#: Waits before a delete is sent again, so that two losers do not meet again.
RETRY_BACKOFF = Backoff.between(0.005, 0.050)
#: The generation of a record without allocations.
ORPHAN = 0
#: Wait before an unanswered read is sent again.
READ_AGAIN_S = 0.25
#: Writes of one serialised intent that are checked and deleted, and the wait between them.
MAX_RACES = 4
RACE_BACKOFF = Backoff.between(0.010, 0.200)
#: Shortest time a call is given, however near the deadline is.
MIN_CALL_S = 0.5
#: How long a delete goes on trying before it is left to the doubtful.
DELETE_PATIENCE_S = 10.0
#: How long one sweep over the doubtful may take before it is continued in the next.
SWEEP_PATIENCE_S = 10.0

_FINAL = {
    Meaning.NO_CAPACITY: WriteCode.NO_CAPACITY,
    Meaning.DENIED: WriteCode.UNREACHABLE,
    Meaning.ODD: WriteCode.UNREACHABLE,
}
_FORGOTTEN = (
    "Server %s has been under way for too long to check its allocations again: a write that was given up, "
    "or a later one, had put them there.  Should it end on another host than they are on, "
    "nova-manage placement heal_allocations mends them."
)
#: why an allocation that our write and a later one may have put there stays, and whether for good
_HELD = {
    CheckResult.RIGHTFUL: ("a later request placed the server on this host; left alone", True),
    CheckResult.UNDER_WAY: ("an operation of the server is under way, which may rely on it", False),
    CheckResult.UNANSWERED: ("Nova does not tell where the server is", False),
}
_ENDS = {ConflictAction.DONE: WriteCode.WRITTEN, ConflictAction.REFUSE: WriteCode.CONSUMER_CONFLICT}


def first_write(effect: WriteAllocation) -> ConsumerWrite:
    """The first thing sent for a *new* consumer."""
    return ConsumerWrite(
        effect.consumer, effect.allocations, None, effect.project_id, effect.user_id,
        effect.mappings,
    )  # fmt: skip


@dataclass(slots=True)
class _Course:
    """One write on its way."""

    effect: WriteAllocation
    next: ConsumerWrite
    before: ConsumerAllocations | None = None  # set for a merge
    sent: int = 0
    unsure: bool = False  # a write without an answer is out
    conflicts_since_s: float | None = None
    tried_orphan: bool = False
    providers: consumer_conflicts.Generations | None = None  # as they were before the last write of a new one
    last: Reply | None = None

    @property
    def consumer(self) -> str:
        return self.effect.consumer

    @property
    def policy(self) -> ConsumerPolicy:
        """A merge that found nothing is new."""
        return ConsumerPolicy.NEW if self.before is None else ConsumerPolicy.MERGE


class AllocationWriter:
    """Used by many threads at once, for different consumers.

    ``pause`` waits so many seconds; True tells that the service stops and nobody should wait on.
    ``locate``: what Nova knows of a server, asked before anything doubtful is taken back.
    """

    def __init__(
        self,
        client: PlacementClient,
        clock: Callable[[], float],
        pause: Callable[[float], bool],
        rng: random.Random,
        locate: Locate,
    ) -> None:
        self._client = client
        self._clock = clock
        self._pause = pause
        self._rng = rng
        self._overcommit_check = OvercommitCheck(client, clock)
        self._reconciler = Reconciler(client, locate)
        self._in_doubt = InDoubtWrites()
        self._lock = threading.Lock()  # of _in_doubt

    # -- writes ------------------------------------------------------------------------------

    def write(self, effect: WriteAllocation, unsure: bool = False) -> AllocationWritten:
        """Write one consumer.  ``unsure``: it went out in a batch that got no answer.

        A serialised write that raced is taken back and tried again a few times: all racers see that
        there is too much, and without that the last unit would go to none of them.
        """
        for _ in range(MAX_RACES - 1):
            answer, raced = self._write_once(effect, unsure)
            if not raced:
                return answer
            self._pause(RACE_BACKOFF.wait_s(self._rng))
        return self._write_once(effect, unsure)[0]

    def _write_once(self, effect: WriteAllocation, unsure: bool) -> tuple[AllocationWritten, bool]:
        """The answer, and whether it was taken back and may be tried again."""
        course: _Course | AllocationWritten
        if effect.policy is ConsumerPolicy.MERGE:
            course = self._begin_merge(effect)
        else:
            course = _Course(effect, first_write(effect), unsure=unsure)
        if isinstance(course, AllocationWritten):
            return course, False
        answer = self._advance(course)
        if answer.code is WriteCode.WRITTEN and effect.serialise:
            return self._look(course, answer)
        return answer, False

    def written(self, effect: WriteAllocation) -> AllocationWritten:
        """A batch that held this one was answered with yes."""
        with self._lock:
            self._in_doubt.settled(effect.consumer)
        return AllocationWritten(effect.claim_id, WriteCode.WRITTEN, "", effect.allocations, cause=effect.cause)

    def _begin_merge(self, effect: WriteAllocation) -> _Course | AllocationWritten:
        standing = self._read(effect.consumer, effect.deadline_s)
        if standing is None:
            detail = "could not read what an evacuated instance holds"
            return AllocationWritten(effect.claim_id, WriteCode.UNREACHABLE, detail, cause=effect.cause)
        if not standing.allocations:
            return _Course(effect, first_write(effect))
        both = consumer_conflicts.union(standing.allocations, effect.allocations)
        write = replace(
            first_write(effect), allocations=both, generation=standing.generation, mappings={}
        )
        return _Course(effect, write, before=standing)

    def _advance(self, course: _Course) -> AllocationWritten:
        """Send and compare in turn until it has an end."""
        if course.unsure:
            answer = self._compare(course)
            if answer is not None:
                return answer
        while True:
            answer = self._send(course) or self._compare(course)
            if answer is not None:
                return answer
            self._pause(consumer_conflicts.CONFLICT_BACKOFF.wait_s(self._rng, course.sent))

    def _send(self, course: _Course) -> AllocationWritten | None:
        """Send once; None if the consumer has to be read."""
        effect = course.effect
        wait_s = self._wait_s(effect.deadline_s)
        course.last = reply = self._client.write(course.next, effect.request_id, wait_s)
        course.sent += 1
        meaning = reply.meaning
        if meaning is Meaning.DONE:
            return self._end(course, WriteCode.WRITTEN)
        if meaning is Meaning.BAD_REQUEST:
            return self._end(course, self._blame(effect))
        if meaning in _FINAL:
            return self._end(course, _FINAL[meaning])
        course.unsure |= meaning is Meaning.UNKNOWN
        return None

    def _compare(self, course: _Course) -> AllocationWritten | None:
        """Compare the existing allocations; None if the write is to be sent again (see ``course.next``)."""
        standing = self._read(course.consumer, course.effect.deadline_s)
        if standing is None:
            return self._end(course, WriteCode.UNREACHABLE)
        finding = self._finding(course, standing)
        step = consumer_conflicts.RULES[course.policy][finding]
        if step in _ENDS:
            return self._end(course, _ENDS[step])
        if step is ConflictAction.REPLACE:
            course.next = replace(course.next, generation=standing.generation)
        elif finding is Comparison.NOTHING and course.next.generation not in (None, ORPHAN):
            course.next = replace(course.next, generation=None)
        code = self._patience(course, finding)
        return None if code is None else self._end(course, code)

    def _patience(self, course: _Course, finding: Comparison) -> WriteCode | None:
        """How it ends if it is not sent again."""
        now = self._clock()
        unanswered = course.last is None or course.last.meaning is Meaning.UNKNOWN
        if now >= course.effect.deadline_s or course.sent >= consumer_conflicts.MAX_ATTEMPTS:
            return WriteCode.UNREACHABLE if unanswered else WriteCode.PROVIDER_CONFLICT
        if unanswered:
            course.conflicts_since_s = None
            return None
        if course.conflicts_since_s is None:
            course.conflicts_since_s = now
        if now - course.conflicts_since_s < consumer_conflicts.orphan_after_s(course.unsure):
            return None
        if finding is Comparison.NOTHING and self._goes_on(course):
            return None
        return self._lost_to(course, finding)

    def _goes_on(self, course: _Course) -> bool:
        """0 once, in case it is an orphan, then null once more with an eye on the providers."""
        if course.next.generation == ORPHAN:
            course.next = replace(course.next, generation=None)
            course.providers = self._generations(course)
            return True
        if course.tried_orphan:
            return False
        course.tried_orphan, course.next = True, replace(course.next, generation=ORPHAN)
        return True

    def _lost_to(self, course: _Course, finding: Comparison) -> WriteCode:
        """Whose conflict it was that patience did not end."""
        last = finding is Comparison.NOTHING and course.providers is not None
        if last and consumer_conflicts.is_consumers(course.providers, self._generations(course)):
            return WriteCode.CONSUMER_CONFLICT
        return WriteCode.PROVIDER_CONFLICT

    def _generations(self, course: _Course) -> consumer_conflicts.Generations | None:
        """Of the providers written to; None if they cannot be read."""
        try:
            return {name: self._client.generation(name) for name in course.next.allocations}
        except PlacementError as error:
            LOG.debug("claim %s: reading generations: %s", course.effect.claim_id, error)
            return None

    def _finding(self, course: _Course, standing: ConsumerAllocations) -> Comparison:
        if course.before is not None:
            return consumer_conflicts.find_merge(standing, course.before, course.next.allocations)
        with self._lock:
            attempts = self._in_doubt.attempts(course.consumer)
        mine = tuple(one.written for one in attempts if not one.before)
        wanted = ConsumerAllocations(
            course.next.allocations, project_id=course.next.project_id, user_id=course.next.user_id
        )
        return consumer_conflicts.find_new(standing, wanted, mine, course.unsure)

    def _end(self, course: _Course, code: WriteCode) -> AllocationWritten:
        effect, wrote = course.effect, course.next.allocations
        before = course.before.allocations if course.before else {}
        with self._lock:
            if code is WriteCode.WRITTEN:
                self._in_doubt.settled(effect.consumer)
            elif course.unsure:
                self._in_doubt.add(effect.consumer, Attempt(wrote, before), self._clock())
        if code is WriteCode.WRITTEN:
            return AllocationWritten(effect.claim_id, code, "", wrote, before, cause=effect.cause)
        detail = course.last.describe() if course.last else "Placement did not answer"
        return AllocationWritten(effect.claim_id, code, detail, wrote, before, cause=effect.cause)

    def _blame(self, effect: WriteAllocation) -> WriteCode:
        """After a 400: stale topology, or a request that no Placement would take."""
        try:
            known = all(self._client.exists(provider) for provider in effect.allocations)
        except PlacementError:
            return WriteCode.UNREACHABLE
        return WriteCode.REJECTED if known else WriteCode.UNKNOWN_PROVIDER

    def _look(
        self, course: _Course, answer: AllocationWritten
    ) -> tuple[AllocationWritten, bool]:
        """After a write that no agent has judged: too much there?  Then ours goes."""
        try:
            overfull = self._overcommit_check.check(course.effect.allocations)
        except PlacementError as error:
            LOG.warning("claim %s is written, the check for over-commit failed: %s",
                        answer.claim_id, error)  # fmt: skip
            return answer, False
        if overfull is None:
            return answer, False
        before = course.before.allocations if course.before else {}
        attempt, until_s = Attempt(answer.written, before), course.effect.deadline_s
        gone = self.take_back(course.consumer, attempt, answer.claim_id, answer.cause, until_s)
        detail = f"{overfull}; {'taken back' if gone.gone else gone.detail}"
        no_capacity = WriteCode.NO_CAPACITY
        return AllocationWritten(answer.claim_id, no_capacity, detail, cause=answer.cause), gone.gone

    # -- deletes -----------------------------------------------------------------------------

    def delete(self, effect: DeleteAllocation) -> AllocationDeleted:
        """Delete what one claim wrote, and nothing else."""
        attempt = Attempt(effect.written, effect.before)
        return self.take_back(
            effect.consumer, attempt, effect.claim_id, effect.request_id, effect.sole_until_s
        )

    def take_back(
        self, consumer: str, attempt: Attempt, claim_id: str, request_id: str, sole_until_s: float
    ) -> AllocationDeleted:
        """Put back what stood there before ``attempt``, if what stands there is exactly it.

        From ``sole_until_s`` on only if Nova says that nobody relies on it.
        """
        until_s = self._clock() + DELETE_PATIENCE_S
        detail = "Placement did not answer"
        while True:
            standing = self._read(consumer, until_s)
            if standing is None:
                break
            finding = consumer_conflicts.find_delete(standing, attempt.written)
            if finding is not Comparison.AS_WANTED:
                return _left_alone(attempt, claim_id, request_id, standing)
            if self._clock() >= sole_until_s:
                held = self._why_held(consumer, attempt)
                if held is not None:
                    return AllocationDeleted(claim_id, False, *held, cause=request_id)
            write = put_back(consumer, attempt.before, standing)
            reply = self._client.write(write, request_id, self._wait_s(until_s))
            detail = reply.describe()
            if reply.meaning is Meaning.DONE:
                return AllocationDeleted(claim_id, True, cause=request_id)
            retry = reply.meaning in (Meaning.CONFLICT, Meaning.UNKNOWN)
            if not retry or self._clock() >= until_s or self._pause(RETRY_BACKOFF.wait_s(self._rng)):
                break
        with self._lock:
            self._in_doubt.add(consumer, attempt, self._clock())
        return AllocationDeleted(claim_id, False, detail, cause=request_id)

    def _why_held(self, consumer: str, attempt: Attempt) -> tuple[str, bool] | None:
        """Why it may not be taken back, and whether that stays so; None if nobody relies on it."""
        try:
            result = self._reconciler.judge(consumer, attempt)
        except PlacementError as error:
            return str(error), False
        return _HELD.get(result)

    # -- doubts ------------------------------------------------------------------------------

    def in_doubt(self) -> int:
        """Consumers whose allocations are not known for sure."""
        with self._lock:
            return len(self._in_doubt)

    def sweep(self, busy: Callable[[str], bool], everything: bool = False) -> None:
        """Check consumers with an unknown outcome again (not those of a write under way: ``busy``)."""
        now = self._clock()
        with self._lock:
            due = self._in_doubt.all() if everything else self._in_doubt.due(now)
        for consumer, attempts in due:
            if self._clock() > now + SWEEP_PATIENCE_S:
                return
            if not busy(consumer):
                self._check_again(consumer, attempts)

    def _check_again(self, consumer: str, attempts: tuple[Attempt, ...]) -> None:
        try:
            result = self._reconciler.reconcile(consumer, attempts)
        except PlacementError:
            result = CheckResult.UNANSWERED
        with self._lock:
            known = self._in_doubt.checked(consumer, self._clock(), result)
        if not known:
            LOG.warning(_FORGOTTEN, consumer)

    # -- inside ------------------------------------------------------------------------------

    def _read(self, consumer: str, until_s: float) -> ConsumerAllocations | None:
        """What a consumer holds, asked again until ``until_s``; None if nothing was learned."""
        while True:
            try:
                return self._client.consumer(consumer, self._wait_s(until_s))
            except PlacementError as error:
                LOG.debug("reading consumer %s: %s", consumer, error)
            if self._clock() + READ_AGAIN_S >= until_s or self._pause(READ_AGAIN_S):
                return None

    def _wait_s(self, until_s: float) -> float:
        return min(TIMEOUT_S, max(MIN_CALL_S, until_s - self._clock()))


def _left_alone(attempt: Attempt, claim_id: str, request_id: str, standing: ConsumerAllocations) -> AllocationDeleted:
    """Somebody else's now, or nothing: gone, unless our part is still in it."""
    ours = consumer_conflicts.without(attempt.written, attempt.before)
    if not consumer_conflicts.holds(standing.allocations, ours):
        return AllocationDeleted(claim_id, True, cause=request_id)
    detail = "another writer has changed these allocations; left alone"
    return AllocationDeleted(claim_id, False, detail, left_alone=True, cause=request_id)
