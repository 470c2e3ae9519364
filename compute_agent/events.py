# SPDX-License-Identifier: Apache-2.0
"""What the agent's core is told.  Edges turn socket messages, HTTP answers and timers into these.

``AgentCore.step(event, now)`` takes one and returns the effects.  All times are seconds of one
monotonic clock that the caller owns.  Everything here concerns the one node that the core speaks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared_scheduler.protocol.messages import Allocations, Leaf, Message
from shared_scheduler.state.providers import Provider


@dataclass(frozen=True, slots=True)
class Member:
    """How nova-compute's resource tracker counts an instance on the node.

    ``instance``: it is one of the node's instances.  ``migration``: the uuid of the migration that
    moves it in or out, empty if none; the migration's uuid is a consumer of its own in Placement.
    """

    instance: bool = True
    migration: str = ""


@dataclass(frozen=True, slots=True)
class TrackerConnected:
    """Something speaks for nova-compute from now on: ``mode`` is that of ``agent.mode``.

    What it reports first is complete; until then the node is not authoritative.
    """

    mode: str


@dataclass(frozen=True, slots=True)
class TrackerReported:
    """What the resource tracker holds: all of it (``complete``), or what changed.

    ``leaves`` have the names of ``state/leaves.py`` without ``rp.`` and ``agent.``; a leaf or member
    that is None is gone.  ``ready`` tells that nova-compute has audited the node since it started.
    """

    leaves: Mapping[str, Leaf]
    members: Mapping[str, Member | None] = field(default_factory=dict)
    complete: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class TrackerLost:
    """nova-compute is away (its socket closed, its service record is old) or dropped the node."""

    why: str


@dataclass(frozen=True, slots=True)
class ClaimBegun:
    """nova-compute begins to claim for this instance: if we know nothing of it, somebody else placed
    it here."""

    consumer: str


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """nova-compute itself refused to claim for this instance; ``kind`` is the name of its method."""

    consumer: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class TreeChanged:
    """nova-compute wrote its provider tree: a hint to read it again."""


@dataclass(frozen=True, slots=True)
class TreeRead:
    """The answer to ``ReadTree``: all providers of the node's tree, empty while it has none."""

    providers: tuple[Provider, ...]
    started_at_s: float


@dataclass(frozen=True, slots=True)
class AllocationsRead:
    """The answer to ``ReadAllocations``: every consumer of the node's tree."""

    consumers: Mapping[str, Allocations]
    started_at_s: float


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """A ``ReadTree`` (``what`` is "tree") or ``ReadAllocations`` ("allocations") has no answer."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class MessagesArrived:
    """Decoded messages of the state channel, oldest first, and when the first of them came in."""

    messages: tuple[Message, ...]
    arrived_at_s: float


@dataclass(frozen=True, slots=True)
class ChannelChanged:
    """The state channel was connected (again), or lost."""

    connected: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed.  ``AgentCore.next_deadline_s()`` says when the core wants one."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """A clean shutdown: say Goodbye, judge nothing more."""


Event = (
    TrackerConnected
    | TrackerReported
    | TrackerLost
    | ClaimBegun
    | ClaimRefused
    | TreeChanged
    | TreeRead
    | AllocationsRead
    | ReadFailed
    | MessagesArrived
    | ChannelChanged
    | Tick
    | Stopping
)
