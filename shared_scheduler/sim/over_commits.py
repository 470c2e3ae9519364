# SPDX-License-Identifier: Apache-2.0
"""Checks that Placement has not more on a node than it has room for, as far as schedulers can prevent it.

Placement compares when a write begins, and its rows appear when it ends, so that writes that overlap may over-commit a
node (``placement.py``).  Schedulers prevent this in two ways, which are checked when a write of theirs ends:

* If a scheduler hears the agent of the node, it writes what the agent has accepted.  Writes that overlap fit then,
  unless one of them is of somebody who has not asked the agent, or the agent did not know all that stood there:
  somebody else had written it, or was about to, or the agent has lost its state since.  A stolen node may also say of
  claims that its agent refuses that they are accepted.
* If not, it reads the usage after the write, and deletes the write if it is too much.  So the last of such writes does
  not stay.  While it has no answer, it may be carried out late, and is deleted when it cannot arrive any more.  A
  scheduler that stops deletes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from shared_scheduler.protocol.messages import Verdict
from shared_scheduler.sim.placement import Write
from shared_scheduler.table.row import Freshness

if TYPE_CHECKING:
    from shared_scheduler.sim.nodes import SimNode
    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: calls to Placement until a write that is too much is deleted, in the usual case: the rest of its own answer, usages,
#: inventories (twice, if the cached ones are too small), the consumer, and the delete
TAKE_BACK_CALLS = 6
#: the longest of these, in mean times of a call
CALL_MAX = 1.5
#: after Placement, or the scheduler, was disturbed: a write may be carried out so late, and be deleted some time later
TAKEN_BACK_LATE_S = CARRIED_OUT_WITHIN_S + 40.0


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim of a scheduler for a node, and whether it heard the agent of the node."""

    claim_id: str
    at_s: float
    is_heard: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    """A write that has added something to a node.  ``claims``: of its scheduler; none if somebody else has written."""

    number: int
    at_s: float
    consumer: str
    claims: tuple[_Claim, ...]

    @property
    def is_judged(self) -> bool:
        """Whether the agent was asked about each claim that it may be of."""
        return bool(self.claims) and all(claim.is_heard for claim in self.claims)


class OverCommits:
    """``check`` counts a check, and stores the violation if there is one (``Checkers.check``)."""

    def __init__(self, world: World, check: Callable[..., None]) -> None:
        self._world = world
        self._check = check
        #: (scheduler, node, consumer) -> its claims
        self._claims: defaultdict[tuple[str, str, str], list[_Claim]] = defaultdict(list)
        #: node -> consumer -> its last write there
        self._stored: defaultdict[str, dict[str, _Stored]] = defaultdict(dict)
        #: claim id -> the consumers of the node that its agent did not know when it accepted the claim
        self._unknown: dict[str, frozenset[str]] = {}
        #: node -> when its agent lost its state, or told of a claim what it has not judged
        self._unreliable_s: dict[str, float] = {}

    def assumed(self, scheduler: SimScheduler, node: str, claim_id: str, consumer: str) -> None:
        """A scheduler begins a claim."""
        is_heard = scheduler.core.table.freshness(node) is not Freshness.PROVISIONAL
        claim = _Claim(claim_id, self._world.now, is_heard)
        self._claims[scheduler.name, node, consumer].append(claim)

    def accepted(self, node: SimNode, verdict: Verdict) -> None:
        """An agent accepts a claim, perhaps once more."""
        assert node.agent is not None
        ledger = node.agent.ledger
        known = ledger.mirror.known.keys() | {held.claim.consumer for held in ledger.pending.values()}
        unknown = self._world.placement.consumers_of(node.node).keys() - known
        self._unknown.setdefault(verdict.claim_id, frozenset(unknown))

    def unreliable(self, node: str) -> None:
        """An agent has lost its state, or has told of a claim what it has not judged."""
        self._unreliable_s[node] = self._world.now

    def stored(self, consumer: str, grown: Iterable[str], write: Write | None) -> None:
        """Placement has carried a write out, which has added something to these nodes."""
        for node in grown:
            claims = () if write is None else self._claims.get((write.writer, node, consumer), ())
            one = _Stored(self._world.placement.commits, self._world.now, consumer, tuple(claims))
            self._stored[node][consumer] = one
            if write is not None and one.claims:
                self._check_stored(node, one, write)

    def _check_stored(self, node: str, one: _Stored, write: Write) -> None:
        over = self._world.placement.over_commit(node)
        if one.is_judged:
            fits = not over or self._is_excused(node, one, write)
            self._check("judged_fits", fits, node, one.consumer, "makes it", over)
        elif over:
            soon_s = TAKE_BACK_CALLS * CALL_MAX * self._world.sizes.placement_s
            self._world.agenda.after(soon_s, self._check_taken_back, node, one, write)
        else:
            self._check("taken_back", True, node)

    # -- with the word of the agent

    def _is_excused(self, node: str, one: _Stored, write: Write) -> bool:
        """Whether the word of the agent says nothing, or all fits but for what it did not know when it judged."""
        stored = self._stored[node].values()
        together = [other for other in stored if other.number > write.began and other.is_judged]
        claims = [claim for other in together for claim in other.claims]
        since_s = min(claim.at_s for claim in claims)
        if self._unreliable_s.get(node, float("-inf")) >= since_s:
            return True
        unknown = {other.consumer for other in stored if other.at_s >= since_s and not other.is_judged}
        unknown = unknown.union(*(self._unknown.get(claim.claim_id, frozenset()) for claim in claims))
        return not self._is_over_without(node, unknown)

    def _is_over_without(self, node: str, left_out: set[str]) -> bool:
        placement = self._world.placement
        used = dict(placement.used(node))
        for consumer, allocations in placement.consumers_of(node).items():
            for rc, amount in allocations[node].items() if consumer in left_out else ():
                used[rc] -= amount
        capacities = placement.capacities(node)
        return any(amount > capacities[rc] for rc, amount in used.items())

    # -- without

    def _check_taken_back(self, node: str, one: _Stored, write: Write) -> None:
        world = self._world
        scheduler = next((each for each in world.schedulers.values() if each.name == write.writer), None)
        if scheduler is None or node not in world.nodes:
            return
        disturbed_s = max(scheduler.disturbed_s, world.placement_ill_s)
        well_s = disturbed_s + TAKEN_BACK_LATE_S if disturbed_s >= one.claims[0].at_s else world.now
        if world.now < well_s:
            world.agenda.after(well_s - world.now, self._check_taken_back, node, one, write)
        else:
            over = world.placement.over_commit(node) if self._is_last(node, one) else {}
            self._check("taken_back", not over, node, one.consumer, "of", write.writer, "stays, with", over)

    def _is_last(self, node: str, one: _Stored) -> bool:
        """Whether a write stands, and nobody has added anything to its node since."""
        stands = node in self._world.placement.consumers.get(one.consumer, {})
        return stands and all(other.number <= one.number for other in self._stored[node].values())
