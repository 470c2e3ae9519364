# SPDX-License-Identifier: Apache-2.0
"""Nodes for which two agents speak, usually because a machine was cloned with its ``/var/lib/nova``.

The cell's database shows which host a node belongs to, so an agent that names another host is the second one.  Messages
that name no host are known by their epoch, because each epoch begins with a Hello, which names it.  If both agents have
the name of one host, the heartbeats of two epochs alternate.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.core.step import Timers

#: A node that moves is heard from its new host before the database is read: so long it is no second agent.
SPEAKS_S = 30.0
#: A second agent that was not heard for so long is gone.
GONE_AFTER_S = 300.0
#: The number of nodes whose second agents are remembered; the one that was heard the longest ago is forgotten first.
SECOND_AGENTS_MAX = 100
TIMER = "second agent"


@dataclass(slots=True)
class SecondAgent:
    """``host``: the one that it names; ``epoch``: its newest; ``since_s`` and ``heard_at_s``: of the core's clock."""

    node: str
    host: str
    epoch: int
    since_s: float
    heard_at_s: float


class SecondAgents:
    """One for each node, by its uuid."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._by_node: dict[str, SecondAgent] = {}  # the one that was heard last is the last

    def heard(self, node: str, host: str, epoch: int, now: float) -> None:
        """Note a message of the second agent of a node."""
        found = self._by_node.pop(node, None) or SecondAgent(node, host, epoch, now, now)
        found.host, found.epoch, found.heard_at_s = host, epoch, now
        self._by_node[node] = found
        self._timers.set((TIMER, node), now + GONE_AFTER_S)
        if len(self._by_node) > SECOND_AGENTS_MAX:
            self.forget(next(iter(self._by_node)))

    def has_epoch(self, node: str, epoch: int) -> bool:
        """Whether this is the epoch of the second agent of a node."""
        found = self._by_node.get(node)
        return found is not None and found.epoch == epoch

    def forget(self, node: str) -> None:
        """The second agent or the node is gone, or the node has another host."""
        self._by_node.pop(node, None)
        self._timers.cancel((TIMER, node))

    def speaking(self) -> list[SecondAgent]:
        """Those that go on speaking, by node."""
        found = [one for one in self._by_node.values() if one.heard_at_s - one.since_s >= SPEAKS_S]
        return sorted(found, key=lambda one: one.node)
