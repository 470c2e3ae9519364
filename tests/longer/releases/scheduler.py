# SPDX-License-Identifier: Apache-2.0
"""A scheduler's channel that talks with one agent; runs with the code of the tree in PYTHONPATH.

Uses only what each release has.  Prints what it has heard as JSON.

    python scheduler.py URL HOST NODE
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from shared_scheduler.protocol.messages import (
    Claim,
    Heartbeat,
    Hello,
    Increment,
    Message,
    Release,
    Resync,
    Role,
    Snapshot,
    Usage,
    Verdict,
    Want,
    agent_address,
)
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url

WAIT_S = 60.0
VCPU = {"VCPU": 1}


class Talk:
    """Casts to the agent, and waits for what it says."""

    def __init__(self, url: str, host: str, node: str) -> None:
        self.host, self.node = host, node
        self.heard: list[Message] = []
        self._changed = threading.Condition()
        self.channel = Channel(KombuBus(parse_transport_url(url), CHANNEL_NAME).scheduler_endpoint("talk"))
        self.channel.start(self._received, lambda connected: None)

    def _received(self, messages: Sequence[Message]) -> None:
        with self._changed:
            self.heard += messages
            self._changed.notify_all()

    def cast(self, message: Message) -> None:
        self.channel.cast(agent_address(self.host), message)

    def wait(self, true: Callable[[Message], bool]) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: any(map(true, self.heard)), WAIT_S):
                raise TimeoutError(f"heard only {self.heard}")
            return next(filter(true, self.heard))

    def claim(self, claim_id: str, consumer: str, seen: Snapshot) -> Verdict:
        self.cast(
            Claim(
                claim_id=claim_id, node=self.node, scheduler=self.channel.address, consumer=consumer,
                allocations={self.node: VCPU}, usage=Usage(1, 0, 0, 1, 1), seen_epoch=seen.epoch,
                seen_sequence=seen.sequence,
            )
        )  # fmt: skip
        found: Verdict = self.wait(lambda one: isinstance(one, Verdict) and one.claim_id == claim_id)
        return found


def main(url: str, host: str, node: str) -> dict[str, object]:
    """A life of a scheduler: asks for a snapshot, claims until the node is full, releases, asks for what it missed."""
    talk = Talk(url, host, node)
    talk.channel.broadcast(Hello(Role.SCHEDULER, talk.channel.address, 1, want=Want.SNAPSHOT))
    first = talk.wait(lambda one: isinstance(one, Snapshot) and one.leaves.get("agent.ready") is True)
    talk.channel.broadcast(Hello(Role.SCHEDULER, talk.channel.address, 1, want=Want.HEARTBEAT))
    talk.wait(lambda one: isinstance(one, Heartbeat))
    verdicts = [talk.claim(f"c{n}", f"vm-{n}", first) for n in range(5)]
    talk.cast(Release("c0", node, talk.channel.address, "vm-0"))
    talk.wait(lambda one: isinstance(one, Increment) and one.claims.get("c0", "") is None)
    talk.heard = []
    talk.cast(Resync(node, talk.channel.address, 0, 0))
    after = talk.wait(lambda one: isinstance(one, Snapshot))
    talk.channel.close()
    return {
        "accepted": [one.accepted for one in verdicts],
        "refused_by": verdicts[-1].reason.code if verdicts[-1].reason else "",
        "pending": sorted(after.claims),
        "counters": dict(talk.channel.counters),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
