# SPDX-License-Identifier: Apache-2.0
"""Many requests for servers of one label at the same moment, by way of all schedulers.

``core/spread_check.py`` explains how they wait for each other.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.decision.request import LABEL_POLICY
from shared_scheduler.decision.spread_request import label_uuid
from shared_scheduler.sim.workload import PROJECT, RACE_S, ServerGroup

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: the requests of one burst that is drawn
BURST = (12, 20)


class LabelBurst:
    """The requests of a burst for a label that nobody had before."""

    def __init__(self, world: World, rng: Random, max_skew: int = 1) -> None:
        self._world = world
        self._rng = rng
        self._max_skew = max_skew

    def plan(self, at_s: float, requests: int) -> None:
        """Let so many requests come within milliseconds."""
        group = self._label()
        for _ in range(requests):
            self._world.agenda.at(at_s + RACE_S * self._rng.random(), self._ask, group)

    def _label(self) -> ServerGroup:
        users = self._world.users
        label = f"burst-{len(users.groups) + 1}"
        group = ServerGroup(label_uuid(PROJECT, label), LABEL_POLICY, 1, label=label, max_skew=self._max_skew)
        users.groups.append(group)
        return group

    def _ask(self, group: ServerGroup) -> None:
        users = self._world.users
        if not (self._world.is_open and self._world.schedulers):
            return
        racing, users.racing = users.racing, group
        self._world.ask()
        users.racing = racing
