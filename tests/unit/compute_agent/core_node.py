# SPDX-License-Identifier: Apache-2.0
"""One agent core with a Placement that answers at once, for stories about it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, TypeVar

from compute_agent import events as ev
from compute_agent.agent_settings import AgentSettings
from compute_agent.core import AgentCore
from compute_agent.effects import Broadcast, Cast, Effect, KeptClaim, Notice, NoticeCode, ReadAllocations, ReadTree
from shared_scheduler.model.providers import Provider
from shared_scheduler.protocol.messages import Allocations, Message
from tests.unit.compute_agent.node_facts import HOST, NODE, SlotFit, report, root

Kind = TypeVar("Kind")
EPOCH = 7
SETTINGS = AgentSettings()
SCHEDULER = "ssched.scheduler.a"
#: more answers at one moment mean that the core asks again for what was just answered
ANSWERS_MAX = 1_000


class Node:
    """An agent core with its Placement: reads that the core wants are answered at once."""

    def __init__(
        self, restored: tuple[KeptClaim, ...] = (), vcpus: int = 4, groups: Mapping[str, str] | None = None
    ) -> None:
        self.now = 100.0
        self.tree: tuple[Provider, ...] = (root(vcpus),)
        self.allocations: dict[str, Allocations] = {}
        self.reachable = True
        self.done: list[Effect] = []
        self.core = AgentCore(
            NODE,
            HOST,
            "ssched.agent.cmp-1",
            EPOCH,
            SlotFit(),
            SETTINGS,
            random.Random(1),
            self.now,
            restored,
            groups,
        )

    def tell(self, *told: ev.Event) -> list[Effect]:
        """Tell it, answer its reads; returns all effects of that moment."""
        effects: list[Effect] = []
        waiting = list(told)
        steps_max = len(told) + ANSWERS_MAX
        while waiting:
            new = self.core.step(waiting.pop(0), self.now)
            effects += new
            steps_max -= 1
            assert steps_max, "the core would spin"
            waiting += [self.placement(one) for one in new if isinstance(one, ReadTree | ReadAllocations)]
        self.done += effects
        return effects

    def placement(self, read: ReadTree | ReadAllocations) -> ev.Event:
        what = "tree" if isinstance(read, ReadTree) else "allocations"
        if not self.reachable:
            return ev.ReadFailed(what, "connection refused")
        if what == "tree":
            return ev.TreeRead(self.tree, self.now)
        return ev.AllocationsRead(dict(self.allocations), self.now)

    def send(self, *messages: Message) -> list[Effect]:
        return self.tell(ev.MessagesArrived(messages, self.now))

    def pass_s(self, seconds: float) -> list[Effect]:
        """Let time pass, with a tick whenever the core wants one."""
        effects, end = [], self.now + seconds
        while (deadline := self.core.next_deadline_s(self.now)) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            due = self.core.next_deadline_s(self.now)
            assert due is not None and due <= self.now, "the service, which asks again, would not tick"
            effects += self.tell(ev.Tick())
            again = self.core.next_deadline_s(self.now)
            assert again is None or again > self.now, "the core would spin"
        self.now = end
        return effects + self.tell(ev.Tick())

    def start(self, first: ev.TrackerReported | None = None) -> list[Effect]:
        return self.tell(ev.ChannelChanged(True), ev.Tick(), ev.TrackerConnected("tap"), first or report())


def said(effects: list[Effect], kind: type[Kind]) -> list[Kind]:
    """Messages of this kind, broadcast or cast."""
    messages: list[Any] = [one.message for one in effects if isinstance(one, Broadcast | Cast)]
    return [message for message in messages if isinstance(message, kind)]


def notices(effects: list[Effect]) -> list[NoticeCode]:
    return [one.code for one in effects if isinstance(one, Notice)]
