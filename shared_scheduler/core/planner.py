# SPDX-License-Identifier: Apache-2.0
"""Selects one host for one instance: the decision, and then Nova's own filter objects on the best host.

The decider orders the hosts that pass.  The planner offers them in this order to the judge until the judge approves
one.  If the request is not root-only, a host needs allocation candidates before it can be judged; then the planner
returns ``CandidatesWanted``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import Any, Protocol

from shared_scheduler.core.claim_state import ClaimState, OpenClaim
from shared_scheduler.core.effects import Choice, FailureCode
from shared_scheduler.core.events import Candidate, WriteCode
from shared_scheduler.core.held_room import NOBODY, held_room
from shared_scheduler.core.known_groups import claim_group, with_known_members
from shared_scheduler.core.request_state import NO_VERDICT, InstancePlacement, InstanceState, RequestState
from shared_scheduler.core.verdict_limit import FIRST_S
from shared_scheduler.decision.alternate_count import with_alternates
from shared_scheduler.decision.errors import DecisionError, ImageUnreadError
from shared_scheduler.decision.host_restrictions import skips_filters
from shared_scheduler.decision.pipeline import SOFT, Decider, Decision
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.spread_request import with_spreading
from shared_scheduler.decision.spreading import SPREAD
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.protocol.limits import AMOUNT_MAX
from shared_scheduler.protocol.messages import ClaimGroup, Consumer, Leaf, Reason, RefusalCode
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Exclusion


@dataclass(frozen=True, slots=True)
class Approval:
    """The host passes with ``candidate``.  ``topology`` is sent to the agent in the claim; ``take`` is what the
    claim takes of NUMA cells and PCI pools, for the overlay of the row."""

    candidate: Candidate | None
    topology: str = ""
    limits: Any = None
    take: TopologyUsage | None = None


class HostJudge(Protocol):
    """Verifies the selected host before it is claimed; must be quick and do no I/O.

    In the service this is ``shared_scheduler.nova.judge`` with Nova's own filter classes, in the simulator and the
    demo ``sim.topology.SimJudge``.
    """

    def verify(
        self,
        request: Request,
        index: int,
        view: Any,  # table.host_view.HostView of the row, own outstanding claims included
        candidates: Sequence[Candidate],
    ) -> Approval | Reason:
        """Approve with the first candidate that passes all filters, or return the filter that refused."""


class ClaimsInFlight(Protocol):
    """``agent_casts.AgentCasts``, or nothing in flight (``trial.py``)."""

    @property
    def crowded(self) -> frozenset[str]:
        """The nodes that have the maximum number of claims in flight."""


class Quarantined(Protocol):
    """``quarantine.Quarantine``, or a copy of its nodes."""

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that are selected last."""

    @property
    def only_late(self) -> frozenset[str]:
        """Those of them whose agents may answer soon."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected host with its candidate (None if nothing is claimed)."""

    choice: Choice
    topology: str
    take: TopologyUsage | None


@dataclass(frozen=True, slots=True)
class CandidatesWanted:
    """The best host, for which Placement must be asked for candidates first."""

    node: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """No host is left.  ``stale_mirror``: some hosts were rejected because of mirrored data of Placement, or are
    stale.  ``without_candidates``: Placement has no candidate on any host.  ``spread``: hosts were rejected because of
    their domains."""

    text: str
    stale_mirror: bool
    bad_request: bool = False
    without_candidates: bool = False
    spread: bool = False

    @property
    def code(self) -> FailureCode:
        """The code with which the request fails."""
        if self.bad_request:
            return FailureCode.BAD_REQUEST
        return FailureCode.NO_CANDIDATES if self.without_candidates else FailureCode.NO_VALID_HOST


@dataclass(frozen=True, slots=True)
class Crowded:
    """Hosts pass, but each has the maximum number of claims in flight."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The judge refused many hosts, and more are left: other events are handled first."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The hosts that servers which must be together may leave theirs for.  ``fits``: one has room for all of them;
    ``small``: those without, according to the table, that would be selected before it."""

    small: frozenset[str]
    fits: bool


class OtherHost(Enum):
    """Whether another host passes, and whether it has as many members of the soft group of the request, if any."""

    NONE = "none"
    OF_OTHER_MEMBERS = "of other members"
    ALIKE = "alike"


Plan = Selected | CandidatesWanted | Refusal | Crowded | Pause

#: how long a member of a soft group waits for a late agent if the next host has more or fewer members; after this
#: time agents are waited for that have never answered a claim (``verdict_limit.py``)
MEMBER_WAITS_S = FIRST_S
#: the reason for a host without a candidate in Placement
NO_CANDIDATE = "no_candidate"
#: the host has room for some of the servers that must be together
TOO_SMALL = "no_room_for_all"
#: the reason for a host that is not considered any more since Placement was asked
CLOSED = "closed"
#: of what closes a host meanwhile, what does not matter: its agent, whose state is awaited, judges the claim, and the
#: decision has seen whether the request names a disabled cell
STILL_CLAIMED = frozenset({None, Exclusion.STALE, Exclusion.CELL_DISABLED})
#: refusals that may not last: other claims may end, and rows and agents may be behind
NOT_FOR_GOOD = frozenset(
    {
        RefusalCode.NO_CAPACITY,
        RefusalCode.NO_INVENTORY,
        RefusalCode.TOPOLOGY,
        RefusalCode.EXPIRED,
        WriteCode.NO_CAPACITY,
        WriteCode.PROVIDER_CONFLICT,
        ClaimState.RELEASED,
        TOO_SMALL,
        NO_VERDICT,
    }
)


def _node_of(plan: Plan) -> str | None:
    """The node that a plan has chosen, if any."""
    if isinstance(plan, Selected):
        return plan.choice.node
    return plan.node if isinstance(plan, CandidatesWanted) else None


def _has_soft_group(request: Request) -> bool:
    return request.group is not None and request.group.policy in SOFT


def candidates_on(decision: Decision, node: str) -> tuple[Candidate, ...]:
    """The candidates of a root-only request on this host, one for each form that fits the root provider."""
    return tuple(Candidate({node: form.resources}, {"": (node,)}) for form in decision.forms(node) or ())


class Planner:
    """Selects hosts for requests.  It keeps no state of its choices."""

    def __init__(
        self,
        table: HostTable,
        decider: Decider,
        judge: HostJudge,
        claims: ClaimsInFlight,
        quarantine: Quarantined,
        last_words_max: int = 0,
        judged_per_step_max: int = 64,
    ) -> None:
        """``_max``: see ``core.scheduler_settings``."""
        self._table = table
        self._decider = decider
        self._judge = judge
        self._claims = claims
        self._quarantine = quarantine
        self._last_words_max = last_words_max
        self._judged_max = judged_per_step_max

    def read_texts(self, state: RequestState) -> tuple[FailureCode, str] | None:
        """Read what the request asks of spreading and alternates; returns why it is malformed or unread."""
        try:
            decider = self._decider
            state.request = with_alternates(with_spreading(state.request, decider.spread_keys, decider.spread_images))
        except ImageUnreadError as error:
            return FailureCode.IMAGE_UNREAD, str(error)
        except DecisionError as error:
            return FailureCode.BAD_REQUEST, str(error)
        return None

    # -- one instance

    def plan(self, state: RequestState, instance: InstancePlacement) -> Plan:
        """Select the host for one instance.  Hosts that the judge refuses are added to ``instance.out``.

        A request that claims nothing is decided without a ``Pause``, because it ends in the step in which it began."""
        request = self._request_for(state, instance)
        try:
            decision = self._decide(state, request, instance)
        except DecisionError as error:
            return Refusal(str(error), False, bad_request=True)
        state.journal.decided(decision, with_weights=request.dry_run)
        plan = self._choose(state, request, instance, decision)
        state.journal.chose(decision, _node_of(plan))
        return plan

    def _choose(self, state: RequestState, request: Request, instance: InstancePlacement, decision: Decision) -> Plan:
        for refused, node in enumerate(self._tries(state, request, instance, decision)):
            if refused == self._judged_max and state.claims_hosts:
                return Pause()
            if request.claim and request.forms and decision.asks_placement(node):
                return CandidatesWanted(node)
            found = self._verify(state, request, instance, node, candidates_on(decision, node))
            if isinstance(found, Selected):
                return found
            instance.out[node] = found
        crowded = any(not state.leaves_out(instance, node) for node in decision.nodes())
        return Crowded() if crowded else self._refusal(decision, instance)

    def other_host(self, state: RequestState, instance: InstancePlacement) -> OtherHost:
        """The best host besides the chosen one of this instance that passes the filters over columns.

        It is decided without the chosen one, because that also changes the weights of the others."""
        assert instance.choice is not None
        request, chosen = self._request_for(state, instance), instance.choice.node
        other = self._best(state, request, instance, frozenset(instance.out) | {chosen})
        if other is None:
            return OtherHost.NONE
        if chosen not in self._table:  # it was removed from the cloud
            return OtherHost.ALIKE
        alike = self._soft_members(request, instance, other) == self._soft_members(request, instance, chosen)
        return OtherHost.ALIKE if alike else OtherHost.OF_OTHER_MEMBERS

    def elsewhere(self, state: RequestState, instance: InstancePlacement, nodes: frozenset[str]) -> Elsewhere:
        """Whether a host besides ``nodes`` that passes the filters over columns has room for all instances.

        One that has the maximum number of claims in flight has it as well: these may end, and it is waited for."""
        own = frozenset(one.consumer for one in state.instances)
        request, tried = with_known_members(self._table, state.request, own), frozenset(instance.out) | nodes
        decision = self._decided(state, request, instance, tried)
        if decision is None:
            return Elsewhere(frozenset(), False)
        crowded, small = self._omitted(state, decision), set[str]()
        for node in (node for node in decision.nodes() if not state.leaves_out(instance, node)):
            if node in crowded or self._takes_all(state, decision, node):
                return Elsewhere(frozenset(small), True)
            small.add(node)
        return Elsewhere(frozenset(small), False)

    def _takes_all(self, state: RequestState, decision: Decision, node: str) -> bool:
        """Whether a host has room for all instances, if the table can tell.

        It cannot if several forms fit, because some instances may take one of them, and others another one."""
        candidates, times = candidates_on(decision, node), len(state.instances)
        if decision.asks_placement(node) or len(candidates) != 1:
            return True
        return self._table.has_room(node, candidates[0].allocations, times)

    def include_better(self, state: RequestState, instance: InstancePlacement) -> None:
        """Include the hosts again that a member of a soft group has left out only because an agent or Placement was
        late, if one of them is the best and the best of the others has more or fewer members."""
        request, left = self._request_for(state, instance), instance.left_for_others()
        if not left or not _has_soft_group(request):
            return
        tried = frozenset(instance.out)
        best, other = (self._best(state, request, instance, out) for out in (tried - left, tried))
        if best is None or best not in left or other is None:
            return
        if self._soft_members(request, instance, best) != self._soft_members(request, instance, other):
            instance.include_left()

    def _best(
        self, state: RequestState, request: Request, instance: InstancePlacement, excluded: frozenset[str]
    ) -> str | None:
        decision = self._decided(state, request, instance, excluded)
        return None if decision is None else next(self._walk(state, request, decision, instance), None)

    def _decided(
        self, state: RequestState, request: Request, instance: InstancePlacement, excluded: frozenset[str]
    ) -> Decision | None:
        """The decision without these hosts; None if the request cannot be decided on any."""
        try:
            return self._decider.decide(request, instance.index, excluded, state.narrowing)
        except DecisionError:
            return None

    @contextmanager
    def unclaimed(self, state: RequestState) -> Iterator[tuple[FailureCode, str] | None]:
        """Select hosts for all instances of a request that claims nothing; yields the error if one has no host.

        Each instance is assumed in the table until the ``with`` ends, so that the next instance counts it."""
        try:
            yield self._plan_each(state)
        finally:
            self.forget(state)

    def assume(self, state: RequestState, instance: InstancePlacement, plan: Selected) -> None:
        """Select a host for an instance without a claim; the next instances count it until ``forget``."""
        instance.choice, instance.state = plan.choice, InstanceState.WRITTEN
        if state.request.is_rebuild:
            return
        claim_id = f"only-{state.key}-{instance.index}"
        state.assumed.append(claim_id)
        candidate = plan.choice.candidate
        allocations = {} if candidate is None or not state.request.dry_run else candidate.allocations
        consumer = instance.consumer or claim_id
        self._table.assume(plan.choice.node, claim_id, consumer, allocations, state.request.usage)

    def forget(self, state: RequestState) -> None:
        """Forget what was assumed for this request."""
        for claim_id in state.assumed:
            self._table.forget(claim_id)

    def _plan_each(self, state: RequestState) -> tuple[FailureCode, str] | None:
        for instance in state.instances:
            plan = self.plan(state, instance)
            if not isinstance(plan, Selected):
                if isinstance(plan, Refusal):
                    return plan.code, plan.text
                return FailureCode.NO_VALID_HOST, "candidates without resources"
            self.assume(state, instance, plan)
        return None

    def sharing_with(self, node: str) -> tuple[Provider, ...]:
        """The sharing providers of this node, which Placement omits if it is asked with ``in_tree``."""
        return self._table.sharing_with(node)

    def judge(
        self, state: RequestState, instance: InstancePlacement, node: str, candidates: Sequence[Candidate]
    ) -> Selected | Reason:
        """Let the judge verify one host with the candidates that Placement named."""
        if not candidates:
            return Reason(NO_CANDIDATE)
        if self._table.why_closed(node) not in STILL_CLAIMED:
            return Reason(CLOSED)
        return self._verify(state, self._request_for(state, instance), instance, node, candidates)

    def held_room(self, state: RequestState, claim: OpenClaim, outcome: str) -> Mapping[str, Leaf]:
        """Who holds the room of a node that has refused a claim, if the record of the request has a place for it."""
        return held_room(self._table, claim, outcome) if state.journal.names_holders else NOBODY

    def service_accepts(self, host: str) -> bool:
        """Whether the nova-compute service of a host is known to accept servers."""
        service = self._table.service(host)
        return service is not None and service.takes_servers

    def standing(self, request: Request, consumer: str) -> Consumer | None:
        """All allocations of a server that leaves a host, which the request excludes; None if they must be read."""
        return self._table.standing_on(request.ignore_hosts, consumer)

    def claim_group(self, state: RequestState, instance: InstancePlacement, node: str) -> ClaimGroup | None:
        """The server group in the claim of an instance, for the agent of the node."""
        group, asked = self._request_for(state, instance).group, state.request.group
        if group is None or asked is None:
            return None
        most = AMOUNT_MAX if skips_filters(state.request) else asked.max_server_per_host
        group = replace(group, policy=asked.policy, max_server_per_host=most)
        return claim_group(self._table, group, instance.consumer, node, instance.insists_on(node))

    def _request_for(self, state: RequestState, instance: InstancePlacement) -> Request:
        # after a yield the hosts come from Placement, and the table may be older; other instances have set the host
        first = not state.check.hosts and not any(one.choice for one in state.instances if one is not instance)
        own = {one.consumer for one in state.instances if one is instance or one.attempts}
        return with_known_members(self._table, state.request_for(instance), frozenset(own), add_hosts=first)

    def _verify(
        self,
        state: RequestState,
        request: Request,
        instance: InstancePlacement,
        node: str,
        candidates: Sequence[Candidate],
    ) -> Selected | Reason:
        view = self._table.view(node)
        approval = self._judge.verify(request, instance.index, view, candidates)
        if isinstance(approval, Reason):
            state.journal.refused_by_judge(instance.consumer, view, approval)
            return approval
        if approval.candidate is None and state.claims_hosts:  # columns and row disagree
            return Reason(NO_CANDIDATE)
        choice = Choice(node, view.host, view.nodename, view.cell, approval.candidate, approval.limits)
        return Selected(choice, approval.topology, approval.take)

    def _decide(
        self, state: RequestState, request: Request, instance: InstancePlacement, natives: bool = True
    ) -> Decision:
        return self._decider.decide(request, instance.index, frozenset(instance.out), state.narrowing, natives)

    def _tries(
        self, state: RequestState, request: Request, instance: InstancePlacement, decision: Decision
    ) -> Iterator[str]:
        """The hosts to judge.

        If a soft group has members in the table, the request is decided again after each host that was refused: the
        next host may have been a near tie of that one only, and may have more or fewer members than the best of the
        others.
        """
        again = state.claims_hosts and bool(self._table.members_at(self._soft_others(request, instance)))
        hosts = self._hosts(state, request, instance, decision)
        while (node := next(hosts, None)) is not None:
            yield node
            if again:
                hosts = self._hosts(state, request, instance, self._decide(state, request, instance))

    def _hosts(
        self, state: RequestState, request: Request, instance: InstancePlacement, decision: Decision
    ) -> Iterator[str]:
        """The hosts that pass.  Then a few that our counterparts of Nova's filters rejected, because Nova's own
        filters decide before an instance has no host."""
        yield from self._walk(state, request, decision, instance)
        if not decision.filtered or instance.last_words >= self._last_words_max:
            return
        for node in self._walk(state, request, self._decide(state, request, instance, natives=False), instance):
            if instance.last_words >= self._last_words_max:
                return
            instance.last_words += 1
            yield node

    def _walk(
        self, state: RequestState, request: Request, decision: Decision, instance: InstancePlacement
    ) -> Iterator[str]:
        """The hosts of a decision, best first.  Hosts with the maximum number of claims in flight are omitted.

        Quarantined hosts come last, because they may have refused only other requests.  A late agent may answer soon:
        its host is not passed over for one that has more or fewer members of a soft group."""
        omitted = self._omitted(state, decision)
        last = self._selected_last(request, decision, instance, omitted)
        quarantined = (node for node in self._ranked(request, decision, omitted) if node in last)
        yield from chain(self._ranked(request, decision, omitted | last), quarantined if last else ())

    def _selected_last(
        self, request: Request, decision: Decision, instance: InstancePlacement, omitted: frozenset[str]
    ) -> frozenset[str]:
        """The quarantined nodes, without those of late agents if the best of these and the best of the others have
        different numbers of members of a soft group, or there are no others."""
        last = self._quarantine.nodes
        late = self._quarantine.only_late if last and _has_soft_group(request) else frozenset[str]()
        if not late:
            return last
        best = next(self._ranked(request, decision, omitted | last - late), None)
        other = next(self._ranked(request, decision, omitted | last), None)
        members = {self._soft_members(request, instance, node) for node in (best, other) if node is not None}
        return last if other is not None and len(members) == 1 else last - late

    @staticmethod
    def _ranked(request: Request, decision: Decision, without: frozenset[str]) -> Iterator[str]:
        """The hosts of a decision except some.  For a member of a soft group, near ties are those of the best of these:
        those of another one may have more or fewer members."""
        if _has_soft_group(request):
            return decision.nodes(without)
        return (node for node in decision.nodes() if node not in without)

    def _omitted(self, state: RequestState, decision: Decision) -> frozenset[str]:
        crowded, fitting = self._claims.crowded if state.claims_hosts else frozenset[str](), state.fitting
        return crowded if fitting is None else crowded.union(node for node in decision.nodes() if node not in fitting)

    def _soft_members(self, request: Request, instance: InstancePlacement, node: str) -> int:
        """The number of other members on a node, if the group is soft."""
        return sum(self._table.is_member(node, uuid) for uuid in self._soft_others(request, instance))

    @staticmethod
    def _soft_others(request: Request, instance: InstancePlacement) -> frozenset[str]:
        """The other members, if the group is soft."""
        if request.group is None or not _has_soft_group(request):
            return frozenset()
        return request.group.members - {instance.consumer}

    @staticmethod
    def _refusal(decision: Decision, instance: InstancePlacement) -> Refusal:
        refused = any(reason.code in NOT_FOR_GOOD for reason in instance.out.values())
        asked = not decision.filtered and all(reason.code == NO_CANDIDATE for reason in instance.out.values())
        without = instance.index == 0 and (decision.without_candidates or (bool(instance.out) and asked))
        stale = decision.stale_mirror or refused
        return Refusal(decision.text(), stale, without_candidates=without, spread=SPREAD in decision.reasons)

    # -- alternates

    def choose_alternates(self, state: RequestState, cell: str) -> list[Choice] | None:
        """Approved hosts of ``cell`` besides the chosen ones, for a root-only request.

        None: one of the best hosts has a provider tree that only Placement can judge."""
        found: list[Choice] = []
        instance = state.instances[-1]
        request = self._request_for_alternates(state)
        try:
            decision = self._decide(state, request, instance)
        except DecisionError:
            return found  # the chosen hosts need no alternates
        for judged, node in enumerate(self._others(state, request, decision, cell)):
            if len(found) == request.num_alternates or judged - len(found) == self._judged_max:
                break
            if request.forms and decision.asks_placement(node):
                return None
            candidates = candidates_on(decision, node)
            verdict = self._verify(state, request, instance, node, candidates)
            if isinstance(verdict, Selected):
                found.append(verdict.choice)
        return found

    def _request_for_alternates(self, state: RequestState) -> Request:
        own = frozenset({state.instances[0].consumer})
        return with_known_members(self._table, state.request_for_alternates(), own)

    def alternate_nodes(self, state: RequestState, cell: str) -> list[str]:
        """The best hosts of ``cell`` besides the chosen ones; Placement must be asked for their candidates."""
        request = self._request_for_alternates(state)
        try:
            decision = self._decide(state, request, state.instances[-1])
        except DecisionError:
            return []
        nodes = self._others(state, request, decision, cell)
        return [node for _, node in zip(range(state.request.num_alternates), nodes, strict=False)]

    def _others(self, state: RequestState, request: Request, decision: Decision, cell: str) -> Iterator[str]:
        chosen = state.chosen()
        for node in self._walk(state, request, decision, state.instances[-1]):
            if node not in chosen and self._table.cell_of(node) == cell:
                yield node

    def schedulers_changed(self, cell: str, names: Sequence[str], own: str) -> None:
        """Compute the slices again for the live schedulers of a cell."""
        self._decider.set_schedulers(cell, tuple(names), own)
