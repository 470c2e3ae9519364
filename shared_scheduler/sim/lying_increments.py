# SPDX-License-Identifier: Apache-2.0
"""The increments of a stolen compute node, which accept claims that nobody has accepted.

An increment names no host, so with host keys a stolen node sends those of its own node, and of nodes that no database
has (``transport/channel.py``).  Each names a claim that it has overheard: of another node, or of its own one, which its
agent may refuse, or one that does not exist.  It says that this is pending, or has ended, and that the server is there.
The epoch and the sequence are the next ones of its agent, or old ones, or such as leave a gap.  Some are sent twice,
some long after the claim, and some come among the news of a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.protocol.messages import Claim, Consumer, Increment, Verdict
from shared_scheduler.sim.nodes import SimNode

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: part of the claims about which it lies so
PART = 0.5
#: a lie is sent before the claim arrives, when it has been accepted, or when it has ended
AFTER_S = (0.0, 0.0, 0.02, 1.0, 5.0)
#: how much older its epoch is than that of the agent, and how much newer its sequence
EPOCHS_AGO, SEQUENCES_AHEAD = (0, 0, 0, 1, 1_000), (1, 1, 1, 0, -1, 2, 5)
#: how often it is sent
TIMES = (1, 1, 2)
#: part of the lies that are news of a verdict, that say that the claim has ended, and that do not name the server
AS_NEWS, ENDED, WITHOUT_SERVER = 0.2, 0.2, 0.5
#: part of the lies of a node, and of a claim, that do not exist
NO_NODE, NO_CLAIM = 0.1, 0.2
INVENTED_NODE = "node-invented"


class LyingIncrements:
    """``is_lying``: whether the node still lies."""

    def __init__(self, world: World, node: SimNode, rng: Random, is_lying: Callable[[], bool]) -> None:
        self._world = world
        self._node = node
        self._rng = rng
        self._is_lying = is_lying

    def overhear(self, scheduler: str, claim: Claim) -> None:
        """A scheduler casts a claim."""
        if self._rng.random() < PART:
            self._world.agenda.after(self._rng.choice(AFTER_S), self._lie, scheduler, claim)

    def _lie(self, scheduler: str, claim: Claim) -> None:
        if self._node.agent is None or not self._is_lying():
            return
        self._world.counters["lies_by_increments"] += 1
        self._world.checkers.lied(self._node.node)
        lie = self._increment(claim)
        for _ in range(self._rng.choice(TIMES)):
            self._send(scheduler, lie)

    def _send(self, scheduler: str, lie: Increment) -> None:
        network, address = self._world.network, self._node.address
        if self._rng.random() < AS_NEWS:
            network.cast(address, scheduler, Verdict("no-claim", lie.node, lie.epoch, True, None, lie.sequence, (lie,)))
        else:
            network.broadcast(address, lie)

    def _increment(self, claim: Claim) -> Increment:
        assert self._node.agent is not None
        rng, pipe = self._rng, self._node.agent.publisher.pipe
        node = INVENTED_NODE if rng.random() < NO_NODE else self._node.node
        epoch = max(1, pipe.epoch - rng.choice(EPOCHS_AGO))
        sequence = max(1, pipe.sequence + rng.choice(SEQUENCES_AHEAD))
        claim_id = f"{claim.claim_id}0" if rng.random() < NO_CLAIM else claim.claim_id
        pending = None if rng.random() < ENDED else claim.consumer
        return Increment(node, epoch, sequence, {}, self._servers(node, claim), {claim_id: pending})

    def _servers(self, node: str, claim: Claim) -> Mapping[str, Consumer]:
        """The server of a claim, as if it had been claimed here."""
        if self._rng.random() < WITHOUT_SERVER:
            return {}
        group = "" if claim.group is None else claim.group.uuid
        (amounts,) = claim.allocations.values()
        return {claim.consumer: Consumer({node: amounts}, True, group)}
