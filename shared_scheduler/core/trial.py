# SPDX-License-Identifier: Apache-2.0
"""Places servers one after the other on a copy of the host table, to find how many fit and what stops the next one.

Each server takes the path of a request that claims (``planner.py``): the same filters, weighers and judge, in the same
order.  It is then assumed in the copy with its allocations, so that the next one counts it.  Nothing is claimed, and no
agent is asked.

=========  =====================================  =========  =======================================================
state      ``step`` returns                       next       action
=========  =====================================  =========  =======================================================
DECIDING   ``Selected``                           DECIDING   assume the server; the next one is decided
DECIDING   ``Pause``                              DECIDING   call again: many hosts were judged
DECIDING   ``CandidatesWanted``                   ASKING     ask Placement for the host's candidates, then ``answered``
ASKING     ``answered``: a candidate is approved  DECIDING   assume the server; the next one is decided
ASKING     ``answered``: none                     DECIDING   the host is excluded; the server is decided again
DECIDING   ``Refusal``                            (ended)    no host for this server; ``stopped`` has the reasons
=========  =====================================  =========  =======================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared_scheduler.core.events import Candidate
from shared_scheduler.core.planner import HostJudge, Plan, Planner, Selected
from shared_scheduler.core.request_state import InstancePlacement, InstanceState, Journal, RequestState
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.explain import Explanation, explain
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.record import DecisionCounts
from shared_scheduler.decision.request import Request
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import fits, used_of
from shared_scheduler.protocol.messages import Reason
from shared_scheduler.table.host_table import HostTable

#: Hosts that the judge refuses in one step.
JUDGED_PER_STEP_MAX = 16


class FitUnknownError(Exception):
    """The copy cannot show whether the next server fits; the text says why."""


@dataclass(frozen=True, slots=True)
class NoClaims:
    """No claim is in flight, and ``nodes`` are in quarantine."""

    nodes: frozenset[str] = frozenset()
    only_late: frozenset[str] = frozenset()
    crowded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Stop:
    """What stops a server: the counts of its last decision, the hosts that the judge refused, and the hosts of each
    reason.  ``counts`` is None if the decision failed."""

    counts: DecisionCounts | None
    refused: Mapping[str, Reason]
    hosts: Explanation


class Trial:
    """Decides the servers of ``request.instance_uuids`` in turn; do not step when all have a host."""

    def __init__(
        self,
        table: HostTable,
        decider: Decider,
        judge: HostJudge,
        request: Request,
        last_words_max: int,
        quarantined: frozenset[str] = frozenset(),
    ) -> None:
        """``table`` is changed.

        :raises DecisionError: when the request is malformed
        """
        nothing = NoClaims(quarantined)
        self._table = table
        self._decider = decider
        self._planner = Planner(table, decider, judge, nothing, nothing, last_words_max, JUDGED_PER_STEP_MAX)
        self._state = RequestState.begin(0, request, 0.0, float("inf"))
        self._count = 0
        self._assumed: list[str] = []
        self._elsewhere: set[str] = set()  # providers of other trees that have given to servers
        malformed = self._planner.read_texts(self._state)
        if malformed is not None:
            raise DecisionError(malformed[1])
        self._state.instances = []
        self._instance = self._begin()

    @property
    def request(self) -> Request:
        """The request, with what it asks of spreading."""
        return self._state.request

    def step(self) -> Plan:
        """Decide the present server, and assume it if it has a host."""
        plan = self._planner.plan(self._state, self._instance)
        if isinstance(plan, Selected):
            self._place(plan)
        return plan

    def sharing_with(self, node: str) -> tuple[Provider, ...]:
        """See ``Planner``."""
        return self._planner.sharing_with(node)

    def answered(self, node: str, candidates: Sequence[Candidate]) -> Selected | Reason:
        """Judge the host with the candidates that Placement named, as far as they still fit.

        :raises FitUnknownError: when a provider of another tree gives to several servers
        """
        left = [each for each in candidates if self._has_room(node, each)]
        found = self._planner.judge(self._state, self._instance, node, left)
        if isinstance(found, Selected):
            self._place(found)
        else:
            self._instance.out[node] = found
        return found

    def undo(self) -> None:
        """Forget all servers that were placed: the table is as before."""
        for claim_id in self._assumed:
            self._table.forget(claim_id)
        self._assumed.clear()

    def stopped(self, each_max: int) -> Stop:
        """Why the present server has no host, with up to ``each_max`` hosts of each reason."""
        state, instance = self._state, self._instance
        decisions = state.journal.decisions
        found = explain(
            self._decider, state.request_for(instance), instance.index, frozenset(instance.out), each_max=each_max
        )
        return Stop(decisions[-1] if decisions else None, dict(instance.out), found)

    def _begin(self) -> InstancePlacement:
        """The next server.  Only servers of one group need to know the others."""
        state = self._state
        instance = InstancePlacement(self._count, state.request.instance_uuids[self._count])
        self._count += 1
        state.instances = [*(state.instances if state.request.group else ()), instance]
        state.journal = Journal()
        return instance

    def _place(self, found: Selected) -> None:
        state, instance, choice = self._state, self._instance, found.choice
        allocations = {} if choice.candidate is None else choice.candidate.allocations
        group = self._planner.claim_group(state, instance, choice.node)
        name = "" if group is None else group.uuid
        usage, claim_id = state.request.usage, f"trial-{instance.index}"
        self._table.assume(choice.node, claim_id, instance.consumer, allocations, usage, found.take, name)
        self._elsewhere |= {one for one in allocations if not self._table.owns(choice.node, [one])}
        self._assumed.append(claim_id)
        instance.choice, instance.state = choice, InstanceState.WRITTEN
        if self._count < len(state.request.instance_uuids):
            self._instance = self._begin()

    def _has_room(self, node: str, candidate: Candidate) -> bool:
        """Whether a candidate fits beside the servers of the trial, which Placement does not know."""
        view = self._table.view(node)
        for provider, amounts in candidate.allocations.items():
            known = view.providers.get(provider)
            if known is None and provider in self._elsewhere:
                text = f"the usage of provider {provider}, which shares with several hosts, is known to Placement only"
                raise FitUnknownError(text)
            own = {} if known is None else known.inventories  # of others, Placement has answered that they fit
            for rc, inventory in own.items():
                if rc in amounts and fits(inventory, used_of(view.used, provider, rc), amounts[rc]) is not None:
                    return False
        return True
