# SPDX-License-Identifier: Apache-2.0
"""The steps for one consumer: write, compare, retry, check, delete.  They block; ``write_course`` and
``delete_course`` say what comes next.

::

    write --DONE--------------------------------> written
      |  --NO_CAPACITY--------------------------> no_capacity
      |  --BAD_REQUEST--> read the providers ---> unknown_provider | rejected
      |  --DENIED, ODD--------------------------> denied | not_served
      '  --CONFLICT, UNKNOWN--> read the consumer, and compare (``write_course``)
                                  |  written | consumer_conflict
                                  |  merged with the allocations of another writer, for some moves
                                  '  write again after a wait, until the deadline
                                       -> provider_conflict | consumer_conflict | unreachable | not_served

A write that no agent has judged is read back, unless all its calls were answered, the last one by a Placement which
announces that racing writes do not over-commit (``connection.ANNOUNCEMENT``).  One that has replaced the same
allocations of another scheduler is not: it adds nothing, and that scheduler, which has read its own write back, may
have answered with them.

A write that was given up although it may have been carried out is kept as a write in doubt.  While it may still be
carried out, the record of its consumer is not removed (``late_writes`` says why).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from shared_scheduler.core.effects import DeleteAllocation, SeenBy, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.core.write_queue import INTERNAL_ERROR
from shared_scheduler.model.resources import same_allocations
from shared_scheduler.placement import consumer_conflicts, overcommit_rules
from shared_scheduler.placement.change_examiner import ChangeExaminer
from shared_scheduler.placement.client import TIMEOUT_S, PlacementClient
from shared_scheduler.placement.conflict_patience import NextWrite
from shared_scheduler.placement.connection import Meaning, PlacementError, Reply, UnreachableError
from shared_scheduler.placement.consumer_conflicts import ConflictCase, ConsumerAllocations
from shared_scheduler.placement.consumer_write import ConsumerWrite, first_write
from shared_scheduler.placement.delete_course import DELETE_PATIENCE_S, DeleteCourse
from shared_scheduler.placement.foreign_changes import ForeignChange, ForeignChanges
from shared_scheduler.placement.in_doubt_writes import CheckResult, InDoubtWrites, WriteAttempt
from shared_scheduler.placement.late_writes import MAY_ARRIVE, LateWrites
from shared_scheduler.placement.overcommit_check import OvercommitCheck
from shared_scheduler.placement.overcommit_rules import Overfull
from shared_scheduler.placement.own_records import OwnRecord, OwnRecords
from shared_scheduler.placement.reconciler import Locate, Reconciler, ServerActivity, put_back
from shared_scheduler.placement.write_course import READ_AGAIN_S, WriteCourse
from shared_scheduler.protocol.backoff import Backoff

LOG = logging.getLogger(__name__)

#: Waits before a delete is sent again, so that two writers do not conflict again.
RETRY_BACKOFF = Backoff.between(0.005, 0.050)
#: Shortest timeout of a call, even near the deadline.
MIN_CALL_S = 0.5
#: Time after which a sweep over writes in doubt ends; the next sweep continues it.
SWEEP_PATIENCE_S = 10.0

_FORGOTTEN = (
    "An operation of server %s takes too long to check its allocations again; a write that was given up, or a later "
    "one, has written them.  If the server ends on another host, correct them with "
    "nova-manage placement heal_allocations."
)
#: Results of writes that no Placement has looked at.
REFUSED = {Meaning.DENIED: WriteCode.DENIED, Meaning.ODD: WriteCode.NOT_SERVED}
_FINAL = {Meaning.DONE: WriteCode.WRITTEN, Meaning.NO_CAPACITY: WriteCode.NO_CAPACITY}
#: why an allocation that our write or a later one may have written is kept, and whether permanently
_HELD = {
    CheckResult.RIGHTFUL: ("a later request placed the server on this host; left alone", True),
    CheckResult.UNDER_WAY: ("an operation of the server is under way, which may rely on it", False),
    CheckResult.UNANSWERED: ("the location of the server cannot be read from Nova", False),
}


@dataclass(slots=True)
class _Sent(WriteCourse):
    """A write whose answers came from Placement."""

    last: Reply | None = None
    providers: consumer_conflicts.Generations | None = None  # generations before the last write of a new consumer


class AllocationWriter:
    """Writes and deletes allocations.  Many threads use it at once, for different consumers.

    ``pause`` waits for a number of seconds; it returns True if the service stops and the wait must end.
    ``locate`` reads the location of a server from Nova, before allocations in doubt are deleted.
    ``merged_moves``: the types of migrations whose write is merged with allocations that others have added.
    ``record_change`` keeps a foreign change for longer than this process lives.
    """

    def __init__(
        self,
        client: PlacementClient,
        clock: Callable[[], float],
        pause: Callable[[float], bool],
        rng: random.Random,
        locate: Locate,
        wall_clock: Callable[[], float] = time.time,
        merged_moves: Collection[str] = (),
        record_change: Callable[[ForeignChange], None] = lambda change: None,
    ) -> None:
        self.foreign_changes = ForeignChanges(record=record_change)
        self.examiner = ChangeExaminer(client, locate, self.foreign_changes, clock, wall_clock)
        self._wall_clock = wall_clock
        self._client = client
        self._clock = clock
        self._pause = pause
        self._rng = rng
        self._locate = locate
        self._merged_moves = frozenset(merged_moves)
        self._overcommit_check = OvercommitCheck(client, clock)
        self._reconciler = Reconciler(client, locate, self.restore, self._deleted)
        self._in_doubt = InDoubtWrites()
        self._late = LateWrites()
        self._own_records = OwnRecords()
        self._lock = threading.Lock()  # of _in_doubt, _late and _own_records

    # -- writes ------------------------------------------------------------------------------

    def write(self, effect: WriteAllocation, batch: Reply | None = None) -> AllocationWritten:
        """Write one consumer.  ``batch``: it was sent in a batch, whose outcome is unknown (``batch_failed``).

        A serialised write that over-commits a provider is deleted and repeated a few times (``overcommit_rules``).
        """
        may_arrive, tries = False, 0
        while True:
            answer, raced = self._write_once(effect, batch)
            may_arrive |= answer.may_arrive
            tries += 1
            if not (raced and overcommit_rules.may_try_again(tries) and self._has_time_after_race(effect)):
                return replace(answer, may_arrive=may_arrive)
            effect = overcommit_rules.next_try(effect)

    def _has_time_after_race(self, effect: WriteAllocation) -> bool:
        """Wait; False if the write must not be sent again."""
        return not self._pause(overcommit_rules.RACE_BACKOFF.wait_s(self._rng)) and self._clock() < effect.deadline_s

    def _write_once(self, effect: WriteAllocation, batch: Reply | None) -> tuple[AllocationWritten, bool]:
        """The answer, and whether the write was deleted and may be repeated."""
        unsure, late = (batch.sent, batch.may_arrive) if batch else (False, False)
        course = _Sent.begin(effect, unsure=unsure, may_arrive=late)
        try:
            if course.needs_read and not self._read_and_merge(course):
                return self._end(course, course.unread), False
            answer = self._advance(course)
        except Exception:
            LOG.exception("claim %s: writing it failed with an unexpected error", effect.claim_id)
            return replace(self._end(course, course.broken()), detail=INTERNAL_ERROR), False
        guarded = course.last is not None and course.last.guards_capacity
        if overcommit_rules.needs_check(course, answer.code, guarded):
            return self._check_overcommit(course, answer)
        return answer, False

    def batch_failed(self, effects: Iterable[WriteAllocation], reply: Reply) -> None:
        """Note that a batch failed with this reply: it may leave allocations, or the records of its consumers."""
        now = self._clock()
        for effect in effects:
            self._note_left(first_write(effect), reply)
            if reply.leaves_records:
                self._note_failed(effect.consumer, reply, now)

    def written(self, effect: WriteAllocation, reply: Reply) -> AllocationWritten:
        """Complete a write whose batch succeeded with this reply."""
        generation = consumer_conflicts.generation_after(None)
        self._settled(effect, WriteAttempt(effect.allocations, {}, generation, effect.is_new))
        answer = AllocationWritten(
            effect.claim_id, WriteCode.WRITTEN, "", effect.allocations, generation=generation, cause=effect.cause
        )
        course = _Sent.begin(effect)
        if overcommit_rules.needs_check(course, answer.code, reply.guards_capacity):  # an earlier answer announced it
            return self._check_overcommit(course, answer)[0]
        return answer

    def _read_and_merge(self, course: _Sent) -> bool:
        """Begin a merge with what the consumer has; False if that cannot be read in time."""
        standing = self._read(course.consumer, course.effect.deadline_s)
        if standing is None or self._clock() >= course.effect.deadline_s:
            return False
        self._compare_with_left(course, standing)
        course.merge_with(standing, self._attempts(course.effect))
        return True

    def _compare_with_left(self, course: _Sent, standing: ConsumerAllocations) -> None:
        """Note what others have changed since the last write of this scheduler, before the first call of this one.

        If they have removed everything, the core finds it, because this write is a first one then."""
        left = course.effect.left
        if left is None or not left.generation or not standing.allocations or course.unsure or course.sent:
            return
        amounts = same_allocations if left.whole else consumer_conflicts.contains
        if standing.generation != left.generation or not amounts(standing.allocations, left.allocations):
            before = ConsumerAllocations(left.allocations, left.generation)
            self.foreign_changes.add(course.consumer, before, standing, SeenBy.MERGE, self._wall_clock())

    def _advance(self, course: _Sent) -> AllocationWritten:
        """Send and compare in turn until the write ends."""
        if course.unsure:
            answer = self._compare(course)
            if answer is not None:
                return answer
        elif self._clock() >= course.effect.deadline_s:  # its batch never left, and others of it have waited since
            return self._end(course, course.unread)
        while True:
            answer = self._send(course) or self._compare(course)
            if answer is not None:
                return answer
            if self._pause(consumer_conflicts.CONFLICT_BACKOFF.wait_s(self._rng, course.sent)):
                return self._end(course, course.unfinished)

    def _send(self, course: _Sent) -> AllocationWritten | None:
        """Send the write once; None if the consumer must be read."""
        effect = course.effect
        course.sending()
        course.last = reply = self._put(course.next, effect.request_id, effect.deadline_s)
        course.replied(reply.meaning is not Meaning.UNKNOWN, reply.may_arrive, reply.sent)
        code = self._final(course, reply.meaning)
        return None if code is None else self._end(course, code)

    def _final(self, course: _Sent, meaning: Meaning) -> WriteCode | None:
        """The result of a write that ends with this answer; None if the consumer must be read."""
        if meaning is Meaning.BAD_REQUEST:
            return self._blame(course)
        if meaning in REFUSED:
            return course.refused_as(REFUSED[meaning])
        return _FINAL.get(meaning)

    def _compare(self, course: _Sent) -> AllocationWritten | None:
        """Compare the existing allocations; None if the write must be sent again (``course.next``)."""
        standing = self._read(course.consumer, course.effect.deadline_s)
        if standing is None:
            return self._end(course, course.unread)
        if standing.allocations:
            self._has_allocations(course.consumer)
        attempts = self._attempts(course.effect)
        found = course.find(standing, attempts)
        if found is ConflictCase.FOREIGN:
            self._note_foreign(course, standing)
        elif course.may_be_answered(found) and self._is_in_cell(course.consumer):
            found = ConflictCase.FOREIGN
        merges = course.may_merge(standing, found, self._clock()) and self._is_merged_move(course.consumer)
        code = course.compare(
            standing, found, self._clock(), self._record(course.consumer), merges=merges, attempts=attempts
        )
        if course.step is NextWrite.LAST:
            course.providers = self._generations(course)
        if code is WriteCode.PROVIDER_CONFLICT and self._is_consumers(course, found):
            code = WriteCode.CONSUMER_CONFLICT
        return None if code is None else self._end(course, code)

    def _record(self, consumer: str) -> OwnRecord:
        with self._lock:
            return self._own_records.state(consumer, self._clock())

    def _is_merged_move(self, consumer: str) -> bool:
        return bool(self._merged_moves) and self._locate(consumer).move in self._merged_moves

    def _attempts(self, effect: WriteAllocation) -> tuple[WriteAttempt, ...]:
        """Earlier writes of this scheduler for the consumer that may have been carried out.  None, if Nova has a new
        server in a cell: another scheduler has answered, and has written what stands."""
        with self._lock:
            attempts = self._in_doubt.attempts(effect.consumer, self._clock())
        return () if attempts and effect.is_new and self._is_in_cell(effect.consumer) else attempts

    def _is_in_cell(self, consumer: str) -> bool:
        return self._locate(consumer).activity in (ServerActivity.UNDER_WAY, ServerActivity.AT_REST)

    def _note_foreign(self, course: _Sent, standing: ConsumerAllocations) -> None:
        seen_by = SeenBy.NEW if course.before is None else SeenBy.MERGE
        before = course.before or ConsumerAllocations()
        if course.effect.left is not None and not standing.allocations:
            return  # the core finds it, because this write is a first one then
        if not course.answered and course.shows_in(standing):
            before = ConsumerAllocations(course.next.allocations, course.generation)
        self.foreign_changes.add(course.consumer, before, standing, seen_by, self._wall_clock())

    def _is_consumers(self, course: _Sent, found: ConflictCase) -> bool:
        """Whether the conflict that retries did not end is one of the consumer, and not of a provider."""
        last = course.step is NextWrite.LOST and found is ConflictCase.NOTHING and course.providers is not None
        return last and consumer_conflicts.is_consumers(course.providers, self._generations(course))

    def _generations(self, course: _Sent) -> consumer_conflicts.Generations | None:
        """The generations of the providers of the write; None if they cannot be read."""
        try:
            return {name: self._client.generation(name) for name in course.next.allocations}
        except PlacementError as error:
            LOG.debug("claim %s: reading generations: %s", course.effect.claim_id, error)
            return None

    def _end(self, course: _Sent, code: WriteCode) -> AllocationWritten:
        effect, left = course.effect, course.attempt(code)
        detail = "" if code is WriteCode.WRITTEN else "Placement did not answer"
        if code is WriteCode.WRITTEN:
            self._settled(effect, left)
        elif course.unsure:
            with self._lock:
                self._in_doubt.add(effect.consumer, left, self._clock())
        if detail and course.last:
            detail = course.last.describe()
        return AllocationWritten(
            effect.claim_id, code, detail, left.written, left.before, left.generation, cause=effect.cause,
            may_arrive=course.may_arrive, found=course.is_found,
        )  # fmt: skip

    def _blame(self, course: _Sent) -> WriteCode:
        """The result after HTTP 400: an unknown provider, or a malformed request."""
        try:
            known = all(self._client.exists(provider) for provider in course.effect.allocations)
        except PlacementError:
            return course.unread
        return WriteCode.REJECTED if known else WriteCode.UNKNOWN_PROVIDER

    def _check_overcommit(self, course: _Sent, answer: AllocationWritten) -> tuple[AllocationWritten, bool]:
        """Check for over-commit; after an unexpected error, the core deletes what may stand."""
        try:
            return self._take_back_overcommit(course, answer)
        except Exception:
            LOG.exception("claim %s: checking it failed with an unexpected error", answer.claim_id)
            return replace(answer, code=WriteCode.UNREACHABLE, detail=INTERNAL_ERROR), False

    def _take_back_overcommit(self, course: _Sent, answer: AllocationWritten) -> tuple[AllocationWritten, bool]:
        """Delete a write that no agent has judged if it over-commits a provider; whether it was deleted."""
        try:
            found = self._find_overcommit(course)
        except PlacementError as error:
            LOG.warning("claim %s is written, the check for over-commit failed: %s",
                        answer.claim_id, error)  # fmt: skip
            code = overcommit_rules.unchecked(course.effect, self._clock())
            return replace(answer, code=code, detail=f"the check for over-commit failed: {error}"), False
        if found is None:
            return answer, False
        deleted = self.delete(overcommit_rules.undoing(course))
        code, detail = overcommit_rules.taken_back(found, deleted)
        return replace(answer, code=code, detail=detail), deleted.gone

    def _find_overcommit(self, course: _Sent) -> Overfull | None:
        """The provider that is overfull after a write, if any; a read without an answer is repeated.

        :raises PlacementError: when it could not be read until the deadline, or until the service stops
        """
        while True:
            try:
                return self._overcommit_check.check(course.part)
            except UnreachableError as error:
                LOG.debug("claim %s: checking for over-commit: %s", course.effect.claim_id, error)
                in_time = overcommit_rules.may_check_again(course.effect, self._clock())
                if not in_time or self._pause(overcommit_rules.CHECK_AGAIN_S):
                    raise

    # -- deletes -----------------------------------------------------------------------------

    def delete(self, effect: DeleteAllocation) -> AllocationDeleted:
        """Restore the allocations before what one claim wrote, if the present ones are exactly those that it wrote.

        From ``sole_until_s`` on this is done only if, according to Nova, no operation relies on them.  So it is if
        another scheduler may have written them.  If others have changed the allocations since a merge, so is the
        removal of its part: another scheduler may have merged the same.
        """
        course, until_s = DeleteCourse.begin(effect), self._clock() + DELETE_PATIENCE_S
        with self._lock:
            self._in_doubt.deleting(effect.consumer, effect.claim_id)
        detail = "Placement did not answer"
        while (standing := self._read(effect.consumer, until_s)) is not None:
            course.compare(standing)
            self._note_changes(course)
            answer = self._keep(course)
            if answer is not None:
                return answer
            reply = self._put_back(course, until_s)
            if reply is not None and reply.meaning is Meaning.DONE:
                self._deleted(effect.consumer, course.attempt)
                return AllocationDeleted(effect.claim_id, True, cause=effect.cause)
            detail = MAY_ARRIVE if reply is None else reply.describe()
            if not self._may_repeat(reply, until_s):
                break
        with self._lock:
            self._in_doubt.add(effect.consumer, course.attempt, self._clock())
        return AllocationDeleted(effect.claim_id, False, detail, cause=effect.cause)

    def _note_changes(self, course: DeleteCourse) -> None:
        """Note what others have removed or changed."""
        consumer = course.effect.consumer
        if course.is_removed:
            self.examiner.removed(consumer, course.seen)
        if course.is_news:
            self.foreign_changes.add(consumer, course.seen, course.standing, SeenBy.DELETE, self._wall_clock())

    def _keep(self, course: DeleteCourse) -> AllocationDeleted | None:
        """The answer if nothing must be deleted, or nothing is left to delete; None: delete."""
        effect = course.effect
        if course.rest is None:
            if course.was_called:  # it stood, and was deleted by a call without an answer
                self._deleted(effect.consumer, course.attempt)
            return course.ended()
        sole = self._clock() < effect.sole_until_s and not course.is_changed and not self._is_doubtful(course)
        held = None if sole else self._why_held(effect.consumer, course.attempt)
        if held is None:
            return None
        return AllocationDeleted(effect.claim_id, False, *held, changed=course.is_changed, cause=effect.cause)

    def _put_back(self, course: DeleteCourse, until_s: float) -> Reply | None:
        """Write what the delete leaves; None: it must wait."""
        effect, rest = course.effect, course.rest
        assert rest is not None
        write = put_back(effect.consumer, rest, course.standing)
        course.putting_back(rest)
        return self.restore(write, effect.request_id, until_s)

    def _may_repeat(self, reply: Reply | None, until_s: float) -> bool:
        """Wait; False if the delete must not be sent again."""
        if reply is None or reply.meaning not in (Meaning.CONFLICT, Meaning.UNKNOWN) or self._clock() >= until_s:
            return False
        return not self._pause(RETRY_BACKOFF.wait_s(self._rng))

    def _is_doubtful(self, course: DeleteCourse) -> bool:
        """Whether another scheduler, or another claim of this one, may have written what stands: this claim got no
        answer, or it is not known which generation it has made, and Nova has the new server in a cell, as after an
        answer."""
        effect, attempt, now = course.effect, course.attempt, self._clock()
        with self._lock:
            in_doubt = attempt.generation is None or attempt in self._in_doubt.attempts(effect.consumer, now)
            in_doubt |= self._in_doubt.may_be_anothers(effect.consumer, effect.claim_id, attempt, now)
        return in_doubt and effect.is_new and self._is_in_cell(effect.consumer)

    def _why_held(self, consumer: str, attempt: WriteAttempt) -> tuple[str, bool] | None:
        """Why allocations must not be deleted, and whether permanently; None if no operation relies on them."""
        try:
            result = self._reconciler.judge(consumer, attempt)
        except PlacementError as error:
            return str(error), False
        return _HELD.get(result)

    def restore(self, write: ConsumerWrite, request_id: str = "", until_s: float | None = None) -> Reply | None:
        """Restore the allocations before a write.  None: it must wait, because an earlier write may arrive
        (``late_writes``)."""
        if not write.allocations and self._may_arrive(write.consumer):
            return None
        return self._put(write, request_id, until_s)

    # -- in doubt ----------------------------------------------------------------------------

    def in_doubt(self) -> int:
        """The number of consumers whose allocations are in doubt."""
        with self._lock:
            return len(self._in_doubt)

    def sweep(self, busy: Callable[[str], bool], everything: bool = False) -> None:
        """Check consumers with an unknown outcome again (not those of a write under way: ``busy``)."""
        now = self._clock()
        with self._lock:
            due = self._in_doubt.checkable(now) if everything else self._in_doubt.due(now)
        for consumer, attempts in due:
            if self._clock() > now + SWEEP_PATIENCE_S:
                return
            if not busy(consumer):
                self._check_again(consumer, attempts)

    def _check_again(self, consumer: str, attempts: tuple[WriteAttempt, ...]) -> None:
        try:
            result = self._reconciler.reconcile(consumer, attempts)
        except PlacementError:
            result = CheckResult.UNANSWERED
        except Exception:  # the other consumers are checked nevertheless
            LOG.exception("checking the allocations of server %s failed with an unexpected error", consumer)
            result = CheckResult.UNANSWERED
        with self._lock:
            known = self._in_doubt.checked(consumer, self._clock(), result)
        if not known:
            LOG.warning(_FORGOTTEN, consumer)

    # -- inside ------------------------------------------------------------------------------

    def _put(self, write: ConsumerWrite, request_id: str, until_s: float | None) -> Reply:
        """Send one write; note what it leaves, or that it may arrive later."""
        sent_s = self._clock()
        reply = self._client.write(write, request_id, None if until_s is None else self._wait_s(until_s))
        self._note_left(write, reply)
        if write.generation is not None and reply.meaning is Meaning.UNKNOWN:
            with self._lock:
                self._late.add(write.consumer, sent_s)
        elif write.generation is None and reply.leaves_records:
            self._note_failed(write.consumer, reply, sent_s)
        return reply

    def _note_left(self, write: ConsumerWrite, reply: Reply) -> None:
        if write.allocations and reply.sent and reply.meaning in (Meaning.DONE, Meaning.UNKNOWN):
            generation = consumer_conflicts.generation_after(write.generation)
            self.foreign_changes.left(write.consumer, ConsumerAllocations(write.allocations, generation))

    def _note_failed(self, consumer: str, reply: Reply, sent_s: float) -> None:
        with self._lock:
            self._own_records.failed(consumer, sent_s, reply.may_arrive)

    def _may_arrive(self, consumer: str) -> bool:
        """Whether a write with a generation may still be carried out."""
        with self._lock:
            return self._late.may_arrive(consumer, self._clock())

    def _settled(self, effect: WriteAllocation, left: WriteAttempt) -> None:
        with self._lock:
            self._in_doubt.settled(effect.consumer, effect.claim_id, left, effect.nova_knows_s)
        self.foreign_changes.left(effect.consumer, ConsumerAllocations(left.written, left.generation))
        self._has_allocations(effect.consumer)

    def _deleted(self, consumer: str, attempt: WriteAttempt) -> None:
        with self._lock:
            self._in_doubt.deleted(consumer, attempt)

    def _has_allocations(self, consumer: str) -> None:
        with self._lock:
            self._own_records.written(consumer)

    def _read(self, consumer: str, until_s: float) -> ConsumerAllocations | None:
        """The allocations of a consumer; repeats the read until ``until_s``, then returns None."""
        while True:
            try:
                return self._client.consumer(consumer, self._wait_s(until_s))
            except PlacementError as error:
                LOG.debug("reading consumer %s: %s", consumer, error)
            if self._clock() + READ_AGAIN_S >= until_s or self._pause(READ_AGAIN_S):
                return None

    def _wait_s(self, until_s: float) -> float:
        return min(TIMEOUT_S, max(MIN_CALL_S, until_s - self._clock()))
