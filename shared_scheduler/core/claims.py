# SPDX-License-Identifier: Apache-2.0
"""The life of a claim, from *assume* to its one ending.

A claim is one attempt to place one instance on one node.  It is assumed in the table first, so that the next
decision counts it.  Then the agent of the node judges it (``agent_casts.py``), and then it is written to Placement.
If no agent reports for the node, Placement is the only judge.  Where little is free, such a write has the flag
``serialise``, as one has that takes of shared storage, which no agent judges.

A request may cancel a claim at any moment (the request timed out, or another of its instances found no host).
The claim then unwinds by itself, and no faster than is safe: a write in flight is awaited, and an allocation is
deleted before the node gets the Release.

=========  =======================================  ===========  ============================================
state      event                                    next         action
=========  =======================================  ===========  ============================================
(none)     begin, an agent reports                  CLAIMING     assume; cast Claim
(none)     begin, provisional row                   WRITING      assume; write, serialised if little is free
CLAIMING   accepted, by a verdict or an increment   WRITING      write
CLAIMING   refused                                  REFUSED      forget
CLAIMING   no verdict in time, or one that leaves   TIMED_OUT    forget; cast Release
           no time to write
CLAIMING   the time for the verdict is over, but    CLAIMING     wait as long again, at most
           this process stood still meanwhile                    ``verdict_timeout_s``
CLAIMING   the broker returns the cast: no agent    UNDELIVERED  forget; cast Release
           is connected
CLAIMING   the agent is late and another host       LATE         forget; cast Release; listen for the verdict
           passes (``verdict_limit.py``)                         until ``verdict_timeout_s``
CLAIMING   the agent is late, and the next host     CLAIMING     wait longer, once
           has more or fewer members of its soft
           group
CLAIMING   cancelled                                RELEASED     forget; cast Release
WRITING    written, still needed                    WRITTEN
WRITING    written, cancelled                       DELETING     delete
WRITING    not written, or never sent               NOT_WRITTEN  forget; cast Release
WRITING    not written, but an earlier attempt may  DELETING     report NOT_WRITTEN to the request; delete
           be carried out later                                  when it cannot arrive any more
WRITING    result unknown                           DELETING     delete (it may have been written)
WRITING    no answer long after its deadline        DELETING     delete; the writer has lost it
WRITTEN    kept (request answered)                  CONFIRMED    confirm; check later that the node reports it
WRITTEN    cancelled                                DELETING     delete
DELETING   another scheduler may have written the   DELETING     report DELETED to the request; delete when Nova
           same, before this one, or another claim               can tell whether the server needs it
           of the server on the node was answered
           shortly before this one began
DELETING   another claim of the server on the node  DELETING     report DELETED to the request; go on as in the
           is under way, or is CONFIRMED                         last two rows
DELETING   deleted                                  DELETED      forget; cast Release
DELETING   deleted, or nothing is written, but a    DELETING     report DELETED to the request; delete again
           write without an answer may be carried                when it cannot arrive any more
           out later
DELETING   deleted or changed by another writer,    DELETING     delete: it may have been carried out
           but the lost write was carried out                    after the delete, which did not know what it
           meanwhile                                             has left
CONFIRMED  the caller did not get the answer        DELETING     delete
DELETED    the lost write was carried out           DELETING     assume; delete
DELETING   another writer has changed it, or the    LEFT_ALONE   forget; no Release, because it stays
           server was asked for again and lives
           there
DELETING   the same, but a write without an answer  DELETING     report LEFT_ALONE to the request; delete again
           may be carried out later                              when it cannot arrive any more
DELETING   another writer has changed it, and Nova  DELETING     report LEFT_ALONE to the request; delete again
           cannot tell yet who needs it                          after a pause
DELETING   not deleted                              DELETING     delete again after a pause, without a limit;
                                                                 after some attempts report ABANDONED to the
                                                                 request
DELETING   no answer to a delete for a long time    DELETING     delete again; the writer has lost it
DELETING   a delete is due, and another claim of    DELETING     wait until that has ended
           the server on the node is under way
DELETING   a delete is due, another claim of the    DELETED      forget; cast Release; no delete, because it
           server on the node is CONFIRMED, and                  may have the same allocations and generation;
           its own write arrives no more                         that one takes over what a later delete has to
                                                                 know
=========  =======================================  ===========  ============================================

States on the right that do not appear on the left are endings; every claim has exactly one ending.
CONFIRMED is also an ending, unless the caller did not get the answer; the last confirmed claims are remembered for
this case.  DELETED claims whose write was abandoned are remembered as well, because the write may be carried out
after the delete.

A write without an answer may be carried out long after it was given up (``CARRIED_OUT_WITHIN_S``).  Its resources stay
assumed, and the agent keeps the claim, until then: otherwise both the late write and the next claim would get them.
Meanwhile the writer searches it (``placement/in_doubt_writes.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from math import inf

from cachetools import FIFOCache

from shared_scheduler.core.agent_casts import AgentCasts
from shared_scheduler.core.claim_state import ClaimState, Intent, OpenClaim
from shared_scheduler.core.confirmed_claims import ConfirmedClaims
from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.core.own_writes import OwnWrite, OwnWrites
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.core.step import Fact, Step, Timers
from shared_scheduler.core.write_pace import BurstForecast
from shared_scheduler.protocol.backoff import Backoff
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S, MAPPED_WITHIN_S
from shared_scheduler.protocol.messages import Increment, Reason, RefusalCode, Verdict
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Version

#: a write that another writer has overtaken
CONFLICTS = frozenset({WriteCode.PROVIDER_CONFLICT, WriteCode.CONSUMER_CONFLICT})
#: after such an answer, it is not known what the consumer has
LEFT_UNKNOWN = frozenset({WriteCode.UNREACHABLE, WriteCode.CONSUMER_CONFLICT})
#: pauses between attempts to delete stop growing here
DELETE_PAUSE_MAX_S = 30.0
#: a write without an answer this long after its deadline is treated as lost
WRITE_GRACE_S = 30.0
#: a delete without an answer this long after the deadline of its request is treated as lost: it has no deadline, and
#: may wait behind many others, so it is long; by then each delete asks Nova whether the server needs what it deletes
DELETE_GRACE_S = 600.0
#: what agents of this release refuse for
KNOWN_REFUSALS = frozenset(code.value for code in RefusalCode)


def _reason_of(verdict: Verdict) -> Reason | None:
    """Why an agent has refused.  A code that is not known is only a detail: it may be of a later release, or have the
    name of another ending of claims."""
    reason = None if verdict.accepted else verdict.reason
    if reason is None or reason.code in KNOWN_REFUSALS:
        return reason
    return Reason(ClaimState.REFUSED.value, {"code": reason.code, "detail": dict(reason.detail)})


@dataclass(frozen=True, slots=True)
class ClaimWritten(Fact):
    """A claim is written to Placement; its request keeps it or cancels it later."""

    claim: OpenClaim


@dataclass(frozen=True, slots=True)
class ClaimEnded(Fact):
    """A claim has ended for its request, which is told once (not of CONFIRMED).  What it holds may be released later:
    then ``OpenClaim.abandoned`` is set."""

    claim: OpenClaim
    ending: ClaimState


class Claims:
    """All claims of this scheduler that have not ended, and some claims that have ended."""

    def __init__(
        self,
        identity: Identity,
        settings: SchedulerSettings,
        table: HostTable,
        timers: Timers,
        confirmed: ConfirmedClaims,
        own_writes: OwnWrites,
        agent_casts: AgentCasts,
    ) -> None:
        self._own_writes = own_writes
        self._agent_casts = agent_casts
        self._settings = settings
        self._table = table
        self._timers = timers
        self._confirmed = confirmed
        self._open: dict[str, OpenClaim] = {}
        #: consumer and node -> its open claims
        self._there: dict[tuple[str, str], list[OpenClaim]] = {}
        # the last claims that have ended: with an answer, and those whose write was never answered
        self._answered: FIFOCache[str, OpenClaim] = FIFOCache(settings.released_max)
        #: consumer and node -> when Nova knows of the last answer with them
        self._nova_knows_s: FIFOCache[tuple[str, str], float] = FIFOCache(settings.released_max)
        self._given_up: FIFOCache[str, OpenClaim] = FIFOCache(settings.released_max)
        self.begun = 0
        self.endings: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self.forecast = BurstForecast()
        self._prefix = identity.digest()

    def __len__(self) -> int:
        return len(self._open)

    def open(self) -> Iterator[OpenClaim]:
        """The claims that have not ended, oldest first."""
        return iter(self._open.values())

    def ending_by(self, at_s: float) -> list[OpenClaim]:
        """Those that may end by then: the next delete of the others is due later."""
        return [one for one in self._open.values() if not at_s < self._timers.at_s(("delete", one.claim_id)) < inf]

    def is_open(self, claim_id: str) -> bool:
        """Whether the claim has not ended."""
        return claim_id in self._open

    # -- begin

    def begin(self, step: Step, owner: tuple[int, int], intent: Intent, limit_s: float = float("inf")) -> OpenClaim:
        """Assume the claim and cast it to the agent of the node; without an agent, write it to Placement.

        ``limit_s``: another host is tried if the agent does not answer within this time.
        """
        claim = self._new(step, owner, intent)
        self._add(claim)
        self._assume(claim)
        if intent.by_agent:
            self._agent_casts.claim(step, claim, limit_s)
        else:
            self._write(step, claim)
        return claim

    def _new(self, step: Step, owner: tuple[int, int], intent: Intent) -> OpenClaim:
        self.begun += 1
        state = ClaimState.CLAIMING if intent.by_agent else ClaimState.WRITING
        claim = OpenClaim(f"{self._prefix}-{self.begun}", owner, intent, state, step.now)
        claim.seen = max(self._table.version(intent.node), Version(intent.epoch, 0))
        if intent.by_agent:
            claim.written_by_s = step.now + self._settings.written_within_s
        for earlier in self._there.get(claim.place, ()):
            earlier.note_other(claim)
            claim.note_other(earlier)
        claim.nova_knows_s = self._nova_knows_s.get(claim.place, claim.nova_knows_s)
        return claim

    def _add(self, claim: OpenClaim) -> None:
        """Count a claim as open."""
        self._open[claim.claim_id] = claim
        self._there.setdefault(claim.place, []).append(claim)

    def _answered_at(self, places: Set[tuple[str, str]]) -> Mapping[tuple[str, str], Sequence[OpenClaim]]:
        """The last claims of these places that were answered, in one pass for all places."""
        found: dict[tuple[str, str], list[OpenClaim]] = {place: [] for place in places}
        for claim in self._answered.values():
            if claim.place in found:
                found[claim.place].append(claim)
        return found

    def _open_again(self, claim: OpenClaim, answered: Sequence[OpenClaim]) -> None:
        """Count a claim that has ended as open again, beside those that were ``answered`` at its place."""
        for one in chain(self._there.get(claim.place, ()), answered):
            if one.began_s >= claim.began_s:
                claim.note_other(one)
        self._add(claim)

    def _remove(self, claim: OpenClaim) -> None:
        del self._open[claim.claim_id]
        there = self._there.pop(claim.place)
        if others := [one for one in there if one is not claim]:
            self._there[claim.place] = others

    def _assume(self, claim: OpenClaim) -> None:
        intent = claim.intent
        self._table.assume(
            intent.node,
            claim.claim_id,
            intent.consumer,
            intent.allocations,
            intent.usage,
            intent.take,
            "" if intent.group is None else intent.group.uuid,
        )

    def _write(self, step: Step, claim: OpenClaim) -> None:
        intent = claim.intent
        claim.state, claim.writing_s = ClaimState.WRITING, step.now
        deadline_s = min(intent.deadline_s, step.now + self._settings.write_timeout_s, claim.written_by_s)
        self._timers.set(("write", claim.claim_id), deadline_s + WRITE_GRACE_S)
        left = self._own_writes.left(intent.consumer) if intent.policy is ConsumerPolicy.MERGE else None
        self._own_writes.begin(intent.consumer)
        step.emit(
            WriteAllocation(
                claim_id=claim.claim_id,
                consumer=intent.consumer,
                allocations=intent.allocations,
                mappings=intent.mappings,
                project_id=intent.project_id,
                user_id=intent.user_id,
                policy=intent.policy,
                serialise=not (self._is_judged(intent) or self._has_headroom(intent)),
                request_id=intent.request_id,
                deadline_s=deadline_s,
                cell=intent.cell,
                service_host=intent.service_host,
                asked_s=intent.asked_s,
                standing=intent.standing,
                is_new=intent.is_new,
                left=left,
                nova_knows_s=claim.answer_known_s if intent.is_new else deadline_s + MAPPED_WITHIN_S,
            )
        )

    def _is_judged(self, intent: Intent) -> bool:
        """Whether the agent judges all of the claim: only Placement can judge shared storage."""
        return intent.by_agent and self._table.owns(intent.node, intent.allocations)

    def _has_headroom(self, intent: Intent) -> bool:
        return self._table.has_headroom(intent.node, intent.allocations)

    # -- verdicts

    def on_increment(self, step: Step, increment: Increment) -> None:
        """Take an increment for the verdicts that accept the claims in it, if these are awaited, or had been released
        before their agent answered."""
        for claim_id, consumer in increment.claims.items():
            if consumer is not None and self._listens_for(claim_id):
                accepts = Verdict(claim_id, increment.node, increment.epoch, True, None, increment.sequence)
                self.on_verdict(step, accepts)

    def _listens_for(self, claim_id: str) -> bool:
        claim = self._open.get(claim_id)
        if claim is not None:
            return claim.state is ClaimState.CLAIMING
        return self._agent_casts.listens_for(claim_id)

    def on_verdict(self, step: Step, verdict: Verdict) -> None:
        """Handle a verdict.  A late or repeated verdict, or one of another node, changes nothing."""
        claim = self._open.get(verdict.claim_id)
        if claim is not None and verdict.node != claim.intent.node:
            self.counters["verdicts_of_others"] += 1
            return
        if claim is None or claim.state != ClaimState.CLAIMING:
            self._agent_casts.late_verdict(step, verdict)
            return
        step.trigger = claim.cause
        self._agent_casts.answered(step, claim)
        claim.reason, claim.judged_s, claim.judged_epoch = _reason_of(verdict), step.now, verdict.epoch
        if verdict.accepted and step.now >= claim.written_by_s:
            self._agent_casts.release(step, claim)
            self._forget(step, claim, ClaimState.TIMED_OUT)
        elif verdict.accepted:
            claim.accepted, claim.reflected = True, Version(verdict.epoch, verdict.reflected_sequence)
            self._table.accepted(claim.claim_id, verdict.epoch, verdict.reflected_sequence)
            self._write(step, claim)
        else:
            self._forget(step, claim, ClaimState.REFUSED)

    def leave(self, step: Step, claim: OpenClaim) -> None:
        """End a claim whose agent is late, because another host is tried; its verdict is still listened for."""
        self._give_up(step, claim, ClaimState.LATE)
        self._agent_casts.listen_for(claim)

    def on_verdict_timer(self, step: Step, claim_id: str) -> None:
        """End a claim whose verdict did not come in time."""
        claim = self._agent_casts.unanswered(step, claim_id)
        if claim is not None:
            self._give_up(step, claim, ClaimState.TIMED_OUT)

    def undelivered(self, step: Step, claim_id: str) -> None:
        """End a claim whose cast the broker has returned, because no agent is connected.

        The Release is for an agent that connects at this moment and gets an earlier or a repeated cast.
        """
        claim = self._open.get(claim_id)
        if claim is not None and claim.state == ClaimState.CLAIMING:
            self._give_up(step, claim, ClaimState.UNDELIVERED)

    def _give_up(self, step: Step, claim: OpenClaim, ending: ClaimState) -> None:
        step.trigger = claim.cause
        self._agent_casts.not_awaited(step, claim)
        self._agent_casts.release(step, claim)
        self._forget(step, claim, ending)

    # -- writes

    def on_written(self, step: Step, event: AllocationWritten) -> None:
        """Handle the result of a write."""
        self.forecast.heard(event.consumer_s, step.now)
        claim = self._open.get(event.claim_id)
        if claim is None or claim.state != ClaimState.WRITING:
            self._written_after_all(step, event)
            return
        self._timers.cancel(("write", claim.claim_id))
        self._note_answer(step, claim, event)
        if event.code == WriteCode.WRITTEN:
            self._now_stands(step, claim)
        elif event.code == WriteCode.UNREACHABLE:
            self._take_back(step, claim)
        else:
            self._release_or_hold(step, claim, ClaimState.NOT_WRITTEN)

    def _note_answer(self, step: Step, claim: OpenClaim, event: AllocationWritten) -> None:
        claim.write_code, claim.write_detail, claim.found = event.code, event.detail, event.found
        claim.answered_s = step.now
        self._note_what_stands(claim, event)
        self._note_own_write(step, claim, event)
        if event.code in CONFLICTS:
            self.counters["conflicts"] += 1
        if event.may_arrive:
            claim.arrives_until_s = step.now + CARRIED_OUT_WITHIN_S

    @staticmethod
    def _note_what_stands(claim: OpenClaim, event: AllocationWritten) -> None:
        claim.written, claim.before = event.written or claim.intent.allocations, event.before
        claim.generation = event.generation

    def _note_own_write(self, step: Step, claim: OpenClaim, event: AllocationWritten) -> None:
        intent, may_be_taken = claim.intent, event.found and self._is_deleted_beside(claim)
        if event.code == WriteCode.WRITTEN and not may_be_taken:
            self._own_writes.written(step, OwnWrite(
                claim.claim_id, intent.consumer, intent.node, claim.written, claim.generation or 0, claim.reflected,
                claim.found,
            ))  # fmt: skip
        elif event.may_arrive or may_be_taken or event.code in LEFT_UNKNOWN:
            self._own_writes.uncertain(intent.consumer)
        else:
            self._own_writes.not_written(step, intent.consumer)

    def on_write_timer(self, step: Step, claim_id: str) -> None:
        """Give the write up as lost, and delete the allocations that it may have written."""
        detail = "the write was never answered"
        claim = self._open.get(claim_id)
        if claim is None:
            return
        self._given_up[claim_id] = claim
        lost = AllocationWritten(claim_id, WriteCode.UNREACHABLE, detail, cause=claim.cause, may_arrive=True)
        self.on_written(step, lost)

    def _written_after_all(self, step: Step, event: AllocationWritten) -> None:
        """Delete again: a write that was given up has an answer, and the delete may have come before it."""
        claim = self._given_up.pop(event.claim_id, None)
        if event.code != WriteCode.WRITTEN or claim is None:
            return
        self._note_what_stands(claim, event)
        if claim.state == ClaimState.DELETED:
            self.endings[ClaimState.DELETED.value] -= 1
            claim.abandoned = True  # its end was reported to the request
            self._open_again(claim, self._answered_at({claim.place})[claim.place])
            if claim.intent.node in self._table:  # or it was removed from the cloud
                self._assume(claim)
            self._delete_again(step, claim)
        elif claim.state == ClaimState.DELETING:
            claim.outrun, claim.gone = True, False
            if self._timers.cancel(("delete", claim.claim_id)):  # none is under way
                self._delete_again(step, claim)

    def _now_stands(self, step: Step, claim: OpenClaim) -> None:
        if not claim.wanted:
            self._take_back(step, claim)
            return
        claim.state = ClaimState.WRITTEN
        step.report(ClaimWritten(claim))

    def keep(self, step: Step, claim: OpenClaim) -> None:
        """Confirm the claim of a request that is answered; it stays assumed until the node reports it."""
        assert claim.state == ClaimState.WRITTEN, claim.state
        self._remove(claim)
        claim.state = ClaimState.CONFIRMED
        self.endings[claim.state.value] += 1
        self._table.confirm(claim.claim_id)
        intent = claim.intent
        self._confirmed.begin(step, claim.claim_id, intent.consumer, intent.allocations, claim.cause)
        self._answered[claim.claim_id] = claim
        self._nova_knows_s.pop(claim.place, None)
        self._nova_knows_s[claim.place] = claim.answer_known_s

    def unheard(self, step: Step, claim_ids: Iterable[str]) -> None:
        """Delete what these claims wrote, because the caller did not get the answer."""
        unheard = [claim for one in claim_ids if (claim := self._answered.pop(one, None)) is not None]
        answered = self._answered_at({claim.place for claim in unheard})
        for claim in unheard:
            self.endings[ClaimState.CONFIRMED.value] -= 1
            claim.wanted, claim.abandoned = False, True
            self._open_again(claim, answered[claim.place])
            if claim.other_wanted() is None:
                self._nova_knows_s[claim.place] = claim.nova_knows_s
            self._take_back(step, claim)

    # -- unwinding

    def cancel(self, step: Step, claim: OpenClaim, why: Reason | None = None) -> None:
        """End a claim that its request does not need any more; the fact ``ClaimEnded`` follows, now or later."""
        claim.wanted, claim.reason = False, why or claim.reason
        if claim.state == ClaimState.CLAIMING:
            self._agent_casts.not_awaited(step, claim)
            self._agent_casts.release(step, claim)
            self._forget(step, claim, ClaimState.RELEASED)
        elif claim.state == ClaimState.WRITTEN:
            self._take_back(step, claim)

    def _take_back(self, step: Step, claim: OpenClaim) -> None:
        """Delete what the claim wrote, when no other claim may have written the same."""
        if claim.other_wanted() is not None:
            self._report(step, claim, ClaimState.DELETED)
        self._delete_again(step, claim)

    def _delete(self, step: Step, claim: OpenClaim) -> None:
        claim.state, claim.outrun = ClaimState.DELETING, False
        nova_knows_s = claim.may_delete_from_s()
        if step.now < nova_knows_s:
            self._report(step, claim, ClaimState.DELETED)
            self._timers.set(("delete", claim.claim_id), nova_knows_s)
            return
        claim.deletes += 1
        self._timers.cancel(("delete", claim.claim_id))
        intent = claim.intent
        self._timers.set(("deleting", claim.claim_id), max(step.now, intent.deadline_s) + DELETE_GRACE_S)
        known = self._own_writes.delete(intent.consumer, claim.claim_id, claim.began_s)
        step.emit(
            DeleteAllocation(
                claim_id=claim.claim_id,
                consumer=intent.consumer,
                written=claim.written,
                request_id=intent.request_id,
                before=claim.before,
                sole_until_s=self._sole_until_s(claim),
                generation=claim.generation,
                is_new=intent.is_new,
                stood=known.stood and not claim.found and not self._is_deleted_beside(claim),
                noted=known.generation,
            )
        )

    def _is_deleted_beside(self, claim: OpenClaim) -> bool:
        """Whether the delete of another claim of the place is under way, which may take what this one has written."""
        others = (one for one in self._there[claim.place] if one is not claim)
        return any(self._timers.at_s(("deleting", one.claim_id)) < inf for one in others)

    @staticmethod
    def _sole_until_s(claim: OpenClaim) -> float:
        """Until when no other request places this server: until its request is answered or its time is over.  Not if
        another one may have been answered with what stands."""
        is_shared = claim.abandoned or claim.began_s < claim.may_delete_from_s()
        return float("-inf") if is_shared else claim.intent.deadline_s

    def on_deleted(self, step: Step, event: AllocationDeleted) -> None:
        """Handle the result of a delete."""
        claim = self._open.get(event.claim_id)
        if claim is None or claim.state != ClaimState.DELETING:
            return
        self._timers.cancel(("deleting", claim.claim_id))
        self._timers.cancel(("delete", claim.claim_id))  # the pause after another one, if it was sent twice
        self._own_writes.deleted(claim.intent.consumer, claim.intent.node, claim.claim_id, event.gone)
        claim.gone = event.gone and not claim.outrun
        if claim.outrun and (event.gone or event.left_alone):
            self._delete_again(step, claim)
        elif event.gone:
            self._release_or_hold(step, claim, ClaimState.DELETED)
        elif event.left_alone:
            claim.write_detail = event.detail
            self._leave_or_hold(step, claim)
        else:
            claim.write_detail = event.detail
            self._delete_after_a_pause(step, claim, event.changed)

    def _delete_after_a_pause(self, step: Step, claim: OpenClaim, is_changed: bool) -> None:
        """The last delete was not carried out; ``is_changed``: because another writer has changed the allocations."""
        pauses = Backoff(self._settings.delete_pause_s, DELETE_PAUSE_MAX_S)
        self._timers.set(("delete", claim.claim_id), step.now + pauses.longest_s(claim.deletes - 1))
        if is_changed:
            self._report(step, claim, ClaimState.LEFT_ALONE)
        elif claim.deletes >= self._settings.delete_attempts_max:
            self._report(step, claim, ClaimState.ABANDONED)

    def _release_or_hold(self, step: Step, claim: OpenClaim, ending: ClaimState) -> None:
        """End a claim of which nothing is written; its resources wait for a write that may still be carried out."""
        if step.now >= claim.arrives_until_s:
            self._agent_casts.release(step, claim)
            self._forget(step, claim, ending)
            return
        claim.state = ClaimState.DELETING
        self._report(step, claim, ending)
        self._timers.set(("delete", claim.claim_id), claim.arrives_until_s)

    def _leave_or_hold(self, step: Step, claim: OpenClaim) -> None:
        """End a claim whose delete has left the allocations of others; its own write may be carried out later, when
        those are gone."""
        if step.now >= claim.arrives_until_s:
            self._forget(step, claim, ClaimState.LEFT_ALONE)
            return
        self._report(step, claim, ClaimState.LEFT_ALONE)
        self._timers.set(("delete", claim.claim_id), claim.arrives_until_s)

    def _report(self, step: Step, claim: OpenClaim, ending: ClaimState) -> None:
        """Report an end to the request, once; what the claim holds is released later."""
        if not claim.abandoned:
            claim.abandoned = True
            step.report(ClaimEnded(claim, ending))

    def on_delete_timer(self, step: Step, claim_id: str) -> None:
        """Try the delete again: the pause after the last attempt is over, or that was never answered."""
        self._delete_again(step, self._open[claim_id])

    def _delete_again(self, step: Step, claim: OpenClaim) -> None:
        """Delete, unless another request has placed the server on the node, or may still do so."""
        other = claim.other_wanted()
        if other is None:
            self._delete(step, claim)
        elif other.state == ClaimState.CONFIRMED and step.now >= claim.arrives_until_s:
            other.take_over(claim)
            self._agent_casts.release(step, claim)
            self._forget(step, claim, ClaimState.DELETED)
        else:
            claim.state = ClaimState.DELETING
            at_s = step.now + self._settings.crowded_wait_s
            self._timers.set(("delete", claim.claim_id), max(at_s, claim.arrives_until_s))

    # -- endings

    def _forget(self, step: Step, claim: OpenClaim, ending: ClaimState) -> None:
        self._remove(claim)
        claim.state = ending
        self.endings[ending.value] += 1
        self._table.forget(claim.claim_id)
        if not claim.abandoned:
            step.report(ClaimEnded(claim, ending))
