# SPDX-License-Identifier: Apache-2.0
"""One instance, one host: the decision, and Nova's own filter objects on the winner.

The decider orders the hosts that pass; this walks down that order until the judge approves one.  A
host of a request that is not flat needs allocation candidates before it can be judged: then the
answer is a ``Question``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared_scheduler.core.claims import Claims
from shared_scheduler.core.effects import Choice
from shared_scheduler.core.events import Candidate, WriteCode
from shared_scheduler.core.judge import HostJudge
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.work import NO_VERDICT, Seat, Work
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.pipeline import Decider, Decision
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Reason, RefusalCode
from shared_scheduler.state.providers import Provider
from shared_scheduler.state.table import HostTable
from shared_scheduler.state.topology import TopologyTake


@dataclass(frozen=True, slots=True)
class Selected:
    """This host, with this candidate (None where nothing is claimed)."""

    choice: Choice
    topology: str
    take: TopologyTake | None


@dataclass(frozen=True, slots=True)
class Question:
    """The best host; Placement must name its candidates first."""

    node: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """No host is left.  ``stale_mirror``: some fell to what the mirror of Placement says, or are stale."""

    text: str
    stale_mirror: bool
    bad_request: bool = False


@dataclass(frozen=True, slots=True)
class Crowded:
    """Hosts pass, and each has as many claims in flight as it may."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Many hosts were refused, and there are more: whoever else waits has his turn first."""


Plan = Selected | Question | Refusal | Crowded | Pause

#: refusals that another look may take back: other claims may end, rows and agents may be behind
NOT_FOR_GOOD = frozenset(
    {
        RefusalCode.NO_CAPACITY,
        RefusalCode.NO_INVENTORY,
        RefusalCode.TOPOLOGY,
        RefusalCode.EXPIRED,
        WriteCode.NO_CAPACITY,
        WriteCode.PROVIDER_CONFLICT,
        NO_VERDICT,
    }
)


def candidates_on(decision: Decision, node: str) -> tuple[Candidate, ...]:
    """What a flat request may take of this host: each form that fits, from the root provider."""
    return tuple(
        Candidate({node: form.resources}, {"": (node,)}) for form in decision.forms(node) or ()
    )


class Planner:
    """Decides for requests; knows nothing of what becomes of its choices."""

    def __init__(
        self,
        table: HostTable,
        decider: Decider,
        judge: HostJudge,
        claims: Claims,
        nodes: Nodes,
        last_words_max: int = 0,
        judged_per_step_max: int = 64,
    ) -> None:
        """``_max``: see ``core.settings``."""
        self._table = table
        self._decider = decider
        self._judge = judge
        self._claims = claims
        self._nodes = nodes
        self._last_words_max = last_words_max
        self._judged_max = judged_per_step_max
        self._only_count = 0

    # -- one instance

    def plan(self, work: Work, seat: Seat) -> Plan:
        """The host for one instance.  Hosts that the judge refuses are put into ``seat.out``.

        What claims nothing is decided without a ``Pause``: it ends in the step in which it began."""
        request = work.request_for(seat)
        try:
            decision = self._decide(work, request, seat)
        except DecisionError as error:
            return Refusal(str(error), False, bad_request=True)
        work.journal.decided(decision)
        for refused, node in enumerate(self._hosts(work, request, seat, decision)):
            if refused == self._judged_max and work.claims_hosts:
                return Pause()
            if request.claim and request.forms and decision.asks_placement(node):
                return Question(node)
            found = self._verify(work, request, seat, node, candidates_on(decision, node))
            if isinstance(found, Selected):
                return found
            seat.out[node] = found
        crowded = any(not work.leaves_out(seat, node) for node in decision.nodes())
        return Crowded() if crowded else self._refusal(decision, seat)

    def sharing_with(self, node: str) -> tuple[Provider, ...]:
        """What Placement hides when it is asked for candidates of this node."""
        return self._table.sharing_with(node)

    def judge(self, work: Work, seat: Seat, node: str, candidates: Sequence[Candidate]) -> Selected | Reason:
        """Whether one host passes with one of the candidates that Placement named."""
        if not candidates:
            return Reason("no_candidate")
        if node not in self._table:
            return Reason("gone")
        return self._verify(work, work.request_for(seat), seat, node, candidates)

    def _verify(
        self,
        work: Work,
        request: Request,
        seat: Seat,
        node: str,
        candidates: Sequence[Candidate],
    ) -> Selected | Reason:
        view = self._table.view(node)
        approval = self._judge.verify(request, seat.index, view, candidates)
        if isinstance(approval, Reason):
            work.journal.refused_by_judge(seat.consumer, view, approval)
            return approval
        choice = Choice(node, view.host, view.nodename, view.cell, approval.candidate, approval.limits)
        return Selected(choice, approval.topology, approval.take)

    def _decide(self, work: Work, request: Request, seat: Seat, natives: bool = True) -> Decision:
        excluded = self._nodes.quarantined.union(seat.out)
        return self._decider.decide(request, seat.index, excluded, work.narrowing, natives)

    def _hosts(self, work: Work, request: Request, seat: Seat, decision: Decision) -> Iterator[str]:
        """Those that pass.  Then a few that fell to our counterparts of Nova's filters: Nova's own have
        the last word before an instance has no host."""
        yield from self._walk(work, decision, seat)
        if not decision.filtered or seat.last_words >= self._last_words_max:
            return
        for node in self._walk(work, self._decide(work, request, seat, natives=False), seat):
            if seat.last_words >= self._last_words_max:
                return
            seat.last_words += 1
            yield node

    def _walk(self, work: Work, decision: Decision, seat: Seat) -> Iterator[str]:
        """The hosts of a decision, best first, that have room for another claim in flight if it needs one."""
        for node in decision.nodes():
            if not work.leaves_out(seat, node) and (not work.claims_hosts or self._claims.has_room_on(node)):
                yield node

    @staticmethod
    def _refusal(decision: Decision, seat: Seat) -> Refusal:
        refused = any(reason.code in NOT_FOR_GOOD for reason in seat.out.values())
        return Refusal(decision.text(), decision.stale_mirror or refused)

    # -- alternates

    def alternates(self, work: Work, cell: str) -> list[Choice] | None:
        """Approved hosts of ``cell`` besides the chosen ones, for a flat request.

        None: among the best is a tree of which only Placement can tell."""
        found: list[Choice] = []
        seat = work.seats[-1]
        request = work.request_for_alternates()
        try:
            decision = self._decide(work, request, seat)
        except DecisionError:
            return found  # the chosen hosts are good without alternates
        for judged, node in enumerate(self._others(work, decision, cell)):
            if len(found) == request.num_alternates or judged - len(found) == self._judged_max:
                break
            if request.forms and decision.asks_placement(node):
                return None
            candidates = candidates_on(decision, node)
            verdict = self._verify(work, request, seat, node, candidates)
            if isinstance(verdict, Selected):
                found.append(verdict.choice)
        return found

    def alternate_nodes(self, work: Work, cell: str) -> list[str]:
        """The best hosts of ``cell`` besides the chosen ones; Placement must name candidates."""
        try:
            decision = self._decide(work, work.request_for_alternates(), work.seats[-1])
        except DecisionError:
            return []
        nodes = self._others(work, decision, cell)
        return [node for _, node in zip(range(work.request.num_alternates), nodes, strict=False)]

    def _others(self, work: Work, decision: Decision, cell: str) -> Iterator[str]:
        chosen = work.chosen()
        for node in self._walk(work, decision, work.seats[-1]):
            if node not in chosen and self._table.view(node).cell == cell:
                yield node

    # -- requests that claim nothing

    def assume_only(self, work: Work, seat: Seat) -> str:
        """Consume in the table alone, so that the next instance sees it; ends in the same step."""
        assert seat.choice is not None
        self._only_count += 1
        claim_id = f"only-{self._only_count}"
        consumer = seat.consumer or claim_id
        self._table.assume(seat.choice.node, claim_id, consumer, {}, work.request.usage)
        return claim_id

    def forget_only(self, claim_id: str) -> None:
        """Give it back."""
        self._table.forget(claim_id)

    def schedulers_changed(self, cell: str, names: Sequence[str], own: str) -> None:
        """The live schedulers of a cell: slices are drawn anew."""
        self._decider.set_schedulers(cell, tuple(names), own)
