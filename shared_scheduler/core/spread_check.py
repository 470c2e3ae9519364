# SPDX-License-Identifier: Apache-2.0
"""Checks the hard spreading constraints of a request after its allocations are written and before it is answered.

Several schedulers may place servers of one group or label at the same moment.  A skew concerns the nodes of all
domains, so no node can judge it.  As for affinity (``group_check.py``), Placement decides: the scheduler reads the
servers of the group from Nova's API database, and then the allocations of those that the table does not show as built.
If a domain of the request has too many servers, the request deletes what it wrote (it *yields*) and decides again.

A request is answered only if ``count - minimum <= max_skew`` holds for each domain in which it has a server, where

- ``count`` includes every server that holds allocations, and the request's own ones.  Servers in cell 0 are none: their
  request has failed, and what they still hold will be deleted;
- ``minimum`` includes only the own servers, and those whose request was answered: they are built, or Nova has mapped
  them to a cell, which the conductor does after the answer.  The others may still yield.  One that was evacuated holds
  allocations on its source as well, until that comes back; it is included where the table has it.

*No answer of the requests leaves a domain with a skew above ``max_skew``.*  Proof: consider a domain with a server of
an answered request, and of these requests the one that read the members last, R.  Every other one wrote before it read,
that is before R read, and its server was in the API database before that; so R counted all of them, and ``count`` was
at least as large as it is after the last answer.  ``minimum`` counted servers of answered requests only, and those do
not yield; so it was at most as large as it is after the last answer, as long as no server is deleted, moved or fails to
build.  As in Kubernetes, such a change leaves the other servers where they are.  The proof does not depend on what
schedulers know of each other.  It does not hold for a built server that another scheduler moves, as long as the table
does not show its new place: the server is not looked up.

=======================================================  =============================================================
the constraint holds                                     outcome
=======================================================  =============================================================
with the servers of answered requests in the minimum     ``Agreed``
only with all servers in the minimum                     ``CheckAgain``, at most ``ANSWERS_MAX`` times, then ``Yield``
not at all; the request is senior                        ``CheckAgain``, at most ``CHECKS_MAX`` times, then ``Yield``
not at all                                               ``Yield``
=======================================================  =============================================================

The request is *senior* if its smallest instance uuid is smaller than those of all servers that may still yield.  A
request that has yielded remembers where Placement had the servers that were looked up, on which nodes the table had
them in vain, whose requests had no answer, and which ones are not certain to stay.  So it does not decide as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from random import Random

import numpy as np

from shared_scheduler.core.effects import AskGroup
from shared_scheduler.core.events import GroupAnswered
from shared_scheduler.core.group_check import (
    CHECK_PAUSE_S,
    CHECKS_MAX,
    YIELD_PAUSE_S,
    Agreed,
    CheckAgain,
    Outcome,
    Yield,
)
from shared_scheduler.core.request_state import RequestState
from shared_scheduler.core.step import Step
from shared_scheduler.decision.host_restrictions import skips_filters
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import SpreadMode
from shared_scheduler.decision.spreading import Counted, constraints_of, count
from shared_scheduler.protocol.messages import Leaf, Reason
from shared_scheduler.table.columns import IntArray
from shared_scheduler.table.host_table import HostTable

#: the reason of a claim that was taken back because its domain had too many servers
SPREAD_TOO_FAR = "spread_too_far"
#: checks while only the servers of requests without an answer make the constraint hold
ANSWERS_MAX = 50


class SpreadCheck:
    """Checks spreading.  It only counts its questions; the state of a check is ``RequestState.check``."""

    def __init__(self, table: HostTable, decider: Decider, rng: Random) -> None:
        self._table = table
        self._decider = decider
        self._rng = rng
        self._count = 0

    def is_needed(self, state: RequestState) -> bool:
        """Whether the request, which is written, must be checked before it is answered."""
        request = state.request
        hard = any(one.mode == SpreadMode.HARD for one in request.spread)
        return hard and not state.check.spread_passed and not skips_filters(request)

    def ask(self, step: Step, state: RequestState) -> None:
        """Emit the question where the servers are, after everything is written."""
        request, group = state.request, state.request.group
        assert group is not None
        self._count += 1
        state.check.ask_id = f"spread.{state.key}.{self._count}"
        state.check.built = {uuid: self._table.node_at(slot) for uuid, slot in self._built(state).items()}
        known = frozenset(request.instance_uuids) | state.check.built.keys()
        step.emit(AskGroup(
            state.check.ask_id, group.uuid, known, request.request_id, request.project_id, request.label,
            images=self._decider.reads_images,
        ))  # fmt: skip

    def judge(self, state: RequestState, event: GroupAnswered) -> Outcome:
        """The outcome of the check for an answer."""
        check, own = state.check, self._own(state)
        built = {uuid: slot for uuid, slot in self._not_asked(state).items() if uuid not in event.gone}
        others = {uuid: self._slots(providers) for uuid, providers in event.standing.items() if uuid not in built}
        homes = {uuid: self._home(uuid, slots) for uuid, slots in others.items()}
        counted, hoped, least = self._counts(state, own, built, others, homes, event.unanswered)
        self._remember(state, {uuid: homes[uuid] or slots for uuid, slots in others.items()}, built)
        check.unsettled = event.unanswered & others.keys()
        check.leaving = frozenset(uuid for uuid, home in homes.items() if not home)
        if _hold(counted, least, own):
            check.spread_passed = True
            return Agreed()
        check.checks_made += 1
        if _hold(counted, hoped, own) and check.checks_made < ANSWERS_MAX:
            return CheckAgain(self._rng.uniform(0, CHECK_PAUSE_S))
        mine = min(state.request.instance_uuids)
        if event.unanswered and mine < min(event.unanswered) and check.checks_made < CHECKS_MAX:
            return CheckAgain(self._rng.uniform(0, CHECK_PAUSE_S))
        check.checks_made = 0
        check.yields += 1
        return Yield(_reason(counted, hoped, own), self._rng.uniform(0, YIELD_PAUSE_S))

    def _counts(
        self,
        state: RequestState,
        own: IntArray,
        built: dict[str, int],
        others: Mapping[str, list[int]],
        homes: Mapping[str, list[int]],
        unanswered: frozenset[str],
    ) -> tuple[list[Counted], list[Counted], list[Counted]]:
        """All servers wherever they may be; where they are if all get an answer; and those that have one."""
        also, sure = [self._also(built)], np.concatenate((_array(built.values()), own))
        answered = [slots for uuid, slots in homes.items() if uuid not in unanswered]
        counted = self._counted(state, sure, [*others.values(), *also])
        hoped = self._counted(state, sure, [*homes.values(), *also]) if homes != others else counted
        return counted, hoped, self._counted(state, sure, answered)

    def _home(self, uuid: str, slots: list[int]) -> list[int]:
        """Where a server raises the minimum.  One that was evacuated holds its source as well until that comes back; it
        is where the table has it.  Empty: that is not certain."""
        if len(slots) == 1:
            return slots
        there = [slot for slot in slots if slot in self._table.members.slots(uuid)]
        return there if len(there) == 1 else []

    def _remember(self, state: RequestState, slots: Mapping[str, list[int]], built: Mapping[str, int]) -> None:
        """Note for the next decision where Placement has the servers that were looked up.  Those that hold nothing are
        deleted, or their request has failed."""
        table, check = self._table, state.check
        standing = {uuid: frozenset(map(table.node_at, found)) for uuid, found in slots.items()}
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

    def _counted(self, state: RequestState, sure: IntArray, others: Iterable[list[int]]) -> list[Counted]:
        context = self._decider.context(state.request)
        places = np.concatenate((_array(chain.from_iterable(others)), sure))
        return count(context, constraints_of(context, SpreadMode.HARD), places)


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
