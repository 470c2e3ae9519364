# SPDX-License-Identifier: Apache-2.0
"""Foreign changes that schedulers find, and what they were, as ``placement/change_examiner.py`` finds it out.

Nobody removes the allocations of a server that lives in a simulated world, except ``second_writer.py``, so each other
removal that no operation explains is a false alarm.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shared_scheduler.core.change_kinds import CONFIRMED_AFTER_S, ChangeKind, kind_by_amounts, kind_in_all_trees
from shared_scheduler.core.effects import ExamineChange
from shared_scheduler.sim.workload import Server, ServerState

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: prefix of the counters of a world, one of each kind
FOUND = "foreign_"
GONE = (ServerState.FAILED, ServerState.DELETED)


class FoundChanges:
    """``world.counters`` has the number of each kind."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: (scheduler, consumer) -> changes that it has told
        self.counts: Counter[tuple[str, str]] = Counter()
        #: consumers whose allocations somebody may remove
        self.may_be_removed: set[str] = set()

    def told(self, scheduler: str, effect: ExamineChange) -> None:
        """A scheduler tells a change; others must have written as often."""
        self.counts[scheduler, effect.consumer] += 1
        told = self.counts[scheduler, effect.consumer]
        others = self._world.placement.writers[effect.consumer].others(scheduler)
        self._world.checkers.check("only_of_others", told <= others, scheduler, told, "changes, the last:", effect)
        self.examine(effect)

    def examine(self, effect: ExamineChange, is_second_look: bool = False) -> None:
        """Count what a change was; a removal that nothing explains is looked at twice."""
        kind = self._kind(effect, self._world.owners()[effect.consumer])
        if kind is ChangeKind.REMOVED and not is_second_look:
            self._world.agenda.after(CONFIRMED_AFTER_S, self.examine, effect, True)
            return
        explained = kind is not ChangeKind.REMOVED or effect.consumer in self.may_be_removed
        self._world.checkers.check("only_of_others", explained, effect.node, "no removal:", effect)
        self._world.counters[f"{FOUND}{kind}"] += 1
        self._world.trace.note(effect.node, f"foreign change of {effect.consumer}: {kind}, seen by {effect.seen_by}")

    def _kind(self, effect: ExamineChange, server: Server) -> ChangeKind:
        if server.state in GONE:
            return ChangeKind.DELETED
        is_elsewhere = server.state is ServerState.LIVES and server.node not in effect.before
        if server.state in (ServerState.BUILDING, ServerState.MOVES) or is_elsewhere:
            return ChangeKind.OPERATION
        stands = self._world.placement.consumers.get(effect.consumer, {})
        kind = kind_by_amounts(effect.before, effect.after or stands)
        if kind is ChangeKind.REWRITTEN and effect.elsewhere and stands:
            return kind_in_all_trees(effect.before, effect.elsewhere, stands)
        return kind
