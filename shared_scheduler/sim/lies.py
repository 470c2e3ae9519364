# SPDX-License-Identifier: Apache-2.0
"""A stolen compute node that answers and releases the claims of other nodes, and accepts claims by increments.

It reads everything on the message queue.  With host keys it signs as itself only, so it names its own node in verdicts
and its own address in releases (and in increments: ``lying_increments.py``).  Messages in the name of another host are
dropped before they reach a core (``protocol/host_keys.py``), and are not simulated.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.protocol.messages import Claim, Reason, RefusalCode, Release, Verdict
from shared_scheduler.sim.lying_increments import LyingIncrements
from shared_scheduler.sim.nodes import SimNode

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: a release is sent before the claim arrives, while it is judged, or when it is written
RELEASES_AFTER_S = (0.0, 0.002, 0.02)


class LyingNode:
    """Lies about each claim that is cast to another node, and by increments about those of its own, too."""

    def __init__(self, world: World, node: SimNode, rng: Random, rng_of_increments: Random) -> None:
        self._world = world
        self._node = node
        self._rng = rng
        self._increments = LyingIncrements(world, node, rng_of_increments, lambda: self in world.liars)

    def overhear(self, scheduler: str, claim: Claim) -> None:
        """A scheduler casts a claim."""
        self._increments.overhear(scheduler, claim)
        if claim.node == self._node.node:
            return
        self._world.counters["lies"] += 1
        if self._rng.random() < 0.5:
            self._answer(scheduler, claim)
        else:
            self._world.agenda.after(self._rng.choice(RELEASES_AFTER_S), self._release, claim)

    def _answer(self, scheduler: str, claim: Claim) -> None:
        accepted = self._rng.random() < 0.5
        reason = None if accepted else Reason(RefusalCode.NO_CAPACITY)
        lie = Verdict(claim.claim_id, self._node.node, claim.seen_epoch, accepted, reason, claim.seen_sequence + 1)
        self._world.network.cast(self._node.address, scheduler, lie)

    def _release(self, claim: Claim) -> None:
        victim = self._world.nodes.get(claim.node)
        if victim is not None:
            lie = Release(claim.claim_id, claim.node, self._node.address, claim.consumer)
            self._world.network.cast(self._node.address, victim.address, lie)
