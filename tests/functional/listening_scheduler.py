# SPDX-License-Identifier: Apache-2.0
"""A scheduler that only listens: it applies messages of agents on the real bus in order, and casts single claims."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import (
    Allocations,
    Claim,
    Consumer,
    Heartbeat,
    Hello,
    Increment,
    Leaf,
    Message,
    Release,
    Role,
    Snapshot,
    Usage,
    Verdict,
    Want,
    agent_address,
)
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url

Kind = TypeVar("Kind", bound=Message)
#: How long a message that must come may take; a machine with other work may stand still for many seconds.
PATIENCE_S = 240.0


@dataclass
class Row:
    """One node as its agent publishes it."""

    host: str
    epoch: int
    sequence: int
    leaves: dict[str, Leaf] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)

    def digest(self) -> int:
        return digest_of(self.leaves, self.consumers, self.claims)

    def used(self, node: str, resource_class: str) -> int:
        rows = [one.allocations.get(node, {}) for one in self.consumers.values()]
        return sum(row.get(resource_class, 0) for row in rows)


class ListeningScheduler:
    """Connect with ``start``; ``wait`` until a condition holds."""

    def __init__(self, transport_url: str) -> None:
        self.heard: list[tuple[float, Message]] = []
        self.rows: dict[str, Row] = {}
        self._changed = threading.Condition()
        bus = KombuBus(parse_transport_url(transport_url), CHANNEL_NAME)
        self._endpoint = bus.scheduler_endpoint("listener")

    def start(self) -> ListeningScheduler:
        self._endpoint.start(self._receive, self._connected)
        return self

    def close(self) -> None:
        self._endpoint.close()

    def _connected(self, connected: bool) -> None:
        if connected:
            hello = Hello(Role.SCHEDULER, self._endpoint.address, 1, want=Want.SNAPSHOT)
            self._endpoint.broadcast(encode(hello))

    def _receive(self, bodies: Sequence[bytes]) -> None:
        with self._changed:
            for body in bodies:
                message = decode(body)
                self.heard.append((time.monotonic(), message))
                self._apply(message)
            self._changed.notify_all()

    def _apply(self, message: Message) -> None:
        if isinstance(message, Snapshot):
            self.rows[message.node] = Row(
                message.host, message.epoch, message.sequence, dict(message.leaves),
                dict(message.consumers), dict(message.claims),
            )  # fmt: skip
        elif isinstance(message, Increment):
            row = self.rows.get(message.node)
            if row and (message.epoch, message.sequence) == (row.epoch, row.sequence + 1):
                row.sequence = message.sequence
                _merge(row.leaves, message.leaves)
                _merge(row.consumers, message.consumers)
                _merge(row.claims, message.claims)

    def wait(self, true: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
        """Wait until ``true()`` is true, and return its value."""
        with self._changed:
            if not self._changed.wait_for(true, timeout_s):
                raise AssertionError(f"not heard within {timeout_s} s: {what}\n{self._summary()}")
            return true()

    def _summary(self) -> str:
        """The rows without static leaves."""
        lines = []
        for node, row in self.rows.items():
            numbers = {key: one for key, one in row.leaves.items() if isinstance(one, int)}
            lines.append(f"{row.host} {node} {row.epoch}/{row.sequence}: {numbers} {row.consumers} {row.claims}")
        return "\n".join(lines)

    def row(self, host: str) -> Row | None:
        return next((row for row in self.rows.values() if row.host == host), None)

    def node(self, host: str) -> str:
        return next(node for node, row in self.rows.items() if row.host == host)

    def wait_ready(self, host: str) -> Row:
        def ready() -> Row | None:
            row = self.row(host)
            return row if row is not None and row.leaves.get("agent.ready") is True else None

        found: Row = self.wait(ready, f"{host} to be ready")
        return found

    def said(self, kind: type[Kind], since_s: float = 0.0) -> list[Kind]:
        return [one for at_s, one in self.heard if isinstance(one, kind) and at_s >= since_s]

    def claim(
        self,
        host: str,
        consumer: str,
        allocations: Allocations,
        usage: Usage,
        topology: str = "",
        claim_id: str = "",
    ) -> Verdict:
        """Cast a claim to the host's agent and wait for the verdict."""
        row, node = self.rows[self.node(host)], self.node(host)
        claim_id = claim_id or str(uuid.uuid4())
        asked = Claim(
            claim_id, node, self._endpoint.address, consumer, allocations, usage, topology,
            row.epoch, row.sequence,
        )  # fmt: skip
        self._endpoint.cast(agent_address(host), encode(asked))

        def answered() -> Verdict | None:
            return next((one for one in self.said(Verdict) if one.claim_id == claim_id), None)

        verdict: Verdict = self.wait(answered, f"a verdict of {host}")
        return verdict

    def release(self, host: str, claim_id: str, consumer: str) -> None:
        release = Release(claim_id, self.node(host), self._endpoint.address, consumer)
        self._endpoint.cast(agent_address(host), encode(release))

    def wait_verified(self, host: str) -> None:
        """Wait until a heartbeat with the sequence of our copy has the digest of our copy."""

        def verified() -> bool:
            node = self.node(host)
            row = self.rows[node]
            return any(
                (heartbeat.node, heartbeat.sequence, heartbeat.digest) == (node, row.sequence, row.digest())
                for heartbeat in self.said(Heartbeat)
            )

        self.wait(verified, f"a heartbeat of {host} that verifies our copy")


def _merge(target: dict[str, Any], changed: Any) -> None:
    for key, value in changed.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
