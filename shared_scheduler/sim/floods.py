# SPDX-License-Identifier: Apache-2.0
"""A host with hundreds of nodes of its own, whose agent speaks and answers nothing.

Schedulers need a snapshot of each of its nodes and ask for it in vain.  The nodes are in no database, so they have no
row, and no request selects them.  When the host is gone, its nodes are silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared_scheduler.protocol.limits import HOST_RESYNCS_IN_FLIGHT_MAX, RESYNC_PATIENCE_S, RESYNCS_IN_FLIGHT_MAX
from shared_scheduler.protocol.messages import Heartbeat, agent_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: more nodes than a scheduler asks within the time of a flood, if nobody answers
FLOOD_NODES = 200
FLOOD_HOST = "host-flood"
#: A node waits no longer than its own requests without an answer keep the places of its host, and for a token.
WAIT_MAX_S = RESYNC_PATIENCE_S + 1.0


class Flood:
    """The heartbeats of the host, from ``begin`` to ``end``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._goes_on = False

    def begin(self) -> None:
        """The agent starts."""
        self._goes_on = True
        self._speak()

    def end(self) -> None:
        """The agent ends."""
        self._goes_on = False

    def _speak(self) -> None:
        if not self._goes_on:
            return
        for number in range(FLOOD_NODES):
            heartbeat = Heartbeat(f"flood-{number:03d}", 1, 1, FLOOD_HOST, 0)
            self._world.network.broadcast(agent_address(FLOOD_HOST), heartbeat)
        self._world.agenda.after(self._world.sizes.heartbeat_interval_s, self._speak)


class TurnChecks:
    """Checks that no node waits longer than its own host makes it wait."""

    def __init__(self, world: World, check: Callable[..., None]) -> None:
        self._world = world
        self._check = check
        #: all hosts together, and one that floods, cannot take all places
        self._is_roomy = (world.sizes.nodes + 1) * HOST_RESYNCS_IN_FLIGHT_MAX <= RESYNCS_IN_FLIGHT_MAX
        self._since_s: dict[str, dict[str, float]] = {}  # scheduler -> node -> when it was seen to wait first

    def stepped(self, scheduler: SimScheduler) -> None:
        """A scheduler took a step."""
        turns = scheduler.core.nodes.resync_turns
        if not turns.waiting or not self._is_roomy:
            self._since_s.pop(scheduler.name, None)
            return
        before, now = self._since_s.get(scheduler.name, {}), self._world.now
        waiting = turns.waiting & self._world.nodes.keys()
        self._since_s[scheduler.name] = since_s = {node: before.get(node, now) for node in sorted(waiting)}
        late = [node for node, at_s in since_s.items() if now - max(at_s, scheduler.disturbed_s) > WAIT_MAX_S]
        self._check("its_turn", not late, scheduler.name, "waiting for more than", WAIT_MAX_S, "s:", *late)
