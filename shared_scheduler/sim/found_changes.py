# SPDX-License-Identifier: Apache-2.0
"""Foreign changes that schedulers find, and what they were, as ``placement/change_examiner.py`` finds it out.

Nobody removes the allocations of a server that lives in a simulated world, so each removal that no operation explains
is a false alarm.
"""

from __future__ import annotations

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

    def examine(self, effect: ExamineChange, is_second_look: bool = False) -> None:
        """Count what a change was; a removal that nothing explains is looked at twice."""
        kind = self._kind(effect, self._world.owners()[effect.consumer])
        if kind is ChangeKind.REMOVED and not is_second_look:
            self._world.agenda.after(CONFIRMED_AFTER_S, self.examine, effect, True)
            return
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
