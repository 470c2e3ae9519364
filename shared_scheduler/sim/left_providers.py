# SPDX-License-Identifier: Apache-2.0
"""A compute that was deleted long ago has left its provider in Placement: empty, so that it fits every request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: a search for a node takes less than so many usual calls to Placement
SEARCH_CALLS = 2


class LeftProvider:
    """The provider, from ``begin`` until an operator deletes it (``end``)."""

    def __init__(self, world: World, node: str) -> None:
        self._world = world
        self._node = node

    def begin(self) -> None:
        """It is seen in Placement."""
        self._world.placement.add_provider(self._node, self._node, self._world.sizes.size.inventories())

    def end(self) -> None:
        """It is deleted."""
        del self._world.placement.providers[self._node]


class SearchChecks:
    """Checks that no request waits for the row of a provider that is no node longer than the search for it takes."""

    def __init__(self, world: World, check: Callable[..., None]) -> None:
        self._world = world
        self._check = check
        self._since_s: dict[str, dict[str, float]] = {}  # scheduler -> provider -> when it was seen to be awaited first

    def stepped(self, scheduler: SimScheduler) -> None:
        """A scheduler took a step."""
        world, before = self._world, self._since_s.pop(scheduler.name, {})
        left = (scheduler.core.recheck.awaited & world.placement.providers.keys()) - world.nodes.keys()
        if not left:
            return
        self._since_s[scheduler.name] = since_s = {node: before.get(node, world.now) for node in sorted(left)}
        if world.placement.answers and not world.was_down_since(min(since_s.values())):
            late = [node for node, at_s in since_s.items() if self._is_late(max(at_s, scheduler.disturbed_s))]
            self._check("no_wait_for_no_node", not late, scheduler.name, "waits for", *late)

    def _is_late(self, since_s: float) -> bool:
        return self._world.now - since_s > SEARCH_CALLS * self._world.sizes.placement_s
