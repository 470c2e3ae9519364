# SPDX-License-Identifier: Apache-2.0
"""The state of a request while it is under way (``requests.py`` contains its transitions)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from shared_scheduler.core.claim_state import ClaimState, OpenClaim
from shared_scheduler.core.effects import Choice, FailureCode
from shared_scheduler.core.held_room import NOBODY
from shared_scheduler.decision.pipeline import Decision, OncePerRequestFilters
from shared_scheduler.decision.record import Attempt, DecisionCounts, DecisionRecord, asked_of
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import GroupPolicy, Leaf, Reason
from shared_scheduler.table.host_view import HostView

#: the maximum numbers of decisions and attempts in one record
DECISIONS_MAX = 64
ATTEMPTS_MAX = 128
#: the first attempts of a record, which record who held the room
ATTEMPTS_WITH_HOLDERS_MAX = 16
#: of the detail of one attempt, which a host may make as long as a message
DETAIL_MAX_CHARS = 4096
#: after this number of hosts with more members of a soft group than a decision saw, the next host is not asked
SOFT_REFUSALS_MAX = 3
#: the reason for a host whose agent gave no verdict
NO_VERDICT = "no_verdict"


@dataclass(slots=True)
class Journal:
    """Collects the decisions and attempts of one request for its record.

    The first decisions and attempts are kept; later ones are counted in ``timings_ms`` as ``decisions`` and
    ``attempts``, which also has the time of each phase.
    """

    decisions: list[DecisionCounts] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    decision_count: int = 0
    attempt_count: int = 0
    #: the time that the request spent in each phase
    phases_s: dict[RequestPhase, float] = field(default_factory=dict)
    #: node -> weight of the first decision, for a dry run
    weights: Mapping[str, float] = field(default_factory=dict)

    def decided(self, decision: Decision, with_weights: bool = False) -> None:
        """Count a decision; the attempts that follow are those of it."""
        self.decision_count += 1
        if with_weights and self.decision_count == 1:
            self.weights = decision.weights()

    def chose(self, decision: Decision, node: str | None) -> None:
        """Add the decision and the node that it has chosen, if any; its counts are computed now, while the rows are
        unchanged."""
        if len(self.decisions) < DECISIONS_MAX:
            self.decisions.append(decision.counts(node))

    def refused_by_judge(self, instance: str, view: HostView, reason: Reason) -> None:
        """Add a host that one of Nova's own filters refused."""
        self._tried(Attempt(instance, view.node, view.host, reason.code, reason.detail, *view.version))

    @property
    def names_holders(self) -> bool:
        """Whether the next attempt may still record who held the room of its host."""
        return len(self.attempts) < ATTEMPTS_WITH_HOLDERS_MAX

    def claim_went(self, claim: OpenClaim, outcome: str, held: Mapping[str, Leaf] = NOBODY) -> None:
        """Add a claim that was written or that failed; ``held``: who had the room, see ``Attempt``."""
        intent = claim.intent
        detail = _bounded(claim.reason.detail) if claim.reason is not None else {}
        if claim.write_detail:
            detail["text"] = claim.write_detail
        self._tried(
            Attempt(
                instance=intent.consumer,
                node=intent.node,
                host=intent.host,
                outcome=outcome,
                detail=detail,
                epoch=claim.seen.epoch,
                sequence=claim.seen.sequence,
                verdict_ms=_milliseconds(claim.began_s if intent.by_agent else None, claim.judged_s),
                write_ms=_milliseconds(claim.writing_s, claim.answered_s),
                claim_id=claim.claim_id,
                held=held,
            )
        )

    def _tried(self, attempt: Attempt) -> None:
        self.attempt_count += 1
        if len(self.attempts) < ATTEMPTS_MAX:
            self.attempts.append(replace(attempt, after_decisions=self.decision_count))

    def record(
        self,
        request: Request,
        choices: tuple[tuple[Choice, ...], ...],
        total_s: float,
        code: FailureCode | None = None,
        text: str = "",
    ) -> DecisionRecord:
        """The decision record of a request that ends."""
        timings = {
            "total": round(1000 * total_s, 3),
            "decisions": float(self.decision_count),
            "attempts": float(self.attempt_count),
            **{phase.value: round(1000 * phase_s, 3) for phase, phase_s in self.phases_s.items()},
        }
        return DecisionRecord(
            request_id=request.request_id,
            asked=asked_of(request),
            decisions=tuple(self.decisions),
            attempts=tuple(self.attempts),
            answer=tuple(tuple(choice.host for choice in inner) for inner in choices),
            failure="" if code is None else code.value,
            text=text,
            timings_ms=timings,
            local_request_id=request.local_request_id,
            weights=self.weights,
        )


def _bounded(detail: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """The detail; the beginning of its text if it is too long."""
    text = str(dict(detail))
    return dict(detail) if len(text) <= DETAIL_MAX_CHARS else {"text": text[:DETAIL_MAX_CHARS]}


def outcome_of(claim: OpenClaim, ending: ClaimState) -> str:
    """The most specific reason for the end of a claim."""
    if ending in (ClaimState.REFUSED, ClaimState.DELETED) and claim.reason is not None:
        return claim.reason.code
    if ending == ClaimState.NOT_WRITTEN and claim.write_code is not None:
        return claim.write_code.value
    return ending.value


def _milliseconds(from_s: float | None, until_s: float | None) -> float | None:
    if from_s is None or until_s is None:
        return None
    return round(1000 * (until_s - from_s), 3)


class RequestPhase(StrEnum):
    """The phases of a request."""

    PLACING = "placing"
    RECHECKING = "rechecking"
    CHECKING = "checking"
    YIELDING = "yielding"
    FAILING = "failing"


class InstanceState(StrEnum):
    """The states of one instance of a request."""

    OPEN = "open"  # to be decided
    WAITING = "waiting"  # for a verdict on another claim, or for other events to be handled
    ASKING = "asking"  # Placement is asked for candidates of one host
    CLAIMING = "claiming"  # the agent judges its claim, or the claim is being written
    WRITTEN = "written"


@dataclass(slots=True)
class InstancePlacement:
    """One instance of a request: ``choice`` is set once a host was chosen for it."""

    index: int
    consumer: str
    state: InstanceState = InstanceState.OPEN
    choice: Choice | None = None
    claim: OpenClaim | None = None
    #: the host whose candidates Placement is asked for
    asked: str = ""
    ask_id: str = ""
    #: the hosts of the other instances when this one was decided, before Placement was asked
    asked_beside: tuple[str, ...] = ()
    #: hosts that refused this instance, and the last reason
    out: dict[str, Reason] = field(default_factory=dict)
    attempts: int = 0
    #: hosts in ``out`` whose agent was late; they are tried once more, without a limit, if no other host is left
    late: list[str] = field(default_factory=list)
    patient: bool = False
    #: it has waited longer for the late agent, for the sake of its soft group
    waited: bool = False
    #: hosts in ``out`` for which Placement did not answer in time; a member of a soft group may try them once more
    unanswered: list[str] = field(default_factory=list)
    #: why its last write was not sent, or not served; None once a later claim has ended otherwise
    not_tried: tuple[FailureCode, str] | None = None
    #: the hosts that were tried once more
    tried_again: set[str] = field(default_factory=set)
    #: hosts whose agents said that they have more members of its soft group than the decision saw
    told: set[str] = field(default_factory=set)
    #: how many hosts were judged although a filter over columns had rejected them
    last_words: int = 0
    #: all members of its soft group that were known when its host was chosen were claims there, not built
    beside_claims: bool = False

    def insists_on(self, node: str) -> bool:
        """Whether the agent of this host is to ignore a soft policy."""
        return node in self.told or len(self.told) >= SOFT_REFUSALS_MAX

    def reopen(self) -> None:
        """Mark the instance for another decision, because it has lost its host."""
        self.state, self.choice, self.claim = InstanceState.OPEN, None, None

    def forgive_attempts(self) -> None:
        """Begin to count its attempts again: the last one has found a host, and others came first."""
        self.attempts = min(self.attempts, 1)

    def forget_late(self) -> None:
        """Include the hosts whose agents were late again, as if the instance had not been tried on them."""
        self._include_late()
        self.patient = False

    def forget_tries(self) -> None:
        """Include all hosts again, as if the instance had not been tried on any."""
        self.forget_late()
        self.out.clear()
        self.unanswered.clear()
        self.tried_again.clear()

    def recall_late(self) -> bool:
        """Include the hosts whose agents were late, and wait for them from now on; False if there are none."""
        recalled = bool(self.late)
        self._include_late()
        self.patient = self.patient or recalled
        return recalled

    def leave_out(self, nodes: frozenset[str], reason: Reason) -> None:
        """Leave out these hosts, also if no other one is left.  One that has refused the instance keeps its reason."""
        self.late = [node for node in self.late if node not in nodes]
        self.unanswered = [node for node in self.unanswered if node not in nodes]
        for node in nodes:
            self.out.setdefault(node, reason)

    def leave_unanswered(self, node: str) -> None:
        """Leave out a host for which Placement did not answer in time."""
        if node not in self.tried_again:
            self.unanswered.append(node)

    def left_for_others(self) -> frozenset[str]:
        """The hosts in ``out`` that have not refused the instance: their agents, or Placement, were late."""
        return frozenset(self.unanswered if self.waited else (*self.unanswered, *self.late))

    def include_left(self) -> None:
        """Include these hosts again."""
        self.tried_again.update(self.unanswered)
        for node in self.unanswered:
            self.out.pop(node, None)
        self.unanswered.clear()
        if not self.waited:
            self._include_late()

    def _include_late(self) -> None:
        for node in self.late:
            self.out.pop(node, None)
        self.late.clear()


@dataclass(slots=True)
class AlternatesSearch:
    """Alternates for one set of chosen nodes: those found so far, and the open questions to Placement.

    ``chosen`` is empty if they are to be searched again for the same ones."""

    chosen: frozenset[str]
    found: dict[str, list[Choice]] = field(default_factory=dict)  # cell -> best first
    waiting: dict[str, str] = field(default_factory=dict)  # ask id -> node
    asked: list[str] = field(default_factory=list)  # nodes, the best of a cell first

    def add(self, choice: Choice) -> None:
        """Add an alternate whose candidates Placement named; answers come in any order."""
        found = self.found.setdefault(choice.cell, [])
        found.append(choice)
        found.sort(key=lambda one: self.asked.index(one.node))

    def by_node(self) -> dict[str, Choice]:
        """Those found so far."""
        return {choice.node: choice for found in self.found.values() for choice in found}


@dataclass(slots=True)
class CheckState:
    """The state of the two checks of a request that is written: first of its server group (``group_check.py``), then of
    its spreading (``spread_check.py``).  ``ask_id`` and ``checks_made`` are of the one under way."""

    ask_id: str = ""
    #: whether the check of the group has passed, or is not needed any more
    passed: bool = False
    #: whether members that the table has in the right place are looked up as well
    all_asked: bool = False
    checks_made: int = 0
    yields: int = 0
    #: those of them because of the group
    group_yields: int = 0
    #: how often the request has yielded, without being in ``yields``, to others that came first or are undecided
    deferrals: int = 0
    #: the pause after the yield that is under way
    pause_s: float = 0.0
    #: whether no other member was known when a host was chosen
    first: bool = False
    #: the hosts of the members to which the request has yielded
    hosts: frozenset[str] = frozenset()
    #: whether the check of spreading has passed; all that follows is of this check
    spread_passed: bool = False
    #: whether the places of the servers have been asked for, and when for the last time
    looked_up: bool = False
    asked_s: float = 0.0
    #: when what the request knows of them was asked for, by itself or by another one
    found_s: float = -inf
    #: how often it has waited until one of these is possible
    label_reads_awaited: int = 0
    #: the nodes of the servers that the last question of spreading left out, because they were built
    built: Mapping[str, str] = field(default_factory=dict)
    #: the providers of the servers that were looked up; none of those that Nova has deleted
    placed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: the nodes on which the table had them, and Placement did not
    vacated: frozenset[tuple[str, str]] = frozenset()
    #: those whose requests had no answer
    unsettled: frozenset[str] = frozenset()
    #: those for which the request has waited in vain: they count as senior from then on
    stayed: frozenset[str] = frozenset()
    #: the servers that were built, or had an answer, at the last check
    answered: frozenset[str] = frozenset()
    #: servers that hold several nodes, as after an evacuation -> those where they are not certain to stay
    beside: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(slots=True)
class RequestState:
    """One request under way."""

    key: int
    request: Request
    #: the object that arrived; ``request`` also contains what was read from its texts
    arrived: Request
    arrived_s: float
    deadline_s: float
    instances: list[InstancePlacement]
    phase: RequestPhase = RequestPhase.PLACING
    #: since when
    entered_s: float = 0.0
    rechecked: bool = False
    #: the only hosts to try, after Placement has named the hosts with candidates
    fitting: frozenset[str] | None = None
    journal: Journal = field(default_factory=Journal)
    #: results of the first instance's decision for the others (Nova's once-per-request filters)
    narrowing: OncePerRequestFilters = field(default_factory=OncePerRequestFilters)
    alternates: AlternatesSearch | None = None
    check: CheckState = field(default_factory=CheckState)
    failure: tuple[FailureCode, str] | None = None
    #: since when all answers to its writes say that Placement cannot write the rest in time
    doubted_s: float | None = None
    #: ids of what is assumed in the table until the request ends, because nothing is claimed for it
    assumed: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, key: int, request: Request, now: float, deadline_s: float) -> RequestState:
        """The state of a request that arrives: all instances are open."""
        instances = [InstancePlacement(i, consumer) for i, consumer in enumerate(request.instance_uuids)]
        return cls(key, request, request, now, deadline_s, instances, entered_s=now)

    def enter(self, phase: RequestPhase, now: float) -> None:
        """Go on to a phase; the journal gets the time of the last one."""
        self.journal.phases_s[self.phase] = self.journal.phases_s.get(self.phase, 0.0) + now - self.entered_s
        self.phase, self.entered_s = phase, now

    @property
    def claims_hosts(self) -> bool:
        """Whether hosts are claimed for the request: not for a rebuild, and not for legacy callers."""
        return self.request.claim and bool(self.request.forms)

    def leaves_out(self, instance: InstancePlacement, node: str) -> bool:
        """Whether a host must not be tried for this instance."""
        return node in instance.out or (self.fitting is not None and node not in self.fitting)

    def beside(self, instance: InstancePlacement) -> tuple[str, ...]:
        """The hosts of the other instances, in their order."""
        return tuple(one.choice.host for one in self.instances if one.choice is not None and one is not instance)

    def bound_to(self, instance: InstancePlacement) -> frozenset[str]:
        """The nodes of the other instances, if this one must be there for no other reason.

        The policy is affinity, the conductor has not named their hosts, and the request has not yielded to others."""
        group, hosts = self.request.group, frozenset(self.beside(instance))
        if group is None or group.policy != GroupPolicy.AFFINITY or self.check.hosts or hosts <= group.hosts:
            return frozenset()
        return frozenset(one.choice.node for one in self.instances if one.choice is not None and one is not instance)

    def claims(self) -> Iterator[OpenClaim]:
        """The claims of the request that have not ended."""
        return (instance.claim for instance in self.instances if instance.claim is not None)

    def next_open(self, unwritten_max: int) -> InstancePlacement | None:
        """The instance to decide now.

        None while one waits for its candidates or for the end of a claim, and while ``unwritten_max`` claims are not
        written yet.
        """
        unwritten = 0
        for instance in self.instances:
            if instance.state in (InstanceState.ASKING, InstanceState.WAITING):
                return None
            if instance.state == InstanceState.OPEN:
                return instance
            unwritten += instance.state == InstanceState.CLAIMING
            if unwritten >= unwritten_max:
                return None
        return None

    def wake(self) -> None:
        """Mark the instances that wait for verdicts or for other events as open again."""
        for instance in self.instances:
            if instance.state == InstanceState.WAITING:
                instance.state = InstanceState.OPEN

    def all_in(self, *states: InstanceState) -> bool:
        """Whether every instance is in one of ``states``."""
        return all(instance.state in states for instance in self.instances)

    def count_in(self, state: InstanceState) -> int:
        """The number of instances in this state."""
        return sum(instance.state == state for instance in self.instances)

    @property
    def prefers_hosts(self) -> bool:
        """Whether only the hosts of other members are tried, because the request has yielded, but the group is soft."""
        group = self.request.group
        return bool(self.check.hosts) and group is not None and group.policy == GroupPolicy.SOFT_AFFINITY

    def forget_soft_hosts(self) -> bool:
        """Ignore a soft policy, because no host passes with it; False if it was ignored already.

        It is not checked again: the request would yield in vain."""
        if not self.prefers_hosts:
            return False
        self.check.hosts, self.check.passed = frozenset(), True
        return True

    def forget_unsettled(self) -> bool:
        """Count on servers whose requests had no answer, because no host passes without them; False if they are counted
        on already."""
        if not self.check.unsettled:
            return False
        self.check.unsettled = frozenset()
        return True

    def choices(self) -> Iterator[Choice]:
        """The hosts that were chosen so far."""
        return (instance.choice for instance in self.instances if instance.choice is not None)

    def chosen(self) -> frozenset[str]:
        """The nodes of the hosts that were chosen so far."""
        return frozenset(choice.node for choice in self.choices())

    def request_for_alternates(self) -> Request:
        """The request with which alternates are decided.

        As in Nova, a single instance does not bind its group to its chosen host, because it moves to an alternate
        only if its build fails on that host.  Several instances bind each other.
        """
        return self.request_for(self.instances[0] if len(self.instances) == 1 else None)

    def request_for(self, instance: InstancePlacement | None) -> Request:
        """The request for one instance: its group includes the other instances, and the hosts to which the
        request has yielded.  With the policy affinity, instances of one request stay together."""
        group = self.request.group
        others = [s for s in self.instances if s is not instance and s.choice is not None]
        if group is None or not (others or self.check.hosts or self.check.placed):
            return self.request
        chosen = frozenset(s.choice.host for s in others if s.choice is not None)
        hosts = (self.check.hosts or group.hosts) | chosen
        members = group.members | {s.consumer for s in others if s.consumer}
        policy = GroupPolicy.AFFINITY.value if self.check.hosts else group.policy
        if policy == GroupPolicy.AFFINITY and chosen and not chosen <= group.hosts:
            hosts = chosen
        group = replace(group, policy=policy, hosts=hosts, members=members)
        check = self.check
        return replace(
            self.request, group=group, placed=check.placed, vacated=check.vacated, beside=check.beside,
            unsettled=check.unsettled,
        )  # fmt: skip
