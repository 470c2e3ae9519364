# SPDX-License-Identifier: Apache-2.0
"""The events of the scheduler core.  Edges turn messages, timers, RPC and HTTP answers into these.

``SchedulerCore.step(event, now)`` takes one and returns the effects; ``now`` is in seconds of a
monotonic clock that the caller owns.  Each event has a ``cause`` (``protocol/causes.py``); what answers an
effect has the cause of that effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared_scheduler.decision.request import Request
from shared_scheduler.model.aggregates import AggregateFacts as AggregateFacts
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.services import ServiceFacts as ServiceFacts
from shared_scheduler.protocol.causes import Caused, cause_of
from shared_scheduler.protocol.messages import Allocations, Leaf, Message


@dataclass(frozen=True, slots=True)
class MessagesArrived:
    """Decoded messages of one cell's state channel, oldest first."""

    cell: str
    messages: tuple[Message, ...]

    @property
    def cause(self) -> str:
        """That of the first message; the core takes each message for a cause of its own."""
        return cause_of(self.messages[0]) if self.messages else f"no message of cell {self.cell}"


@dataclass(frozen=True, slots=True)
class ChannelChanged:
    """The state channel of a cell was connected (again), or lost."""

    cell: str
    connected: bool

    @property
    def cause(self) -> str:
        return f"channel {'connected' if self.connected else 'lost'}: {self.cell}"


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A select_destinations call.  ``deadline_s`` is the last moment (same clock as ``now``) at
    which an answer is still of use to the caller."""

    request: Request
    deadline_s: float

    @property
    def cause(self) -> str:
        return self.request.request_id


@dataclass(frozen=True, slots=True)
class ServicesRead:
    """``complete``: these are all services of the cell, others are gone.  Otherwise an update."""

    cell: str
    services: tuple[ServiceFacts, ...]
    complete: bool
    cause: str = field(default="services read", kw_only=True)


@dataclass(frozen=True, slots=True)
class AggregatesRead:
    """``complete``: these are all aggregates.  Otherwise they replace those with the same id."""

    aggregates: tuple[AggregateFacts, ...]
    deleted: frozenset[int] = frozenset()
    complete: bool = False
    cause: str = field(default="aggregates read", kw_only=True)


@dataclass(frozen=True, slots=True)
class SharingRead:
    """All resource providers that share with other trees through an aggregate, by uuid."""

    providers: Mapping[str, Provider]
    cause: str = field(default="sharing providers read", kw_only=True)


@dataclass(frozen=True, slots=True)
class NodeRead:
    """What databases and Placement say of one node: the source of provisional rows.

    ``leaves`` and ``consumers`` have the shape that an agent would publish
    (``shared_scheduler/model/leaves.py``).  Ignored while the node's agent reports.
    ``read_at_s`` is when the read began, so that claims made later survive it.
    """

    cell: str
    node: str
    host: str
    nodename: str
    leaves: Mapping[str, Leaf]
    consumers: Mapping[str, Allocations]
    members: frozenset[str]  # instance uuids on the host
    read_at_s: float
    cause: str = field(default="node read", kw_only=True)


@dataclass(frozen=True, slots=True)
class NodesGone:
    """Compute nodes that no longer exist in their cell's database."""

    cell: str
    nodes: frozenset[str]
    cause: str = field(default="nodes gone", kw_only=True)


class WriteCode(StrEnum):
    """How one allocation write ended.  Told apart by Placement's error code, never by its text."""

    WRITTEN = "written"  # also: a lost reply, and the existing allocations are exactly those of the claim
    NO_CAPACITY = "no_capacity"  # this provider cannot take it: learn, next host
    PROVIDER_CONFLICT = "provider_conflict"  # raced, retries used up: next host
    CONSUMER_CONFLICT = "consumer_conflict"  # the consumer holds other allocations: hard error
    UNKNOWN_PROVIDER = "unknown_provider"  # stale topology: forget the node, next host
    UNREACHABLE = "unreachable"  # outcome read back as "not written", or nothing could be learned
    REJECTED = "rejected"  # Placement says that the request itself is wrong


@dataclass(frozen=True, slots=True)
class AllocationWritten(Caused):
    """The answer to a ``WriteAllocation``.  ``written`` is the consumer's allocation if WRITTEN (after a
    merge it is more than what was asked), and what may stand there if UNREACHABLE; ``before`` what a
    merge found."""

    claim_id: str
    code: WriteCode
    detail: str = ""
    written: Allocations = field(default_factory=dict)
    before: Allocations = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocationDeleted(Caused):
    """The answer to a ``DeleteAllocation``; ``gone`` False means that it could not be verified, or
    with ``left_alone`` that somebody else has added to it: then it is theirs, and not tried again."""

    claim_id: str
    gone: bool
    detail: str = ""
    left_alone: bool = False


@dataclass(frozen=True, slots=True)
class AnswerUnheard(Caused):
    """The caller of an ``Answer`` had gone: what its claims wrote is of use to nobody."""

    claim_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One allocation candidate: ``{"allocations": ..., "mappings": ...}`` of Placement."""

    allocations: Allocations
    mappings: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CandidatesAnswered(Caused):
    """The answer to an ``AskCandidates``.  ``error`` empty on success, ``candidates`` may be empty."""

    ask_id: str
    candidates: tuple[Candidate, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class FittingAnswered(Caused):
    """The answer to an ``AskFitting``: root providers that Placement says fit."""

    ask_id: str
    nodes: frozenset[str]
    error: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerAnswered(Caused):
    """The answer to a ``LookUpConsumer``: its allocations, empty if it has none."""

    consumer: str
    allocations: Allocations
    error: str = ""


@dataclass(frozen=True, slots=True)
class GroupAnswered(Caused):
    """The answer to a ``LookUpGroup``: the members that hold allocations, with their providers."""

    ask_id: str
    standing: Mapping[str, frozenset[str]]
    error: str = ""


@dataclass(frozen=True, slots=True)
class NodeDoubted:
    """Placement shows other providers than the node's row: its agent, or this scheduler, has to read them."""

    node: str
    why: str
    cause: str = field(default="node doubted", kw_only=True)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed.  The core says by ``next_deadline_s()`` when it wants one."""

    cause: str = field(default="tick", kw_only=True)


@dataclass(frozen=True, slots=True)
class Stopping:
    """The service stops: every request, begun or yet to begin, ends by ``deadline_s``."""

    deadline_s: float
    cause: str = field(default="service is stopping", kw_only=True)


@dataclass(frozen=True, slots=True)
class Draining:
    """The service stops: refuse new requests, end the others."""

    cause: str = field(default="service is draining", kw_only=True)


Event = (
    MessagesArrived
    | ChannelChanged
    | RequestArrived
    | ServicesRead
    | AggregatesRead
    | SharingRead
    | NodeRead
    | NodesGone
    | AllocationWritten
    | AllocationDeleted
    | AnswerUnheard
    | CandidatesAnswered
    | FittingAnswered
    | ConsumerAnswered
    | GroupAnswered
    | NodeDoubted
    | Tick
    | Stopping
    | Draining
)
