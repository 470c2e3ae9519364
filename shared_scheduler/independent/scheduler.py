# SPDX-License-Identifier: Apache-2.0
"""The table, and what a caller asks of it.

``put`` and ``remove`` feed the table.  ``decide`` ranks the nodes for a request.  ``claim`` takes the best one that the
authority accepts, and counts it in the table at once.  The claim is *outstanding* until a later ``put`` of the node
shows the consumer, so that a state that was read before the claim does not hide it; ``release`` ends it as well.
``explain`` shows for each node why it does not fit.

A class does no I/O and starts no thread.  Only one thread may use it at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.explain import EACH_MAX, Explanation, explain
from shared_scheduler.decision.outcome import Decision
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Flavor, PlacementForm, Request
from shared_scheduler.independent.ask import Ask, AskError
from shared_scheduler.independent.authority import Authority, Claim, TableAlone
from shared_scheduler.independent.node import Node, NodeState, state_of
from shared_scheduler.independent.preference import Preference, PreferenceWeigher
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Usage
from shared_scheduler.table.host_table import HostTable

#: nodes that are tried for one consumer
TRIES_MAX = 100
#: nodes that a ranking lists by default
RANKED_MAX = 10

#: the only filter; its reasons get our name
IN_SERVICE = "ComputeFilter"
NAMES: Mapping[str, str] = {IN_SERVICE: "out_of_service", "ignore_hosts": "excluded", "force_hosts": "not_among_only"}
#: any check type: the filter applies to the nodes of ``only`` too
CHECKED = "all"
#: the reason of nodes whose authority refused
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Ranking:
    """``nodes``: uuids, best first, at most as many as were asked for.  ``fit`` nodes of ``known`` fit; ``reasons``
    counts the others by the first reason."""

    nodes: tuple[str, ...]
    fit: int
    known: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim for each consumer, in order, and the uuids of the alternates, best first.  Alternates are not claimed."""

    claims: tuple[Claim, ...]
    alternates: tuple[str, ...] = ()


class NoNodeError(Exception):
    """A consumer got no node; nothing is claimed.  ``refusals``: node -> what its authority said."""

    def __init__(self, consumer: str, ranking: Ranking, refusals: Mapping[str, str]) -> None:
        reasons = dict(ranking.reasons) | ({REFUSED: len(refusals)} if refusals else {})
        told = ", ".join(f"{code}: {count}" for code, count in sorted(reasons.items(), key=lambda one: -one[1]))
        super().__init__(f"no node of {ranking.known} for {consumer}: {told or 'the table is empty'}")
        self.consumer = consumer
        self.ranking = ranking
        self.refusals = refusals


class IndependentScheduler:
    """See the docstring of the module.

    Nodes of equal preference are tried in the order in which they were put, or at random with ``rng``; several
    schedulers with one inventory collide less at random.
    """

    def __init__(
        self,
        preference: Preference | None = None,
        authority: Authority | None = None,
        rng: Random | None = None,
    ) -> None:
        weigher = None if preference is None else PreferenceWeigher(preference)
        settings = DecisionSettings(
            enabled_filters=(IN_SERVICE,),
            weighers=() if weigher is None else (weigher.name,),
            shuffle_best_same_weighed_hosts=rng is not None,
            exact_hosts_max=0,
        )
        foreign = {} if weigher is None else {weigher.name: weigher}
        self._table = HostTable()
        self._decider = Decider(self._table, settings, rng=rng, foreign_weighers=foreign)
        self._authority: Authority = TableAlone() if authority is None else authority
        self._count = 0

    # -- the table

    def put(self, node: Node) -> None:
        """Add a node, or replace what is known of it.  Outstanding claims stay.

        Put the states of a node in the order in which they were read.

        :raises MalformedProviderError: when an inventory makes no sense
        """
        self._table.upsert(node.uuid, "", node.uuid, node.name or node.uuid)
        self._table.set_service(ServiceFacts(node.uuid, disabled=not node.in_service))
        self._table.load(node.uuid, node.leaves(), node.held())

    def remove(self, uuid: str) -> None:
        """Forget a node and its claims.  An unknown node is ignored."""
        self._table.remove(uuid)
        self._table.forget_service(uuid)

    def __len__(self) -> int:
        return len(self._table)

    def state(self, uuid: str) -> NodeState:
        """A node with outstanding claims counted.

        :raises UnknownNodeError: when the table has no such node
        """
        return state_of(self._table.view(uuid))

    # -- questions

    def decide(self, ask: Ask, ranked_max: int = RANKED_MAX) -> Ranking:
        """Rank the nodes for one consumer of the request.  Nothing is claimed."""
        return _ranking(self._decide(ask), ranked_max)

    def explain(self, ask: Ask, only: frozenset[str] = frozenset(), each_max: int = EACH_MAX) -> Explanation:
        """Why nodes do not fit, with the values that were compared, and the preference of those that do.

        ``only``: uuids; otherwise up to ``each_max`` nodes of each reason are listed."""
        found = explain(self._decider, self._request(ask), only=only, each_max=each_max)
        listed = tuple(replace(one, host=self._name(one.node), code=_named(one.code)) for one in found.listed)
        counts = {_named(code): count for code, count in found.counts.items() if count or not code}
        return replace(found, listed=listed, counts=counts)

    # -- claims

    def claim(self, ask: Ask) -> Claimed:
        """Claim a node for each consumer, then find the alternates.

        :raises AskError: when a consumer has a node already
        :raises NoNodeError: when a consumer gets none; all claims of the request are taken back before
        :raises Exception: when the authority raised it; likewise
        """
        known = [consumer for consumer in ask.consumers if self._table.members.slots(consumer)]
        if known:
            raise AskError(f"consumers: {known[0]} has a node already; release it first")
        done: list[Claim] = []
        with ExitStack() as failed:
            for consumer in ask.consumers:
                claim = self._claim_one(ask, consumer)
                failed.callback(self._take_back, claim)
                done.append(claim)
            failed.pop_all()
        return Claimed(tuple(done), self._alternates(ask, done[-1]))

    def release(self, consumer: str) -> bool:
        """End the claim of a consumer, and forget what the table shows of it; returns whether it was known.

        The authority is not told."""
        nodes = [self._table.node_at(slot) for slot in self._table.members.slots(consumer)]
        for node in nodes:
            for claim in self._table.outstanding(node):
                if claim.consumer == consumer:
                    self._table.forget(claim.claim_id)
            self._table.apply(node, {}, {consumer: None}, {}, epoch=0, sequence=0)
        return bool(nodes)

    def _claim_one(self, ask: Ask, consumer: str) -> Claim:
        refusals: dict[str, str] = {}
        while len(refusals) < TRIES_MAX:
            decision = self._decide(ask, refusals)
            node = next(decision.nodes(), None)
            if node is None:
                break
            claim = self._assume(ask, consumer, node)
            why = self._committed(claim)
            if not why:
                return claim
            refusals[node] = why
        raise NoNodeError(consumer, _ranking(self._decide(ask, refusals), 0), refusals)

    def _assume(self, ask: Ask, consumer: str, node: str) -> Claim:
        self._count += 1
        claim = Claim(str(self._count), consumer, node, self._name(node), dict(ask.resources))
        self._table.assume(node, claim.claim_id, consumer, {node: claim.resources}, Usage())
        return claim

    def _committed(self, claim: Claim) -> str:
        """Empty if the authority accepts; otherwise the claim is forgotten."""
        why = "the authority raised an error"
        try:
            why = self._authority.commit(claim)
        finally:
            if why:
                self._table.forget(claim.claim_id)
        if not why:
            self._table.confirm(claim.claim_id)
        return why

    def _take_back(self, claim: Claim) -> None:
        self._table.forget(claim.claim_id)
        self._authority.undo(claim)

    def _alternates(self, ask: Ask, claim: Claim) -> tuple[str, ...]:
        if not ask.alternates:
            return ()
        return _ranking(self._decide(ask, (claim.node,)), ask.alternates).nodes

    # -- the decision

    def _decide(self, ask: Ask, tried: Mapping[str, str] | tuple[str, ...] = ()) -> Decision:
        return self._decider.decide(self._request(ask), excluded=frozenset(tried))

    def _request(self, ask: Ask) -> Request:
        form = PlacementForm(
            resources=ask.resources, required=ask.required, forbidden=ask.forbidden, required_any=ask.any_of,
            member_of=ask.member_of,
        )  # fmt: skip
        return Request(
            request_id="", project_id="", user_id="", flavor=Flavor(), forms=(form,), usage=Usage(),
            instance_uuids=ask.consumers, ignore_hosts=ask.excluded, force_hosts=tuple(sorted(ask.only)),
            check_type=CHECKED, spec=ask,
        )  # fmt: skip

    def _name(self, node: str) -> str:
        return self._table.view(node).nodename


def _ranking(decision: Decision, ranked_max: int) -> Ranking:
    reasons = {_named(code): count for code, count in decision.reasons.items()}
    nodes = tuple(islice(decision.nodes(), ranked_max))
    return Ranking(nodes, decision.survivors, decision.hosts, reasons)


def _named(code: str) -> str:
    return NAMES.get(code, code)
