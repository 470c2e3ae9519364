# SPDX-License-Identifier: Apache-2.0
"""The life of a request, from ``RequestArrived`` to exactly one ``Answer`` or ``Fail``.

The instances of one request are decided one after the other, each assumed before the next is looked
at, as Nova does; their claims and writes are then under way together.  An instance whose claim ends
badly is decided again, alone.  Nothing is answered before every instance is written, and when one
instance cannot be placed, everything that the others hold is given back first.

========  ========================================  ========  =====================================
phase     event                                     next      what is done
========  ========================================  ========  =====================================
(none)    arrives while draining, or too many       -         Fail
(none)    arrives                                   PLACING   decide each instance in turn
PLACING   best host found, flat                     PLACING   begin its claim
PLACING   best host found, not flat                 PLACING   AskCandidates; later instances wait
PLACING   candidates answered                       PLACING   verify; begin a claim, or next host
PLACING   hosts pass, claims in flight for all of   PLACING   wait for one to land; later instances
          them are as many as may be                          wait too; decide again
PLACING   many hosts were refused by the judge      PLACING   other events first, then the next hosts
PLACING   a claim was refused, late, not written    PLACING   that host is out; decide again
PLACING   no host, or attempts used up of what is   DOUBTING  doubt.py asks, and corrects rows
          not flat; Placement was not asked yet
DOUBTING  rows were corrected                       PLACING   all hosts count again; decide again
DOUBTING  Placement named hosts of what is not flat PLACING   those alone count; decide again
DOUBTING  Placement agrees, or does not answer      FAILING   unwant every claim
PLACING   no host                                   FAILING   unwant every claim
PLACING   every instance is written, alternates in  -         keep every claim; Answer
PLACING   hard error, attempts used up              FAILING   unwant every claim
PLACING,  ``cleanup_s`` before the deadline         FAILING   unwant every claim
DOUBTING
FAILING   every claim has ended                     -         Fail
FAILING   the deadline                              -         Fail; claims go on unwinding
========  ========================================  ========  =====================================

A request that claims nothing (rebuild, legacy callers) is answered in the step in which it arrives.

Alternates are looked for while the claims travel: by a timer that rings at once, so that the claims
leave first.  When a host is decided again they are looked for again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, nextafter

from shared_scheduler.core.alternates import Alternates
from shared_scheduler.core.claims import Claims, ClaimState, Intent, OpenClaim
from shared_scheduler.core.doubt import Doubt
from shared_scheduler.core.effects import (
    Answer,
    AskCandidates,
    Choice,
    ConsumerPolicy,
    Fail,
    FailureCode,
)
from shared_scheduler.core.events import (
    Candidate,
    CandidatesAnswered,
    RequestArrived,
    WriteCode,
)
from shared_scheduler.core.journal import outcome_of
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.planner import Crowded, Pause, Planner, Question, Refusal, Selected
from shared_scheduler.core.settings import Settings
from shared_scheduler.core.turn import Timers, Turn
from shared_scheduler.core.work import NO_VERDICT, Phase, Seat, SeatState, Work
from shared_scheduler.decision.pipeline import Narrowing
from shared_scheduler.protocol.messages import Reason

#: the outcome of an attempt that went well
WRITTEN = WriteCode.WRITTEN.value

#: writes that no other host would mend
HARD_ERRORS = {
    WriteCode.CONSUMER_CONFLICT: FailureCode.CONSUMER_CONFLICT,
    WriteCode.REJECTED: FailureCode.BAD_REQUEST,
}


class Requests:
    """All requests under way."""

    def __init__(
        self,
        settings: Settings,
        timers: Timers,
        planner: Planner,
        claims: Claims,
        nodes: Nodes,
        doubt: Doubt,
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._planner = planner
        self._claims = claims
        self._nodes = nodes
        self._doubt = doubt
        self._alternates = Alternates(settings, timers, planner)
        self._works: dict[int, Work] = {}
        #: those that wait for a claim to land, in the order in which they are decided again
        self._crowded: dict[int, Work] = {}
        self._count = 0
        self._draining = False
        #: no request lives longer; the end of the service, once it is told to stop
        self._latest_s = float("inf")
        claims.listener = self
        doubt.listener = self

    def __len__(self) -> int:
        return len(self._works)

    def works(self) -> Iterator[Work]:
        """The requests under way, oldest first."""
        return iter(self._works.values())

    # -- arrival

    def arrive(self, turn: Turn, event: RequestArrived) -> None:
        """A caller wants hosts."""
        self._count += 1
        deadline_s = min(event.deadline_s, self._latest_s)
        work = Work.begin(self._count, event.request, turn.now, deadline_s)
        refused = self._refuse(work)
        if refused is not None:
            self._emit_fail(turn, work, *refused)
        elif not work.claims_hosts:
            self._choose_only(turn, work)
        else:
            self._works[work.key] = work
            self._set_timer(turn, work)
            self._advance(turn, work)

    def _refuse(self, work: Work) -> tuple[FailureCode, str] | None:
        settings = self._settings
        if self._draining:
            return FailureCode.DRAINING, "this scheduler is stopping"
        if len(self._works) >= settings.requests_max:
            return FailureCode.OVERLOADED, f"{settings.requests_max} requests are under way already"
        if len(self._claims) + len(work.seats) > settings.claims_max:
            return FailureCode.OVERLOADED, f"more than {settings.claims_max} claims under way"
        if not work.seats:
            return FailureCode.BAD_REQUEST, "the request names no instance"
        return None

    def _set_timer(self, turn: Turn, work: Work) -> None:
        # who has little time cleans up in half of it, and does not begin with that
        most_s = min(self._settings.cleanup_s, (work.deadline_s - work.arrived_s) / 2)
        early_s = 0.0 if work.phase == Phase.FAILING else most_s
        at_s = max(turn.now, work.deadline_s - early_s)
        self._timers.set(("request", str(work.key)), at_s)

    def stop_by(self, turn: Turn, deadline_s: float) -> None:
        """Bound every deadline by the end of the service; requests are still taken."""
        self._latest_s = deadline_s
        for work in self._works.values():
            if work.deadline_s > deadline_s:
                work.deadline_s = deadline_s
                self._set_timer(turn, work)

    def drain(self) -> None:
        """Take no more requests; those under way end as usual."""
        self._draining = True

    def _choose_only(self, turn: Turn, work: Work) -> None:
        """Rebuild and legacy callers: nothing is claimed, and nothing outlives this step."""
        assumed: list[str] = []
        try:
            self._choose_each(work, assumed)
            if work.failure is None:
                self._alternates.search(turn, work)
                self._answer(turn, work)
            else:
                self._emit_fail(turn, work, *work.failure)
        finally:
            for claim_id in assumed:
                self._planner.forget_only(claim_id)

    def _choose_each(self, work: Work, assumed: list[str]) -> None:
        for seat in work.seats:
            plan = self._planner.plan(work, seat)
            if not isinstance(plan, Selected):
                text = plan.text if isinstance(plan, Refusal) else "candidates without resources"
                work.failure = (FailureCode.NO_VALID_HOST, text)
                return
            seat.choice, seat.state = plan.choice, SeatState.WRITTEN
            if not work.request.is_rebuild:
                assumed.append(self._planner.assume_only(work, seat))

    # -- deciding

    def _advance(self, turn: Turn, work: Work) -> None:
        """Decide what is open, then see whether all is done."""
        while work.phase == Phase.PLACING and (seat := work.next_open()) is not None:
            self._decide(turn, work, seat)
        if work.phase != Phase.PLACING:
            return
        if work.all_in(SeatState.WRITTEN):
            self._finish(turn, work)
        elif work.all_in(SeatState.CLAIMING, SeatState.WRITTEN):
            self._alternates.want(turn, work)

    def _decide(self, turn: Turn, work: Work, seat: Seat) -> None:
        if seat.attempts >= self._settings.attempts_max:
            text = f"{seat.attempts} hosts were tried for {seat.consumer}, none took it"
            self._no_host(turn, work, Refusal(text, stale_mirror=not work.request.flat))
            return
        plan = self._planner.plan(work, seat)
        if isinstance(plan, Selected):
            self._claim(turn, work, seat, plan)
        elif isinstance(plan, Question):
            self._ask(turn, work, seat, plan)
        elif isinstance(plan, Crowded):
            self._crowded[work.key] = work
            self._wait(turn, work, seat, turn.now + self._settings.crowded_look_s)
        elif isinstance(plan, Pause):
            self._wait(turn, work, seat, nextafter(turn.now, inf))  # not in this step
        else:
            self._no_host(turn, work, plan)

    def _wait(self, turn: Turn, work: Work, seat: Seat, until_s: float) -> None:
        seat.state = SeatState.WAITING
        self._timers.set(("again", str(work.key)), until_s)

    def claims_landed(self, turn: Turn) -> None:
        """Some hosts may take claims again: decide for who waited, one after the other, while there is room."""
        if not self._claims.made_room:
            return
        self._claims.made_room = False
        for key in list(self._crowded):
            if not self._found_room(turn, key):
                return

    def _found_room(self, turn: Turn, key: int) -> bool:
        """Decide it again.  Who finds none waits behind the others."""
        self._crowded.pop(key, None)
        work = self._works[key]
        work.wake()
        self._advance(turn, work)
        return key not in self._crowded

    def on_again_timer(self, turn: Turn, key: str) -> None:
        """There may be room elsewhere by now; or others had their turn."""
        self._found_room(turn, int(key))

    def _claim(self, turn: Turn, work: Work, seat: Seat, plan: Selected) -> None:
        seat.attempts += 1
        seat.state, seat.choice = SeatState.CLAIMING, plan.choice
        intent = self._intent(work, seat, plan)
        seat.claim = self._claims.begin(turn, (work.key, seat.index), intent)

    def _intent(self, work: Work, seat: Seat, plan: Selected) -> Intent:
        choice, request = plan.choice, work.request
        assert choice.candidate is not None, "a claim needs a candidate"
        policy = ConsumerPolicy.MERGE if request.merge_with_existing else ConsumerPolicy.NEW
        return Intent(
            node=choice.node,
            cell=choice.cell,
            host=choice.host,
            consumer=seat.consumer,
            allocations=choice.candidate.allocations,
            mappings=choice.candidate.mappings,
            usage=request.usage,
            topology=plan.topology,
            by_agent=self._nodes.agent_speaks_for(choice.node),
            project_id=request.project_id,
            user_id=request.user_id,
            policy=policy,
            request_id=request.request_id,
            deadline_s=work.deadline_s,
            take=plan.take,
            epoch=self._nodes.epoch_of(choice.node),
        )

    def _ask(self, turn: Turn, work: Work, seat: Seat, question: Question) -> None:
        seat.attempts += 1
        seat.state, seat.asked = SeatState.ASKING, question.node
        seat.ask_id = f"seat.{work.key}.{seat.index}.{seat.attempts}"
        request = work.request
        sharing = self._planner.sharing_with(question.node)
        turn.emit(
            AskCandidates(seat.ask_id, question.node, request.queries, request.request_id, sharing)
        )

    def on_candidates(self, turn: Turn, event: CandidatesAnswered) -> None:
        """Placement named the candidates of one host, for an instance or for an alternate."""
        kind, key, index, *_ = event.ask_id.split(".")
        work = self._works.get(int(key))
        if work is None or work.phase != Phase.PLACING:
            return
        if kind == "alternate":
            self._alternates.on_candidates(work, event)
            self._advance(turn, work)
            return
        seat = work.seats[int(index)]
        if seat.state == SeatState.ASKING and seat.ask_id == event.ask_id:
            self._take_candidates(turn, work, seat, event)

    def _take_candidates(self, turn: Turn, work: Work, seat: Seat, event: CandidatesAnswered) -> None:
        seat.state = SeatState.OPEN
        if event.error:
            self._fail(turn, work, FailureCode.PLACEMENT_UNREACHABLE, event.error)
            return
        self._judge(turn, work, seat, event.candidates)
        self._advance(turn, work)

    def _judge(self, turn: Turn, work: Work, seat: Seat, candidates: Sequence[Candidate]) -> None:
        node = seat.asked
        verdict = self._planner.judge(work, seat, node, candidates)
        if isinstance(verdict, Selected):
            self._claim(turn, work, seat, verdict)
        else:
            seat.out[node] = verdict

    # -- how claims go

    def claim_written(self, turn: Turn, claim: OpenClaim) -> None:
        """One instance stands in Placement."""
        work, seat = self._seat_of(claim)
        seat.state = SeatState.WRITTEN
        work.journal.claim_went(claim, WRITTEN)
        self._nodes.took(claim.intent.node)
        self._advance(turn, work)

    def claim_ended(self, turn: Turn, claim: OpenClaim, ending: ClaimState) -> None:
        """One instance lost its host, or has given it back."""
        if claim.owner[0] not in self._works:
            return  # the caller got its Fail at the deadline
        work, seat = self._seat_of(claim)
        node = claim.intent.node
        seat.reopen()
        work.journal.claim_went(claim, outcome_of(claim, ending))
        self._learn(turn, seat, claim, ending)
        if work.phase == Phase.FAILING:
            self._fail_if_clean(turn, work)
        elif (hard := self._hard_error(claim, ending)) is not None:
            self._fail(turn, work, *hard)
        elif work.phase == Phase.PLACING:
            seat.out.setdefault(node, Reason(ending.value))
            self._advance(turn, work)

    def _seat_of(self, claim: OpenClaim) -> tuple[Work, Seat]:
        key, index = claim.owner
        work = self._works[key]
        return work, work.seats[index]

    def _learn(self, turn: Turn, seat: Seat, claim: OpenClaim, ending: ClaimState) -> None:
        """Take from a bad ending what it says of the node."""
        node = claim.intent.node
        if ending == ClaimState.REFUSED:
            seat.out[node] = claim.reason or Reason("refused")
            self._nodes.refused(turn, node, seat.out[node])
            if claim.judged_epoch < claim.seen.epoch:
                self._nodes.in_the_past(turn, node, claim.seen.epoch)
        elif ending == ClaimState.TIMED_OUT:
            seat.out[node] = Reason(NO_VERDICT)
            self._nodes.mute(turn, node)
        elif ending == ClaimState.NOT_WRITTEN:
            code = claim.write_code or WriteCode.UNREACHABLE
            seat.out[node] = Reason(code.value, {"text": claim.write_detail})
            self._nodes.not_written(turn, node, code)

    @staticmethod
    def _hard_error(claim: OpenClaim, ending: ClaimState) -> tuple[FailureCode, str] | None:
        if ending == ClaimState.LEFT_ALONE:
            return FailureCode.CONSUMER_CONFLICT, claim.write_detail
        if ending == ClaimState.ABANDONED:
            return FailureCode.PLACEMENT_UNREACHABLE, claim.write_detail
        if ending == ClaimState.NOT_WRITTEN and claim.write_code in HARD_ERRORS:
            return HARD_ERRORS[claim.write_code], claim.write_detail
        return None

    # -- no host

    def _no_host(self, turn: Turn, work: Work, refusal: Refusal) -> None:
        if refusal.bad_request:
            self._fail(turn, work, FailureCode.BAD_REQUEST, refusal.text)
            return
        work.failure = (FailureCode.NO_VALID_HOST, refusal.text)
        if refusal.stale_mirror and not work.doubted:
            work.phase, work.doubted = Phase.DOUBTING, True
            if self._doubt.ask(turn, work):
                return
            if self._knows_where(work):  # the same was asked a moment ago
                self._begin_again(work)
                return
        self._fail(turn, work, *work.failure)

    def _knows_where(self, work: Work) -> bool:
        """Whether Placement has named the hosts of a request whose candidates the table cannot tell."""
        fitting = frozenset[str]() if work.request.flat else self._doubt.fitting(work.request.queries)
        work.fitting = fitting or None
        return bool(fitting)

    @staticmethod
    def _begin_again(work: Work) -> None:
        work.phase, work.failure = Phase.PLACING, None
        work.narrowing = Narrowing()
        for seat in work.seats:
            seat.out.clear()
            if not work.request.flat:
                seat.attempts = 0

    def waits_for_doubt(self, key: int) -> bool:
        """Whether it is still under way, and in doubt."""
        work = self._works.get(key)
        return work is not None and work.phase == Phase.DOUBTING

    def doubt_resolved(self, turn: Turn, key: int, corrected: bool) -> None:
        """Placement was asked; ``corrected`` tells that rows may have changed."""
        work = self._works.get(key)
        if work is None or work.phase != Phase.DOUBTING:
            return
        if not self._knows_where(work) and not corrected:
            assert work.failure is not None
            self._fail(turn, work, *work.failure)
            return
        self._begin_again(work)
        self._advance(turn, work)

    # -- endings

    def _finish(self, turn: Turn, work: Work) -> None:
        if not self._alternates.ready(turn, work):
            return
        for seat in work.seats:
            assert seat.claim is not None
            self._claims.keep(turn, seat.claim)
        self._close(work)
        self._answer(turn, work)

    def _answer(self, turn: Turn, work: Work) -> None:
        choices = tuple(self._inner(work, seat) for seat in work.seats)
        record = work.journal.record(work.request, choices, turn.now - work.arrived_s)
        claim_ids = tuple(claim.claim_id for claim in work.claims())
        turn.emit(Answer(work.request, choices, record, claim_ids))

    @staticmethod
    def _inner(work: Work, seat: Seat) -> tuple[Choice, ...]:
        assert seat.choice is not None
        found = work.alternates.found if work.alternates is not None else {}
        return (seat.choice, *found.get(seat.choice.cell, ()))

    def _fail(self, turn: Turn, work: Work, code: FailureCode, text: str) -> None:
        """Give everything back; the caller hears of it when that is done."""
        self._crowded.pop(work.key, None)
        work.phase, work.failure = Phase.FAILING, (code, text)
        self._set_timer(turn, work)
        for claim in list(work.claims()):
            self._claims.unwant(turn, claim)
        self._fail_if_clean(turn, work)

    def _fail_if_clean(self, turn: Turn, work: Work) -> None:
        if work.key in self._works and not any(work.claims()):
            self._fail_now(turn, work)

    def _fail_now(self, turn: Turn, work: Work) -> None:
        assert work.failure is not None
        self._close(work)
        self._emit_fail(turn, work, *work.failure)

    def _emit_fail(self, turn: Turn, work: Work, code: FailureCode, text: str) -> None:
        passed_s = turn.now - work.arrived_s
        record = work.journal.record(work.request, (), passed_s, code, text)
        turn.emit(Fail(work.request, code, text, record))

    def _close(self, work: Work) -> None:
        del self._works[work.key]
        self._timers.cancel(("request", str(work.key)))
        self._timers.cancel(("alternates", str(work.key)))
        self._timers.cancel(("again", str(work.key)))

    def on_timer(self, turn: Turn, key: str) -> None:
        """Time to clean up, or the deadline itself."""
        work = self._works[int(key)]
        if work.phase == Phase.FAILING:
            self._fail_now(turn, work)
            return
        if work.all_in(SeatState.WRITTEN):  # only alternates are missing
            self._alternates.give_up(work)
            self._finish(turn, work)
            return
        waited_s = turn.now - work.arrived_s
        self._fail(turn, work, FailureCode.TIMED_OUT, f"no host after {waited_s:.1f} s")

    def on_alternates_timer(self, turn: Turn, key: str) -> None:
        """Time to begin with alternates, or to answer without the rest of them."""
        work = self._works[int(key)]
        self._alternates.on_timer(turn, work)
        self._advance(turn, work)
