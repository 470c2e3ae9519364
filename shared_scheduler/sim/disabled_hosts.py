# SPDX-License-Identifier: Apache-2.0
"""Operators who disable hosts and enable them again, often so soon that a read of Placement is under way.

nova-compute gives the trait to its provider, or takes it away, and tells its agent that the tree was written.  Without
that, agents read their trees every twenty minutes only.  A nova-compute that is down, or that cannot reach Placement,
does so later.  The records of the services are not simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from compute_agent import events as ev
from shared_scheduler.model.services import DISABLED_TRAIT
from shared_scheduler.sim.selections import is_disabled

if TYPE_CHECKING:
    from shared_scheduler.sim.nodes import SimNode
    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: mean time between two hosts that are disabled, and how long one of them may be
DISABLES_S = 1.0
LASTS_S = (0.0, 0.002, 0.02, 1.0, 5.0)
#: time after which nova-compute tries again to write the trait
AGAIN_S = 1.0
#: nodes that are enabled at any time
ENABLED_MIN = 1
#: calls to Placement of an agent that is told while it reads already
READ_CALLS = 4


class DisabledHosts:
    """``check`` counts a check, and stores the violation if there is one (``Checkers.check``)."""

    def __init__(self, world: World, rng: Random, check: Callable[..., None]) -> None:
        self._world = world
        self._rng = rng
        self._check = check
        self._disabled: set[str] = set()  # as the operator has told, nodes
        if world.users.workload.disables:
            world.agenda.after(rng.expovariate(1 / DISABLES_S), self._next)

    def _next(self) -> None:
        world, rng = self._world, self._rng
        if not world.is_open:
            return
        enabled = [node for node in world.nodes if node not in self._disabled]
        if len(enabled) > ENABLED_MIN:
            node = world.nodes[rng.choice(enabled)]
            self._disabled.add(node.node)
            world.counters["hosts_disabled"] += 1
            self._write(node)
            world.agenda.work(rng.choice(LASTS_S), self._enable, node)
        world.agenda.after(rng.expovariate(1 / DISABLES_S), self._next)

    def _enable(self, node: SimNode) -> None:
        self._disabled.discard(node.node)
        self._write(node)

    def _write(self, node: SimNode) -> None:
        """nova-compute writes the trait if it has to, and tells its agent."""
        world, disabled = self._world, node.node in self._disabled
        provider = world.placement.providers.get(node.node)
        if provider is None or is_disabled(provider) == disabled:
            return
        if not (node.compute_up and world.placement.up):
            world.agenda.work(AGAIN_S, self._write, node)
            return
        traits, generation = provider.traits ^ {DISABLED_TRAIT}, provider.generation + 1
        world.placement.providers[node.node] = replace(provider, traits=traits, generation=generation)
        world.trace.note(node.node, f"is {'disabled' if disabled else 'enabled'}")
        node.feed(ev.TreeChanged())
        if node.agent is not None:
            world.agenda.work(self._read_s(), self._look, node, node.lives, world.now)

    def _read_s(self) -> float:
        return READ_CALLS * 1.5 * self._world.sizes.placement_s

    def _look(self, node: SimNode, life: int, told_s: float) -> None:
        """Check that the agent knows, unless it was away, or Placement."""
        world, agent = self._world, node.agent
        provider = world.placement.providers.get(node.node)
        if agent is None or node.frozen or life != node.lives or provider is None or world.was_down_since(told_s):
            return
        known = agent.ledger.mirror.providers.get(node.node)
        right = known is not None and is_disabled(known) == is_disabled(provider)
        if agent.tree.reading and not right:  # perhaps of a later change, or after it was frozen
            world.agenda.work(self._read_s(), self._look, node, life, told_s)
            return
        self._check("enabled", right, node.node, "is disabled:", is_disabled(provider))

    def check_at_rest(self, scheduler: SimScheduler) -> None:
        """Check that every host is enabled for a scheduler."""
        rows = (row for row in scheduler.core.table.rows() if row.node in self._world.nodes)
        left = [row.node for row in rows if row.node in row.providers and is_disabled(row.providers[row.node])]
        self._check("enabled", not left, scheduler.name, "has as disabled", *left)
