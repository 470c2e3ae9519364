# SPDX-License-Identifier: Apache-2.0
"""The life of a request, from ``RequestArrived`` to exactly one ``Answer`` or ``Fail``.

The instances of one request are decided one after the other, as in Nova: each one is assumed before the next one is
decided.  Their claims and writes then run in parallel.  An instance whose claim fails is decided again, alone, unless
it must be where the others are: then all of them leave that host.  The answer follows when every instance is written.
If one instance cannot be placed, everything that the others hold is released before the request fails.

==========  ==============================================  ==========  =======================================
phase       event                                           next        action
==========  ==============================================  ==========  =======================================
(none)      arrives while draining, beyond the bound,       -           Fail
            malformed, or after its time is over
(none)      arrives, too many for Placement's pace          -           Fail
(none)      arrives                                         PLACING     decide each instance in turn
PLACING     many claims wait for their write                PLACING     decide the next instance after a write
PLACING     all writes of ``DOUBT_S`` tell that the rest    FAILING     cancel every claim
            is too many for Placement's pace
PLACING     best host found, root-only                      PLACING     begin its claim
PLACING     best host found, not root-only                  PLACING     AskCandidates; later instances wait
PLACING     candidates answered                             PLACING     verify; begin a claim, or next host
PLACING     candidates answered, but the host has closed    PLACING     decide again
PLACING     candidates could not be read                    FAILING     cancel every claim
PLACING     a write waited in vain, and there is time       PLACING     decide again after a pause, with the
                                                                        same hosts
PLACING     hosts pass, but all have the maximum number     PLACING     wait until one ends; later instances
            of claims in flight                                         wait too; decide again
PLACING     the judge refused many hosts                    PLACING     other events first, then the next hosts
PLACING     a claim was refused, not judged or not written  PLACING     exclude that host; decide again
PLACING     an agent is late, and another host passes       PLACING     end the claim; exclude that host;
                                                                        decide again
PLACING     an agent is late, and the next host has         PLACING     wait for the agent longer, once
            more or fewer members of a soft group
PLACING     no host but those whose agents were late        PLACING     include them, and wait for their verdicts
PLACING     the best host for a soft group is left out,     PLACING     include it again, once for Placement
            only because its agent or Placement was late
PLACING     affinity: one has no host where the others of   YIELDING    cancel every claim; exclude their host
            the request are, no other member is there, and
            another host has room for all
PLACING     no host, but some were left out for others of   PLACING     include them; decide again
            its soft group, or because of servers with its
            label whose requests had no answer
PLACING     no host, or no attempts left for a request      RECHECKING  recheck.py asks, and corrects rows
            that is not root-only; Placement was not asked
PLACING     no host because of its hard spreading, and      PLACING     decide again with that
            another request has read of late, after this
            one, where the servers are
PLACING     the same, none has, and it is time to read it   RECHECKING  AskGroup (spread_check.py)
PLACING     the same, it is not, and there is time to wait  PLACING     decide again after a pause
RECHECKING  where the servers are is read, or is not, in    PLACING     decide again
            ``recheck_timeout_s``
RECHECKING  where they are cannot be read                   FAILING     cancel every claim
RECHECKING  rows were corrected                             PLACING     include all hosts again; decide again
RECHECKING  Placement named hosts, not root-only            PLACING     include only those; decide again
RECHECKING  candidates answered, for another server         RECHECKING  decide that one again afterwards
RECHECKING  an agent is late, for another server            RECHECKING  see to that afterwards
RECHECKING  a write waited in vain, for another server      RECHECKING  decide that one again afterwards
RECHECKING  Placement agrees, or does not answer            FAILING     cancel every claim
PLACING     no host                                         FAILING     cancel every claim
PLACING     every instance has a host, dry run              -           Answer; nothing was claimed
PLACING     every instance is written, its server group     CHECKING    AskGroup (group_check.py)
            must be checked
PLACING     every instance is written, its hard spreading   CHECKING    AskGroup (spread_check.py)
            must be checked
PLACING     every instance is written, alternates found     -           keep every claim; Answer
CHECKING    the group agrees                                PLACING     it is not checked again
CHECKING    the spreading agrees                            PLACING     alternates are searched again
CHECKING    another member is in the wrong place, senior    CHECKING    AskGroup again after a pause
CHECKING    another member is in the wrong place            YIELDING    cancel every claim; to an undecided one of
                                                                        affinity, this costs no attempt
CHECKING    undecided servers of its group or label are     CHECKING    AskGroup again after a pause
            to leave its domain, or to be answered
CHECKING    its domain has too many servers, and others     YIELDING    cancel every claim; this costs no attempt
            are undecided or were answered meanwhile
CHECKING    its domain has too many servers                 YIELDING    cancel every claim
CHECKING    the same, more than ``YIELDS_MAX`` times        FAILING     cancel every claim
CHECKING    one of its nodes is gone                        YIELDING    cancel every claim
CHECKING    another member is in the wrong place, soft,     PLACING     it is not checked again
            and little time or one attempt is left
CHECKING    the members cannot be read, soft                PLACING     it is not checked again
CHECKING    the members cannot be read                      FAILING     cancel every claim
YIELDING    every claim has ended                           PLACING     decide again after a pause
PLACING     hard error, no attempts left                    FAILING     cancel every claim
RECHECKING  hard error of a claim for another server        FAILING     cancel every claim
YIELDING    hard error of a claim, as it is taken back      FAILING     cancel every claim
PLACING     ``cleanup_s`` before the deadline               FAILING     cancel every claim
RECHECKING  ``cleanup_s`` before the deadline               FAILING     cancel every claim
CHECKING    ``cleanup_s`` before the deadline, soft         PLACING     it is not checked again; the alternates
                                                                        that were found
CHECKING    ``cleanup_s`` before the deadline               FAILING     cancel every claim
YIELDING    ``cleanup_s`` before the deadline               FAILING     cancel every claim
FAILING     every claim has ended                           -           Fail
FAILING     the deadline                                    -           Fail; the claims continue to unwind
==========  ==============================================  ==========  =======================================

A request that claims nothing (rebuild, legacy callers) is answered in the step in which it arrives.

Alternates are searched while the claims are in flight (``alternates.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, nextafter

from shared_scheduler.core.agent_casts import AgentCasts
from shared_scheduler.core.alternates import Alternates
from shared_scheduler.core.claim_state import ClaimState, Intent, OpenClaim
from shared_scheduler.core.claims import Claims
from shared_scheduler.core.effects import Answer, AskCandidates, Choice, ConsumerPolicy, Fail, FailureCode
from shared_scheduler.core.events import Candidate, CandidatesAnswered, GroupAnswered, RequestArrived, WriteCode
from shared_scheduler.core.group_check import Agreed, CheckAgain, Yield
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.planner import (
    CLOSED,
    MEMBER_WAITS_S,
    TOO_SMALL,
    CandidatesWanted,
    Crowded,
    OtherHost,
    Planner,
    Refusal,
    Selected,
)
from shared_scheduler.core.quarantine import Quarantine
from shared_scheduler.core.recheck import Recheck
from shared_scheduler.core.request_state import (
    NO_VERDICT,
    InstancePlacement,
    InstanceState,
    RequestPhase,
    RequestState,
    outcome_of,
)
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Fact, Step, Timers
from shared_scheduler.core.time_left import TimeLeft
from shared_scheduler.core.written_checks import Unsettled, WrittenChecks, group_of, others_first
from shared_scheduler.decision.pipeline import OncePerRequestFilters
from shared_scheduler.protocol.limits import TOPOLOGY_MAX_CHARS
from shared_scheduler.protocol.messages import Reason, RefusalCode

#: the outcome of a successful attempt
WRITTEN = WriteCode.WRITTEN.value

#: results of writes for which another host would not help
HARD_ERRORS = {
    WriteCode.CONSUMER_CONFLICT: FailureCode.CONSUMER_CONFLICT,
    WriteCode.REJECTED: FailureCode.BAD_REQUEST,
    WriteCode.NEVER_SENT: FailureCode.OVERLOADED,
    WriteCode.DENIED: FailureCode.PLACEMENT_UNREACHABLE,
    WriteCode.NOT_SERVED: FailureCode.PLACEMENT_UNREACHABLE,
}

#: results of writes for which Placement, or its other writers, were too slow
UNANSWERED = frozenset({WriteCode.PROVIDER_CONFLICT, WriteCode.UNREACHABLE})

#: results of writes that say nothing about the host: the instance is decided again after a pause, if there is time
NOT_TRIED = frozenset({WriteCode.NEVER_SENT, WriteCode.NOT_SERVED})

#: A request whose write waited in vain, or that waits for a label read, is decided again only while at most this part
#: of ``requests_max`` is under way.  While Placement does not keep up, the newest requests are served, so they must
#: find a place.
PATIENT_PART = 0.5


@dataclass(frozen=True, slots=True)
class Placed(Fact):
    """A server was placed by an answer."""

    server: str
    choice: Choice


class Requests:
    """All requests under way."""

    def __init__(
        self,
        settings: SchedulerSettings,
        timers: Timers,
        planner: Planner,
        claims: Claims,
        agent_casts: AgentCasts,
        nodes: Nodes,
        quarantine: Quarantine,
        recheck: Recheck,
        checks: WrittenChecks,
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._planner = planner
        self._claims = claims
        self._agent_casts = agent_casts
        self._nodes = nodes
        self._quarantine = quarantine
        self._recheck = recheck
        self._checks = checks
        self._alternates = Alternates(settings, timers, planner)
        self._time_left = TimeLeft(settings, claims.forecast)
        self._under_way: dict[int, RequestState] = {}
        #: requests that wait for the end of a claim, in the order in which they are decided again
        self._crowded: dict[int, RequestState] = {}
        self._count = 0
        #: to Placement, for the candidates of a host
        self._questions = 0
        self._draining = False
        #: the latest deadline of all requests; set when the service stops
        self._latest_s = float("inf")

    def __len__(self) -> int:
        return len(self._under_way)

    def under_way(self) -> Iterator[RequestState]:
        """The requests under way, oldest first."""
        return iter(self._under_way.values())

    # -- arrival

    def arrive(self, step: Step, event: RequestArrived) -> None:
        """Begin a request, or refuse it."""
        self._count += 1
        deadline_s = min(event.deadline_s, self._latest_s)
        state = RequestState.begin(self._count, event.request, step.now, deadline_s)
        refused = self._refuse(state)
        if refused is None and state.claims_hosts:
            refused = self._time_left.why_too_short(state, step.now)
        if refused is not None:
            self._emit_fail(step, state, *refused)
        elif not state.claims_hosts:
            self._choose_only(step, state)
        else:
            self._under_way[state.key] = state
            self._set_timer(step, state)
            self._advance(step, state)

    def _refuse(self, state: RequestState) -> tuple[FailureCode, str] | None:
        settings = self._settings
        if self._draining:
            return FailureCode.DRAINING, "this scheduler is stopping"
        if len(self._under_way) >= settings.requests_max:
            return FailureCode.OVERLOADED, f"{settings.requests_max} requests are under way already"
        if len(self._claims) + len(state.instances) > settings.claims_max:
            return FailureCode.OVERLOADED, f"more than {settings.claims_max} claims under way"
        if not state.instances:
            return FailureCode.BAD_REQUEST, "the request names no instance"
        return self._planner.read_texts(state)

    def _set_timer(self, step: Step, state: RequestState) -> None:
        early_s = 0.0 if state.phase == RequestPhase.FAILING else self._time_left.cleanup_s(state)
        at_s = max(step.now, state.deadline_s - early_s)
        self._timers.set(("request", str(state.key)), at_s)

    def stop_by(self, step: Step, deadline_s: float) -> None:
        """Bound every deadline by the end of the service; new requests are still accepted."""
        self._latest_s = deadline_s
        for state in self._under_way.values():
            if state.deadline_s > deadline_s:
                state.deadline_s = deadline_s
                self._set_timer(step, state)

    def drain(self) -> None:
        """Refuse new requests; those under way end as usual."""
        self._draining = True

    def _choose_only(self, step: Step, state: RequestState) -> None:
        """Answer a request that claims nothing (rebuild, legacy callers) within this step."""
        with self._planner.unclaimed(state) as failure:
            if failure is None:
                self._alternates.search(step, state)
                self._answer(step, state)
            else:
                self._emit_fail(step, state, *failure)

    # -- deciding

    def _advance(self, step: Step, state: RequestState) -> None:
        """Decide the open instances, then answer if all are placed."""
        unwritten_max = self._claims.forecast.unwritten_max(step.now)
        while state.phase == RequestPhase.PLACING and (instance := state.next_open(unwritten_max)) is not None:
            self._decide(step, state, instance)
        if state.phase != RequestPhase.PLACING:
            return
        if state.all_in(InstanceState.WRITTEN):
            self._finish(step, state)
        elif state.all_in(InstanceState.CLAIMING, InstanceState.WRITTEN):
            self._alternates.want(step, state)

    def _decide(self, step: Step, state: RequestState, instance: InstancePlacement) -> None:
        if instance.attempts >= self._settings.attempts_max:
            self._no_attempts_left(step, state, instance)
            return
        self._planner.include_better(state, instance)
        plan = self._planner.plan(state, instance)
        if isinstance(plan, Refusal):
            self._none_passes(step, state, instance, plan)
        elif isinstance(plan, Selected):
            self._claim(step, state, instance, plan)
        elif isinstance(plan, CandidatesWanted):
            self._ask(step, state, instance, plan)
        elif isinstance(plan, Crowded):
            self._crowded[state.key] = state
            self._wait(state, instance, step.now + self._settings.crowded_wait_s)
        else:
            self._wait(state, instance, nextafter(step.now, inf))  # not in this step

    def _none_passes(self, step: Step, state: RequestState, instance: InstancePlacement, refusal: Refusal) -> None:
        """Include hosts that were left out, which are decided next, read where the servers are that spreading counts,
        or leave the host of the other instances.  If there is nothing of these, the instance has no host."""
        if state.forget_soft_hosts() or state.forget_unsettled() or instance.recall_late():
            return
        if refusal.spread and self._locates(step, state, instance):
            return
        if refusal.bad_request or state.request.dry_run:
            self._no_host(step, state, refusal)
        elif (left := self._leave_together(step, state, instance, refusal)) is not None:
            self._no_host(step, state, left)

    def _locates(self, step: Step, state: RequestState, instance: InstancePlacement) -> bool:
        """Use what was read for another request, or read where the servers are, or wait until one of these is possible;
        False if it was done already, or does not help."""
        if self._checks.recall(state, step.now):
            return True
        if self._checks.may_read_label(state, step.now):
            self._read_label(step, state)
            return True
        return self._awaits_label_read(step, state, instance)

    def _awaits_label_read(self, step: Step, state: RequestState, instance: InstancePlacement) -> bool:
        pause_s = self._checks.label_read_pause_s(state, step.now)
        if pause_s is None or self._is_crowded() or self._time_left.left_s(state, step.now + pause_s) <= 0.0:
            return False
        state.check.label_reads_awaited += 1
        self._wait(state, instance, step.now + pause_s)
        return True

    def _no_attempts_left(self, step: Step, state: RequestState, instance: InstancePlacement) -> None:
        """End the tries of an instance.  Its last one may have failed for Placement's sake while the request was
        rechecked for another instance, or yielded."""
        if instance.not_tried is not None:
            self._fail(step, state, *instance.not_tried)
            return
        text = f"{instance.attempts} hosts were tried for {instance.consumer}, none took it"
        self._no_host(step, state, Refusal(text, stale_mirror=not state.request.root_only))

    def _leave_together(
        self, step: Step, state: RequestState, instance: InstancePlacement, refusal: Refusal
    ) -> Refusal | None:
        """Leave the host of the other instances, because this one must be there and cannot; returns None then.

        The refusal remains if they have none, are there because of other members, or would find no other one.  If the
        table has too little room on other ones, a new read may change that."""
        nodes = state.bound_to(instance)
        if not nodes:
            return refusal
        elsewhere = self._planner.elsewhere(state, instance, nodes)
        if not elsewhere.fits:
            return replace(refusal, stale_mirror=refusal.stale_mirror or bool(elsewhere.small))
        state.enter(RequestPhase.YIELDING, step.now)
        state.check.pause_s = 0.0
        reason = Reason(ClaimState.RELEASED.value, {"no_host_for": instance.consumer})
        for one in state.instances:
            one.leave_out(nodes, reason)
            one.leave_out(elsewhere.small, Reason(TOO_SMALL, {"servers": len(state.instances)}))
        for claim in list(state.claims()):
            self._claims.cancel(step, claim, reason)
        return None

    def _wait(self, state: RequestState, instance: InstancePlacement, until_s: float) -> None:
        instance.state = InstanceState.WAITING
        self._timers.set(("again", str(state.key)), until_s)

    def decide_crowded(self, step: Step) -> None:
        """Decide the requests that wait for the end of a claim, while nodes take claims."""
        for key in list(self._crowded):
            if not self._found_room(step, key):
                return

    def _found_room(self, step: Step, key: int) -> bool:
        """Decide a request again.  If it finds no room, it waits behind the others."""
        self._crowded.pop(key, None)
        state = self._under_way[key]
        state.wake()
        self._advance(step, state)
        return key not in self._crowded

    def on_again_timer(self, step: Step, key: str) -> None:
        """Decide again: other claims may have ended, or other events were handled."""
        self._found_room(step, int(key))

    def _claim(self, step: Step, state: RequestState, instance: InstancePlacement, plan: Selected) -> None:
        if len(plan.topology) > TOPOLOGY_MAX_CHARS:  # no message could carry it
            text = f"NUMA cells and devices take {len(plan.topology)} characters, a claim holds {TOPOLOGY_MAX_CHARS}"
            self._fail(step, state, FailureCode.BAD_REQUEST, text)
            return
        instance.attempts += 1
        if state.request.dry_run:
            self._planner.assume(state, instance, plan)
            return
        instance.state, instance.choice = InstanceState.CLAIMING, plan.choice
        self._checks.chosen(state, instance)
        intent = self._intent(state, instance, plan)
        limit_s = inf if instance.patient else self._agent_casts.limit.after(len(instance.late))
        instance.claim = self._claims.begin(step, (state.key, instance.index), intent, limit_s)

    def _intent(self, state: RequestState, instance: InstancePlacement, plan: Selected) -> Intent:
        choice, request = plan.choice, state.request
        assert choice.candidate is not None, "a claim needs a candidate"
        merges = request.merge_with_existing
        return Intent(
            node=choice.node,
            cell=choice.cell,
            host=choice.host,
            consumer=instance.consumer,
            allocations=choice.candidate.allocations,
            mappings=choice.candidate.mappings,
            usage=request.usage,
            topology=plan.topology,
            by_agent=self._nodes.agent_speaks_for(choice.node),
            project_id=request.project_id,
            user_id=request.user_id,
            policy=ConsumerPolicy.MERGE if merges else ConsumerPolicy.NEW,
            standing=self._planner.standing(request, instance.consumer) if merges else None,
            request_id=request.request_id,
            deadline_s=state.deadline_s,
            take=plan.take,
            epoch=self._nodes.epoch_of(choice.node),
            group=self._planner.claim_group(state, instance, choice.node),
            counts_groups=self._nodes.counts_groups(choice.node),
            service_accepts=self._planner.service_accepts(choice.host),
            asked_s=state.arrived_s,
            is_new=request.move is None and not merges,
        )

    def _ask(self, step: Step, state: RequestState, instance: InstancePlacement, question: CandidatesWanted) -> None:
        instance.attempts += 1
        instance.state, instance.asked = InstanceState.ASKING, question.node
        instance.asked_beside = state.beside(instance)
        self._questions += 1
        instance.ask_id = f"instance.{state.key}.{instance.index}.{self._questions}"
        request = state.request
        sharing = self._planner.sharing_with(question.node)
        step.emit(AskCandidates(instance.ask_id, question.node, request.queries, request.request_id, sharing))

    def on_candidates(self, step: Step, event: CandidatesAnswered) -> None:
        """Handle the candidates of one host, for an instance or for an alternate."""
        kind, key, index, *_ = event.ask_id.split(".")
        state = self._under_way.get(int(key))
        if state is None:
            return
        if kind == "alternate":  # also while it yields or is rechecked: it may come back to its hosts
            self._alternates.on_candidates(state, event)
            self._advance(step, state)
            return
        instance = state.instances[int(index)]
        if instance.state != InstanceState.ASKING or instance.ask_id != event.ask_id:
            return
        if state.phase == RequestPhase.PLACING:
            self._take_candidates(step, state, instance, event)
        else:  # it is decided again if the request goes on
            instance.state = InstanceState.OPEN

    def _take_candidates(
        self, step: Step, state: RequestState, instance: InstancePlacement, event: CandidatesAnswered
    ) -> None:
        instance.state = InstanceState.OPEN
        if event.error:
            self._fail(step, state, FailureCode.PLACEMENT_UNREACHABLE, event.error)
            return
        self._judge(step, state, instance, event.candidates)
        self._advance(step, state)

    def _judge(
        self, step: Step, state: RequestState, instance: InstancePlacement, candidates: Sequence[Candidate]
    ) -> None:
        """Claim the host.  If the request has a group, and other instances have found or lost a host since this one was
        decided, it is decided again; that costs no attempt, because the host was not tried."""
        if state.request.group is not None and state.beside(instance) != instance.asked_beside:
            instance.attempts -= 1
            return
        node = instance.asked
        verdict = self._planner.judge(state, instance, node, candidates)
        if isinstance(verdict, Selected):
            self._claim(step, state, instance, verdict)
        elif verdict.code != CLOSED:  # the next decision sees that, and whether it is open again
            instance.out[node] = verdict

    # -- results of claims

    def claim_written(self, step: Step, claim: OpenClaim) -> None:
        """Handle the claim of an instance that is written to Placement."""
        state, instance = self._instance_of(claim)
        instance.state, instance.not_tried = InstanceState.WRITTEN, None
        state.journal.claim_went(claim, WRITTEN)
        self._quarantine.claim_went_well(claim.intent.node)
        is_placing = state.phase == RequestPhase.PLACING
        if is_placing and (failure := self._time_left.why_it_cannot_end(state, step.now)) is not None:
            self._fail(step, state, *failure)
        else:
            self._advance(step, state)

    def agent_late(self, step: Step, claim: OpenClaim) -> None:
        """Claim another host for an instance whose agent is late; without another host, wait for the agent.

        A member of a soft group waits longer before its policy is served by fewer members, or by more."""
        state, instance = self._instance_of(claim)
        if state.phase != RequestPhase.PLACING:
            return
        other, until_s = self._planner.other_host(state, instance), claim.began_s + MEMBER_WAITS_S
        if other is OtherHost.NONE and state.prefers_hosts:
            other = OtherHost.OF_OTHER_MEMBERS
        if other is OtherHost.OF_OTHER_MEMBERS and step.now < until_s:
            self._quarantine.agent_late(step, claim.intent.node)
            self._agent_casts.wait_for(claim, until_s)
        elif other is not OtherHost.NONE:
            instance.waited = other is OtherHost.OF_OTHER_MEMBERS
            self._claims.leave(step, claim)

    def claim_ended(self, step: Step, claim: OpenClaim, ending: ClaimState) -> None:
        """Handle the end of a claim: the instance has lost its host, or has released it."""
        if claim.owner[0] not in self._under_way:
            return  # the caller got its Fail at the deadline
        state, instance = self._instance_of(claim)
        step.trigger = claim.cause
        instance.reopen()
        outcome = outcome_of(claim, ending)
        state.journal.claim_went(claim, outcome, self._planner.held_room(state, claim, outcome))
        self._learn(step, instance, claim, ending)
        instance.not_tried = hard_error(claim, ending) if is_not_tried(claim, ending) else None
        if is_unanswered(claim, ending):
            instance.leave_unanswered(claim.intent.node)
        if state.phase == RequestPhase.FAILING:
            self._fail_if_clean(step, state)
        elif self._write_again(step, state, instance, claim, ending):
            return
        elif (hard := hard_error(claim, ending)) is not None and not _is_decided_again(state, claim):
            self._fail(step, state, *hard)
        elif state.phase == RequestPhase.YIELDING:
            self._decide_again_if_clean(step, state)
        elif state.phase == RequestPhase.PLACING:
            self._advance(step, state)

    def _write_again(
        self, step: Step, state: RequestState, instance: InstancePlacement, claim: OpenClaim, ending: ClaimState
    ) -> bool:
        """Wait, and decide again, if Placement did not get the write, because it does not keep up or is away.  An agent
        keeps its claim for a short time, but the caller has more."""
        if not is_not_tried(claim, ending):
            return False
        again_s = step.now + self._settings.crowded_wait_s
        has_time = self._time_left.left_s(state, again_s) > 0.0
        has_attempts = instance.attempts < self._settings.attempts_max
        if state.phase != RequestPhase.PLACING or self._is_crowded() or not (has_time and has_attempts):
            return False
        instance.told.clear()  # the other members may be elsewhere by then
        instance.forget_late()  # those that are silent still are selected last
        self._wait(state, instance, again_s)
        return True

    def _is_crowded(self) -> bool:
        """Whether so many requests are under way that none waits for what another one may have now."""
        return len(self._under_way) > self._settings.requests_max * PATIENT_PART

    def _learn(self, step: Step, instance: InstancePlacement, claim: OpenClaim, ending: ClaimState) -> None:
        """Update the state of the instance and the quarantine after a failed claim."""
        node = claim.intent.node
        if claim.accepted:
            self._quarantine.claim_judged(node)
        if ending == ClaimState.REFUSED:
            self._learn_refusal(step, instance, claim)
        elif ending == ClaimState.LATE:
            instance.out[node] = Reason(NO_VERDICT)
            instance.late.append(node)
            self._quarantine.claim_left(step, node, instance.waited)
        elif ending == ClaimState.UNDELIVERED:
            instance.out[node] = Reason(NO_VERDICT)
        elif ending == ClaimState.TIMED_OUT:
            instance.out[node] = Reason(NO_VERDICT)
            self._nodes.verdict_missed(step, node, claim.began_s)
        elif ending == ClaimState.NOT_WRITTEN:
            code = claim.write_code or WriteCode.UNREACHABLE
            if code not in NOT_TRIED:
                instance.out[node] = Reason(code.value, {"text": claim.write_detail})
            self._quarantine.claim_not_written(step, node, code)
        elif claim.reason is None:  # otherwise it yielded to its server group
            instance.out.setdefault(node, Reason(ending.value))

    def _learn_refusal(self, step: Step, instance: InstancePlacement, claim: OpenClaim) -> None:
        node, reason, group = claim.intent.node, claim.reason or Reason(ClaimState.REFUSED.value), claim.intent.group
        if reason.code == RefusalCode.GROUP_CHANGED and group is not None and group.seen is not None:
            instance.told.add(node)  # decide again with the agent's answer; this host may still be the best
        else:
            instance.out[node] = reason
        self._quarantine.claim_refused(step, claim, reason)
        if claim.judged_epoch < claim.seen.epoch:
            self._nodes.judged_in_the_past(step, node, claim.seen.epoch)

    def _instance_of(self, claim: OpenClaim) -> tuple[RequestState, InstancePlacement]:
        key, index = claim.owner
        state = self._under_way[key]
        return state, state.instances[index]

    # -- no host

    def _no_host(self, step: Step, state: RequestState, refusal: Refusal) -> None:
        if refusal.bad_request:
            self._fail(step, state, refusal.code, refusal.text)
            return
        state.failure = (refusal.code, refusal.text)
        if refusal.stale_mirror and not state.rechecked:
            state.enter(RequestPhase.RECHECKING, step.now)
            state.rechecked = True
            if self._recheck.ask(step, state):
                return
            if self._knows_where(state):  # the same question was answered recently
                self._begin_again(step, state)
                return
        self._fail(step, state, *state.failure)

    def _knows_where(self, state: RequestState) -> bool:
        """Whether Placement has named the hosts of a request whose candidates the table cannot compute."""
        fitting = frozenset[str]() if state.request.root_only else self._recheck.fitting(state.request.queries)
        state.fitting = fitting or None
        return bool(fitting)

    def _begin_again(self, step: Step, state: RequestState) -> None:
        state.failure = None
        state.narrowing = OncePerRequestFilters()
        for instance in state.instances:
            instance.forget_tries()
            if not state.request.root_only:
                instance.attempts = 0
        self._go_on(step, state)

    def _go_on(self, step: Step, state: RequestState) -> None:
        """Place again after a recheck, during which agents may have been late."""
        state.enter(RequestPhase.PLACING, step.now)
        for claim in state.claims():
            self._agent_casts.report_late(step, claim)

    def rechecked(self, step: Step, key: int, corrected: bool) -> None:
        """Continue a request after its recheck; ``corrected``: rows may have changed."""
        state = self._under_way.get(key)
        if state is None or state.phase != RequestPhase.RECHECKING:
            return
        if not self._knows_where(state) and not corrected:
            assert state.failure is not None
            self._fail(step, state, *state.failure)
            return
        self._begin_again(step, state)
        self._advance(step, state)

    # -- the checks of what is written

    def on_group(self, step: Step, event: GroupAnswered) -> None:
        """Take in where the members of the group or label of a request are."""
        state = self._under_way.get(int(event.ask_id.split(".")[1]))
        if state is None or state.check.ask_id != event.ask_id:
            self._checks.overhear(event, step.now)
            return
        state.check.ask_id = ""
        if state.phase == RequestPhase.CHECKING:
            self._check(step, state, event)
        elif state.phase == RequestPhase.RECHECKING:
            self._label_was_read(step, state, event)
        else:
            self._checks.overhear(event, step.now)

    def _read_label(self, step: Step, state: RequestState) -> None:
        """Ask where the servers are that spreading counts, for a request without a host."""
        state.enter(RequestPhase.RECHECKING, step.now)
        self._checks.read_label(step, state)
        self._timers.set(("group", str(state.key)), step.now + self._settings.recheck_timeout_s)

    def _label_was_read(self, step: Step, state: RequestState, event: GroupAnswered) -> None:
        """Decide a request again that had no host because of its spreading."""
        self._timers.cancel(("group", str(state.key)))
        if (unread := self._checks.learn(state, event, step.now)) is not None:
            self._fail(step, state, FailureCode.GROUP_UNSETTLED, unread.text)
            return
        self._go_on(step, state)
        self._advance(step, state)

    def _check(self, step: Step, state: RequestState, event: GroupAnswered) -> None:
        """Check a request that is written."""
        match self._checks.judge(state, event, step.now):
            case Agreed():
                self._checked(step, state)
            case CheckAgain(pause_s):
                self._timers.set(("group", str(state.key)), step.now + pause_s)
            case Yield() as wanted:
                self._yield(step, state, wanted)
            case Unsettled(text):
                self._fail(step, state, FailureCode.GROUP_UNSETTLED, text)

    def _checked(self, step: Step, state: RequestState) -> None:
        if state.check.spread_passed:  # where the others are is known better than when alternates were searched
            self._alternates.search_again(state)
        state.enter(RequestPhase.PLACING, step.now)
        self._advance(step, state)

    def on_group_timer(self, step: Step, key: str) -> None:
        """Check again: the other members may have yielded.  Or decide without the late answer to a label read."""
        state = self._under_way[int(key)]
        if state.phase == RequestPhase.CHECKING:
            self._checks.ask(step, state)
        elif state.phase == RequestPhase.RECHECKING:
            state.check.ask_id = ""
            self._go_on(step, state)
            self._advance(step, state)

    def _yield(self, step: Step, state: RequestState, wanted: Yield) -> None:
        """Cancel every claim, and decide again with the hosts of the other members."""
        state.enter(RequestPhase.YIELDING, step.now)
        state.check.hosts, state.check.pause_s = wanted.hosts, wanted.pause_s
        for instance in state.instances:
            if wanted.others_came:
                instance.forgive_attempts()
            if instance.choice is not None and instance.choice.node in wanted.full:
                instance.out[instance.choice.node] = wanted.reason
        for claim in list(state.claims()):
            self._claims.cancel(step, claim, wanted.reason)

    def _decide_again_if_clean(self, step: Step, state: RequestState) -> None:
        if any(state.claims()):
            return
        state.enter(RequestPhase.PLACING, step.now)
        state.narrowing, state.check.first = OncePerRequestFilters(), False
        state.check.passed = state.check.spread_passed = False
        for instance in state.instances:
            instance.forget_late()  # the others may be there
            self._wait(state, instance, step.now + state.check.pause_s)

    # -- endings

    def _finish(self, step: Step, state: RequestState) -> None:
        if state.request.dry_run:
            self._close(state)
            self._answer(step, state)
            return
        if self._checks.is_needed(state):
            state.enter(RequestPhase.CHECKING, step.now)
            self._checks.ask(step, state)
            return
        if not self._alternates.ready(step, state):
            return
        for instance in state.instances:
            assert instance.claim is not None
            self._claims.keep(step, instance.claim)
        self._close(state)
        self._answer(step, state)

    def _answer(self, step: Step, state: RequestState) -> None:
        choices = tuple(self._inner(state, instance) for instance in state.instances)
        state.enter(state.phase, step.now)
        record = state.journal.record(state.request, choices, step.now - state.arrived_s)
        claim_ids = tuple(claim.claim_id for claim in state.claims())
        step.emit(Answer(state.request, choices, record, claim_ids, state.arrived))
        for instance in state.instances:
            if instance.claim is not None and instance.choice is not None:
                step.report(Placed(instance.consumer, instance.choice))

    @staticmethod
    def _inner(state: RequestState, instance: InstancePlacement) -> tuple[Choice, ...]:
        assert instance.choice is not None
        found = state.alternates.found if state.alternates is not None else {}
        return (instance.choice, *found.get(instance.choice.cell, ()))

    def _fail(self, step: Step, state: RequestState, code: FailureCode, text: str) -> None:
        """Release everything; the failure is reported to the caller after that."""
        self._crowded.pop(state.key, None)
        if state.phase == RequestPhase.RECHECKING:
            self._recheck.withdraw(state)
        self._timers.cancel(("group", str(state.key)))
        state.enter(RequestPhase.FAILING, step.now)
        state.failure = (code, text)
        self._set_timer(step, state)
        for claim in list(state.claims()):
            self._claims.cancel(step, claim)
        self._fail_if_clean(step, state)

    def _fail_if_clean(self, step: Step, state: RequestState) -> None:
        if state.key in self._under_way and not any(state.claims()):
            self._fail_now(step, state)

    def _fail_now(self, step: Step, state: RequestState) -> None:
        assert state.failure is not None
        self._close(state)
        self._emit_fail(step, state, *state.failure)

    def _emit_fail(self, step: Step, state: RequestState, code: FailureCode, text: str) -> None:
        passed_s = step.now - state.arrived_s
        state.enter(state.phase, step.now)
        record = state.journal.record(state.request, (), passed_s, code, text)
        step.emit(Fail(state.request, code, text, record, state.arrived))

    def _close(self, state: RequestState) -> None:
        del self._under_way[state.key]
        self._planner.forget(state)
        self._timers.cancel(("request", str(state.key)))
        self._timers.cancel(("alternates", str(state.key)))
        self._timers.cancel(("again", str(state.key)))
        self._timers.cancel(("group", str(state.key)))

    def on_timer(self, step: Step, key: str) -> None:
        """Handle the time for the clean-up, or the deadline."""
        state = self._under_way[int(key)]
        if state.phase == RequestPhase.FAILING:
            self._fail_now(step, state)
            return
        if state.phase == RequestPhase.CHECKING and self._checks.may_be_left_out(state):
            self._timers.cancel(("group", key))
            state.check.passed = True
            state.enter(RequestPhase.PLACING, step.now)
        if state.phase == RequestPhase.CHECKING:
            text = f"the members of {group_of(state)} could not be read in time"
            self._fail(step, state, FailureCode.GROUP_UNSETTLED, others_first(state) or text)
            return
        if state.phase == RequestPhase.PLACING and state.all_in(InstanceState.WRITTEN):  # only alternates are missing
            self._alternates.give_up(state)
            self._finish(step, state)
            return
        self._fail(step, state, *self._why_late(step, state))

    @staticmethod
    def _why_late(step: Step, state: RequestState) -> tuple[FailureCode, str]:
        not_tried = next((one.not_tried for one in state.instances if one.not_tried), None)
        if not_tried is not None:
            return not_tried
        if text := others_first(state):
            return FailureCode.GROUP_UNSETTLED, text
        return FailureCode.TIMED_OUT, f"no host after {step.now - state.arrived_s:.1f} s"

    def on_alternates_timer(self, step: Step, key: str) -> None:
        """Begin the search for alternates, or answer without the missing ones."""
        state = self._under_way[int(key)]
        self._alternates.on_timer(step, state)
        self._advance(step, state)


def hard_error(claim: OpenClaim, ending: ClaimState) -> tuple[FailureCode, str] | None:
    """Why the whole request fails with this claim; None if another host may succeed."""
    if ending == ClaimState.LEFT_ALONE:
        return FailureCode.CONSUMER_CONFLICT, claim.write_detail
    if ending == ClaimState.ABANDONED:
        return FailureCode.PLACEMENT_UNREACHABLE, claim.write_detail
    if ending == ClaimState.NOT_WRITTEN and claim.write_code in HARD_ERRORS:
        return HARD_ERRORS[claim.write_code], claim.write_detail
    return None


def _is_decided_again(state: RequestState, claim: OpenClaim) -> bool:
    """Whether a claim ended because its write was not sent, and its instance is decided again later anyway."""
    later = state.phase in (RequestPhase.RECHECKING, RequestPhase.YIELDING)
    return later and claim.write_code in NOT_TRIED


def is_not_tried(claim: OpenClaim, ending: ClaimState) -> bool:
    """Whether a claim has ended because its write was not sent, or no Placement was reached."""
    return ending == ClaimState.NOT_WRITTEN and claim.write_code in NOT_TRIED


def is_unanswered(claim: OpenClaim, ending: ClaimState) -> bool:
    """Whether a claim has ended because Placement, or its other writers, were too slow."""
    if ending == ClaimState.NOT_WRITTEN:
        return claim.write_code in UNANSWERED
    return ending == ClaimState.DELETED and claim.reason is None
