# SPDX-License-Identifier: Apache-2.0
"""The events of the agent's core.  The edges make them from socket messages, HTTP answers and timers.

``AgentCore.step(event, now)`` takes one event and returns the effects.  All times are in seconds of one
monotonic clock, which the caller owns.  Each event concerns the one node of the core.
Each event has a ``cause`` (``shared_scheduler/protocol/causes.py``); the answer to a read has the cause of the read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared_scheduler.model.providers import Provider
from shared_scheduler.protocol.causes import cause_of
from shared_scheduler.protocol.messages import Allocations, Leaf, Message


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
    """A source of nova-compute's reports is connected; ``mode`` becomes the leaf ``agent.mode``.

    Its first report is complete.  Until then the agent is not authoritative for the node.
    """

    mode: str
    cause: str = field(default="nova-compute connected", kw_only=True)


@dataclass(frozen=True, slots=True)
class TrackerReported:
    """What the resource tracker holds: all of it (``complete``), or what changed.

    ``leaves`` have the names of ``model/leaves.py`` without ``rp.`` and ``agent.``; a leaf or member
    that is None is gone.  ``ready``: whether nova-compute has audited the node since it started.
    """

    leaves: Mapping[str, Leaf]
    members: Mapping[str, Member | None] = field(default_factory=dict)
    complete: bool = False
    ready: bool = True
    cause: str = field(default="nova-compute reported", kw_only=True)


@dataclass(frozen=True, slots=True)
class TrackerLost:
    """nova-compute does not report any more: its socket was closed or its service record is old."""

    why: str
    cause: str = field(default="nova-compute lost", kw_only=True)


@dataclass(frozen=True, slots=True)
class ClaimBegun:
    """nova-compute begins to claim for this instance, on a node of the host that it does not tell.  If no claim for the
    instance is pending at the agent, it was placed here without one."""

    consumer: str

    @property
    def cause(self) -> str:
        return f"nova-compute claims for {self.consumer}"


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """nova-compute refused to claim for this instance; ``kind`` is the name of its method."""

    consumer: str
    kind: str
    text: str

    @property
    def cause(self) -> str:
        return f"nova-compute claims for {self.consumer}"


@dataclass(frozen=True, slots=True)
class BuildEnded:
    """nova-compute has built this instance, or failed to; ``text`` is the error."""

    consumer: str
    succeeded: bool
    text: str = ""

    @property
    def cause(self) -> str:
        return f"build of {self.consumer}"


@dataclass(frozen=True, slots=True)
class TreeChanged:
    """nova-compute wrote its provider tree to Placement, so the agent should read it again."""

    cause: str = field(default="nova-compute wrote the provider tree", kw_only=True)


@dataclass(frozen=True, slots=True)
class TreeRead:
    """The answer to ``ReadTree``: all providers of the node's tree, empty while it has none."""

    providers: tuple[Provider, ...]
    started_at_s: float
    cause: str = field(default="provider tree read", kw_only=True)


@dataclass(frozen=True, slots=True)
class AllocationsRead:
    """The answer to ``ReadAllocations``: every consumer of the node's tree, and the ``generations`` that are known."""

    consumers: Mapping[str, Allocations]
    started_at_s: float
    generations: Mapping[str, int] = field(default_factory=dict)
    cause: str = field(default="allocations read", kw_only=True)


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """A ``ReadTree`` (``what`` is "tree") or ``ReadAllocations`` ("allocations") failed."""

    what: str
    why: str
    cause: str = field(default="read failed", kw_only=True)


@dataclass(frozen=True, slots=True)
class MessagesArrived:
    """Decoded messages of the state channel, oldest first, and when the first of them arrived."""

    messages: tuple[Message, ...]
    arrived_at_s: float

    @property
    def cause(self) -> str:
        """The cause of the first message.  The core uses the cause of each message while it handles that message."""
        return cause_of(self.messages[0]) if self.messages else "no message"


@dataclass(frozen=True, slots=True)
class CastReturned:
    """The broker has returned a message: the scheduler to which it was cast is not connected."""

    message: Message

    @property
    def cause(self) -> str:
        return cause_of(self.message)


@dataclass(frozen=True, slots=True)
class ChannelChanged:
    """The state channel was connected (again) or lost."""

    connected: bool

    @property
    def cause(self) -> str:
        return "channel connected" if self.connected else "channel lost"


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed.  ``AgentCore.next_deadline_s()`` is when the core needs one."""

    cause: str = field(default="tick", kw_only=True)


@dataclass(frozen=True, slots=True)
class Stopping:
    """A clean shutdown: send Leave and judge no more claims."""

    cause: str = field(default="agent is stopping", kw_only=True)


Event = (
    TrackerConnected
    | TrackerReported
    | TrackerLost
    | ClaimBegun
    | ClaimRefused
    | BuildEnded
    | TreeChanged
    | TreeRead
    | AllocationsRead
    | ReadFailed
    | MessagesArrived
    | CastReturned
    | ChannelChanged
    | Tick
    | Stopping
)
