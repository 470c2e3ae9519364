# SPDX-License-Identifier: Apache-2.0
"""Checks the hard spreading constraints of a request after its allocations are written and before it is answered.

Several schedulers may place servers of one group or label at the same moment.  A skew concerns the nodes of all
domains, so no node can judge it.  As for affinity (``group_check.py``), Placement decides: the scheduler reads the
servers of the group from Nova's API database, and then the allocations of those that the table does not show as built.
If a domain of the request has too many servers, the request deletes what it wrote (it *yields*) and decides again.

A request is answered only if ``count - minimum <= max_skew`` holds for each domain in which it has a server, where

- ``count`` includes every server that holds allocations, once in each domain, and the request's own ones.  Servers in
  cell 0 are none: their request has failed, and what they still hold will be deleted;
- ``minimum`` includes only the own servers, and those whose request was answered: they are built, or Nova has mapped
  them to a cell, which the conductor does after the answer.  The others may still yield.  One that was evacuated holds
  allocations on its source as well, until that comes back; it is included where the table has it, or if all that it
  holds is in one domain.

*No answer of the requests leaves a domain with a skew above ``max_skew``.*  Proof: consider a domain with a server of
an answered request, and of these requests the one that read the members last, R.  Every other one wrote before it read,
that is before R read, and its server was in the API database before that; so R counted all of them, and ``count`` was
at least as large as it is after the last answer.  ``minimum`` counted servers of answered requests only, and those do
not yield; so it was at most as large as it is after the last answer, as long as no server is deleted, moved or fails to
build.  As in Kubernetes, such a change leaves the other servers where they are.  The proof does not depend on what
schedulers know of each other.  It does not hold for a built server that another scheduler moves, as long as the table
does not show its new place: the server is not looked up.

Requests that find each other undecided go on in the order of their servers' uuids, which every scheduler sees alike.
Of the others, a server with a smaller uuid than the own ones is *senior*, as in ``group_check.py``, and so is one for
whose leave the request has waited in vain, because its scheduler has died or does not see this one; the rest are
*junior*.  A request keeps what it wrote only where it is in the way of no senior one; otherwise it *makes way*: it
yields, however often, until its deadline.

=======================================================  =============================================================
the constraint holds                                     outcome
=======================================================  =============================================================
for nobody can tell: a node of the request is gone       ``Yield``, which is bounded by its attempts
with the servers of answered requests in the minimum     ``Agreed``
in the same way, without the junior ones                 ``CheckAgain``: they make way; at most ``ANSWERS_MAX`` times,
                                                         then ``Yield``
without those, and with the senior ones in the minimum,  ``CheckAgain``: those will be answered; at most
none of which is in a domain of the request              ``ANSWERS_MAX`` times, then ``Yield``
not at all, and others are undecided or were answered    ``Yield``, which costs no attempt
since the last check
not at all                                               ``Yield``, at most ``YIELDS_MAX`` times
=======================================================  =============================================================

*Undecided requests do not wait for each other in a circle.*  A request waits for junior ones in its domains, which find
it there and make way, or for senior ones in other domains, for which it makes no difference.  Of those in the domain
with the fewest servers that have an answer, the most senior is answered as soon as the others have made way: its domain
is the minimum then.  The others go there too, because the next decision of each one has the counts of its check.  Only
the most senior of all in sight waits for ``ANSWERS_MAX`` checks, the others for half of them: if the servers of one
request come before and after that of another one, both may wait for each other, and then one leaves first.  One that is
never answered, and still holds allocations, counts where these are, but nobody waits for it more than once.  The pauses
after a yield grow to at most ``DEFERRAL_PAUSE_MAX_S``.  Whether and when a request makes way is no part of the proof
above, so schedulers with different rules may run together.

A request that has yielded remembers where Placement had the servers that were looked up, on which nodes the table had
them in vain, whose requests had no answer, and where they hold something without being certain to stay.  So it does not
decide as before.

A request that finds no host because of spreading before anything is written reads the same, once, and decides again:
the table has no labels of servers without an agent, or that nova-scheduler has placed, so their domains look emptier
than they are.  It uses what was found; all other servers, such as claims in flight, count where the table has them.
One that its agent shows as built, and that Nova has deleted, does not count.
These *label reads* are rare (``label_reads.py``), because each reads every such server of a label.  Other requests of
the label that would be refused use what was found for a short time, together with what the table has by then, unless
what they know was asked for later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from cachetools import FIFOCache

from shared_scheduler.core.effects import AskGroup
from shared_scheduler.core.events import GroupAnswered
from shared_scheduler.core.group_check import CHECK_PAUSE_S, YIELD_PAUSE_S, Agreed, CheckAgain, Outcome, Yield
from shared_scheduler.core.label_reads import LABEL_READ_LOST_S, LabelReads, Located, pause_s
from shared_scheduler.core.request_state import RequestState
from shared_scheduler.core.step import Step
from shared_scheduler.decision.host_restrictions import skips_filters
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import SpreadMode
from shared_scheduler.decision.spreading import Counted, Places, constraints_of, count
from shared_scheduler.protocol.messages import Leaf, Reason
from shared_scheduler.table.columns import IntArray
from shared_scheduler.table.host_table import HostTable

#: the reason of a claim that was taken back because its domain had too many servers
SPREAD_TOO_FAR = "spread_too_far"
#: the reason of one that was taken back because a node of its request is gone, so it is in no domain
NODE_GONE = "node_gone"
#: checks of the most senior of the undecided requests while it waits for the others
ANSWERS_MAX = 50
#: label reads whose answers are taken in, also after their requests: as many as begin in about two minutes
LABEL_READS_UNDER_WAY_MAX = 256
#: the longest pause after a yield to others that came first
DEFERRAL_PAUSE_MAX_S = 2.0
NOBODY = frozenset[str]()

_Slots = Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class _Found:
    """The slots of all servers.

    ``others``: of those that were looked up; ``homes``: the same, as far as they are certain to stay there; ``built``:
    of those that were not, because they are built; ``sure``: of these and the own ones; ``also``: where some of the
    built ones may be besides."""

    others: _Slots
    homes: _Slots
    built: Mapping[str, int]
    sure: IntArray
    also: list[int]

    def everywhere(self, besides: frozenset[str] = NOBODY) -> Places:
        """Wherever they may be."""
        return self._with(np.concatenate((_array(self.also), self.sure)), self.others, besides)

    def at_home(self, besides: frozenset[str] = NOBODY) -> Places:
        """Where they are certain to be; one that holds several nodes, if these are in one domain."""
        return self._with(self.sure, self._homes(), besides)

    def hoped(self, besides: frozenset[str] = NOBODY) -> Places:
        """Where they are if all except ``besides`` get an answer."""
        return self._with(np.concatenate((_array(self.also), self.sure)), self._homes(), besides)

    def _homes(self) -> _Slots:
        return {uuid: self.homes[uuid] or slots for uuid, slots in self.others.items()}

    @staticmethod
    def _with(sure: IntArray, others: _Slots, besides: frozenset[str]) -> Places:
        found = Places.of(slots for uuid, slots in others.items() if uuid not in besides)
        return Places(np.concatenate((found.slots, sure)), found.several)


class SpreadCheck:
    """Checks spreading.  It only counts its questions; the state of a check is ``RequestState.check``."""

    def __init__(self, table: HostTable, decider: Decider, rng: Random) -> None:
        self._table = table
        self._decider = decider
        self._rng = rng
        self._count = 0
        self._label_reads = LabelReads()
        #: question -> what its answer is judged with
        self._reads_under_way: FIFOCache[str, RequestState] = FIFOCache(LABEL_READS_UNDER_WAY_MAX)

    def is_needed(self, state: RequestState) -> bool:
        """Whether the request, which is written, must be checked before it is answered."""
        request = state.request
        hard = any(one.mode == SpreadMode.HARD for one in request.spread)
        return hard and not state.check.spread_passed and not skips_filters(request)

    def ask(self, step: Step, state: RequestState) -> None:
        """Emit the question where the servers are."""
        request, group = state.request, state.request.group
        assert group is not None
        self._count += 1
        state.check.ask_id, state.check.looked_up = f"spread.{state.key}.{self._count}", True
        state.check.asked_s = step.now
        state.check.built = {uuid: self._table.node_at(slot) for uuid, slot in self._built(state).items()}
        known = frozenset(request.instance_uuids) | state.check.built.keys()
        step.emit(AskGroup(
            state.check.ask_id, group.uuid, known, request.request_id, request.project_id, request.label,
            images=self._decider.reads_images,
        ))  # fmt: skip

    def read_label(self, step: Step, state: RequestState) -> None:
        """Emit the same question before a request is refused.  The answer is for all requests of the label, so what it
        is judged with is kept: this request may have ended by then, or asked again."""
        self.ask(step, state)
        kept = RequestState.begin(state.key, state.request, step.now, state.deadline_s)
        kept.check = replace(state.check)
        self._reads_under_way[state.check.ask_id] = kept

    def may_read_label(self, state: RequestState, now: float) -> bool:
        """Whether a request that spreading has refused may find a host when the places of the servers are read, and it
        is time for that.  A dry run does not read, because its other servers would hold room in the table meanwhile."""
        group = state.request.group
        if group is None or not self._wants_label_read(state) or self._is_being_read(group.uuid, now):
            return False
        return self._label_reads.may_begin(group.uuid, state.request.project_id, now)

    def recall(self, state: RequestState, now: float) -> bool:
        """Use what a label read for another request has found of late; False if the request knows nothing older."""
        check, group = state.check, state.request.group
        if group is None or not self._may_use_label_reads(state):
            return False
        located = self._label_reads.kept(group.uuid, now)
        if located is None or located.asked_s <= check.found_s:
            return False
        others = located.without(state.request.instance_uuids)
        check.found_s = located.asked_s
        check.placed, check.vacated = others.placed, others.vacated
        check.unsettled, check.beside = others.unsettled, others.beside
        return True

    def label_read_pause_s(self, state: RequestState, now: float) -> float | None:
        """How long a request waits that may not read, unless what was found of late is the newest that it can get; None
        if it does not."""
        group = state.request.group
        if group is None or not self._wants_label_read(state):
            return None
        is_being_read = self._is_being_read(group.uuid, now)
        if self._label_reads.kept(group.uuid, now) is not None and not is_being_read:
            return None
        return pause_s(state.check.label_reads_awaited, is_being_read)

    def _is_being_read(self, label: str, now: float) -> bool:
        """Whether the answer to a read of this label is on its way."""
        waiting = (one for one in self._reads_under_way.values() if now < one.check.asked_s + LABEL_READ_LOST_S)
        return any(one.request.group is not None and one.request.group.uuid == label for one in waiting)

    def _wants_label_read(self, state: RequestState) -> bool:
        return not state.check.looked_up and self._may_use_label_reads(state)

    def _may_use_label_reads(self, state: RequestState) -> bool:
        return not state.request.dry_run and self.is_needed(state)

    def overhear(self, event: GroupAnswered, now: float) -> None:
        """Keep the answer to a label read for which its request does not wait any more, for other requests."""
        state = self._reads_under_way.get(event.ask_id)
        if state is not None:
            self.learn(state, event, now)

    def learn(self, state: RequestState, event: GroupAnswered, now: float) -> None:
        """Note where the servers are that were found, or that Nova has deleted, for the next decision, and keep it for
        other requests."""
        self._reads_under_way.pop(event.ask_id, None)
        if event.error:
            return
        check, group, found = state.check, state.request.group, event.standing.keys() | event.gone
        assert group is not None
        self._found(state, event, self._own(state))
        check.placed = {uuid: nodes for uuid, nodes in check.placed.items() if uuid in found}
        check.vacated = frozenset((uuid, node) for uuid, node in check.vacated if uuid in found)
        located = Located(check.placed, check.vacated, check.unsettled, check.beside, check.asked_s)
        self._label_reads.keep(group.uuid, located, now)

    def _found(self, state: RequestState, event: GroupAnswered, own: IntArray) -> _Found:
        built = {uuid: slot for uuid, slot in self._not_asked(state).items() if uuid not in event.gone}
        others = {uuid: self._slots(providers) for uuid, providers in event.standing.items() if uuid not in built}
        homes = {uuid: self._home(uuid, slots) for uuid, slots in others.items()}
        state.check.unsettled = event.unanswered & others.keys()
        self._remember(state, others, homes, built)
        return _Found(others, homes, built, np.concatenate((_array(built.values()), own)), self._also(built))

    def judge(self, state: RequestState, event: GroupAnswered) -> Outcome:
        """The outcome of the check for an answer."""
        check, own = state.check, self._own(state)
        found = self._found(state, event, own)
        if gone := sorted(node for node in state.chosen() if self._table.slot_of(node) is None):
            check.checks_made = 0
            return Yield(Reason(NODE_GONE, {"nodes": list[Leaf](gone)}), 0.0)
        others_came = self._others_came(state, frozenset(found.built.keys() | found.others.keys()))
        counted = self._counted(state, found.everywhere())
        if _hold(counted, self._settled(state, found), own):
            check.spread_passed = True
            return Agreed()
        check.checks_made += 1
        if self._waits(state, found, own):
            return CheckAgain(self._rng.uniform(0, CHECK_PAUSE_S))
        return self._yield(state, _reason(counted, self._hoped(state, found), own), others_came)

    @staticmethod
    def _others_came(state: RequestState, others: frozenset[str]) -> bool:
        """Whether others are undecided, or were answered since the last check."""
        check, before = state.check, state.check.answered
        check.answered = others - check.unsettled
        return bool(check.unsettled or check.answered - before)

    def _waits(self, state: RequestState, found: _Found, own: IntArray) -> bool:
        """Whether the request keeps what it wrote, because others will leave, or will be answered."""
        check = state.check
        check.stayed &= check.unsettled
        seniors = self._seniors(state)
        juniors = check.unsettled - seniors
        ahead = self._counted(state, found.everywhere(juniors))
        if not _hold(ahead, self._settled(state, found), own):
            beside = any(self._share_a_domain(ahead, own, found.others[uuid]) for uuid in seniors)
            if beside or not _hold(ahead, self._hoped(state, found, juniors), own):
                return False
        if check.checks_made < (ANSWERS_MAX if self._is_most_senior(state) else ANSWERS_MAX // 2):
            return True
        check.stayed |= {uuid for uuid in juniors if self._share_a_domain(ahead, own, found.others[uuid])}
        return False

    def _yield(self, state: RequestState, reason: Reason, others_came: bool) -> Yield:
        check = state.check
        check.checks_made = 0
        if not others_came:
            check.yields += 1
            return Yield(reason, self._rng.uniform(0, YIELD_PAUSE_S))
        times = 1 + check.deferrals + len(self._seniors(state))
        check.deferrals += 1
        return Yield(reason, self._rng.uniform(0, min(times * YIELD_PAUSE_S, DEFERRAL_PAUSE_MAX_S)), others_came=True)

    @staticmethod
    def _is_most_senior(state: RequestState) -> bool:
        """Whether its smallest uuid is smaller than those of all undecided servers."""
        mine = min(state.request.instance_uuids)
        return all(mine < uuid for uuid in state.check.unsettled)

    @staticmethod
    def _seniors(state: RequestState) -> frozenset[str]:
        """The undecided servers for which this request makes way."""
        check, mine = state.check, min(state.request.instance_uuids)
        return frozenset(uuid for uuid in check.unsettled if uuid < mine) | check.stayed

    @staticmethod
    def _share_a_domain(counted: list[Counted], own: IntArray, slots: list[int]) -> bool:
        return any(bool(np.isin(one.domains.take(own), one.domains.take(_array(slots))).any()) for one in counted)

    def _hoped(self, state: RequestState, found: _Found, besides: frozenset[str] = NOBODY) -> list[Counted]:
        """The servers where they are if all except ``besides`` get an answer."""
        return self._counted(state, found.hoped(besides), surely=True)

    def _settled(self, state: RequestState, found: _Found) -> list[Counted]:
        """The servers that cannot yield any more, where they are certain to be."""
        return self._counted(state, found.at_home(state.check.unsettled), surely=True)

    def _home(self, uuid: str, slots: list[int]) -> list[int]:
        """Where a server raises the minimum.  One that was evacuated holds its source as well until that comes back; it
        is where the table has it.  Empty: that is not certain."""
        if len(slots) == 1:
            return slots
        there = [slot for slot in slots if slot in self._table.members.slots(uuid)]
        return there if len(there) == 1 else []

    def _remember(self, state: RequestState, others: _Slots, homes: _Slots, built: Mapping[str, int]) -> None:
        """Note for the next decision where Placement has the servers that were looked up.  Those that hold nothing are
        deleted, or their request has failed."""
        table, check = self._table, state.check
        check.found_s = check.asked_s
        standing = {uuid: frozenset(map(table.node_at, home)) for uuid, home in homes.items()}
        held = ((uuid, frozenset(map(table.node_at, slots))) for uuid, slots in others.items())
        check.beside = {uuid: more for uuid, nodes in held if (more := nodes - standing[uuid])}
        asked = (self._known(state) | standing.keys()) - built.keys()
        told = [(uuid, table.node_at(slot)) for uuid in asked for slot in table.members.slots(uuid)]
        nowhere = frozenset[str]()
        check.placed = {uuid: nowhere for uuid, _ in told} | standing
        check.vacated = frozenset((uuid, node) for uuid, node in told if node not in check.placed[uuid])

    def _own(self, state: RequestState) -> IntArray:
        return _array(slot for choice in state.choices() if (slot := self._table.slot_of(choice.node)) is not None)

    def _built(self, state: RequestState) -> dict[str, int]:
        """The slot of each server of the group that its agent reports as built, in one place."""
        places = ((uuid, self._table.members.slots(uuid)) for uuid in self._known(state))
        return {uuid: slots[0] for uuid, slots in places if len(slots) == 1 and self._is_built(uuid, slots[0])}

    def _known(self, state: RequestState) -> frozenset[str]:
        """The other servers of the group that the request or the table knows."""
        group = state.request.group
        assert group is not None
        return (group.members | self._table.groups.of(group.uuid)) - frozenset(state.request.instance_uuids)

    def _not_asked(self, state: RequestState) -> dict[str, int]:
        """The slots of the servers that are built, now or when the question was asked, which left those out."""
        then = {uuid: self._table.slot_of(node) for uuid, node in state.check.built.items()}
        return {uuid: slot for uuid, slot in then.items() if slot is not None} | self._built(state)

    def _also(self, built: dict[str, int]) -> list[int]:
        """The other slots of servers that turned out to move after the question, which left them out."""
        return [slot for uuid, home in built.items() for slot in self._table.members.slots(uuid) if slot != home]

    def _is_built(self, uuid: str, slot: int) -> bool:
        row = self._table.row(slot)
        return row is not None and bool(row.epoch) and row.is_built(uuid)

    def _slots(self, providers: frozenset[str]) -> list[int]:
        """The slots of the providers that are compute nodes."""
        return [slot for uuid in providers if (slot := self._table.slot_of(uuid)) is not None]

    def _counted(self, state: RequestState, places: Places, surely: bool = False) -> list[Counted]:
        context = self._decider.context(state.request)
        return count(context, constraints_of(context, SpreadMode.HARD), places, surely)


def _array(slots: Iterable[int]) -> IntArray:
    return np.fromiter(slots, dtype=np.int64)


def _hold(everybody: list[Counted], settled: list[Counted], own: IntArray) -> bool:
    """Whether all constraints hold."""
    return all(_holds(*each, own) for each in zip(everybody, settled, strict=True))


def _holds(everybody: Counted, settled: Counted, own: IntArray) -> bool:
    """Whether no domain of the own servers has too many servers."""
    counts = everybody.counts.take(everybody.domains.take(own))
    return bool((counts - (settled.minimum or 0) <= everybody.constraint.max_skew).all())


def _reason(counted: list[Counted], hoped: list[Counted], own: IntArray) -> Reason:
    found: list[Leaf] = [
        {
            "key": one.constraint.key,
            "max_skew": one.constraint.max_skew,
            "minimum": most.minimum,
            "counts": one.counts.take(one.domains.take(own)).tolist(),
        }
        for one, most in zip(counted, hoped, strict=True)
        if not _holds(one, most, own)
    ]
    return Reason(SPREAD_TOO_FAR, {"constraints": found})
