# SPDX-License-Identifier: Apache-2.0
"""The events of the scheduler core.  Edges turn messages, timers, RPC and HTTP answers into these.

``SchedulerCore.step(event, now)`` takes one and returns the effects; ``now`` is in seconds of a
monotonic clock that the caller owns.  Each event has a ``cause`` (``protocol/causes.py``); the answer to an
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
    """Decoded messages of one cell's state channel, oldest first.  ``more``: further messages wait unread."""

    cell: str
    messages: tuple[Message, ...]
    more: bool = False

    @property
    def cause(self) -> str:
        """The cause of the first message.  The core uses each message's own cause."""
        return cause_of(self.messages[0]) if self.messages else f"no message of cell {self.cell}"


@dataclass(frozen=True, slots=True)
class CastReturned:
    """The broker has returned a message that this scheduler has cast to an agent: the agent is not connected."""

    cell: str
    message: Message

    @property
    def cause(self) -> str:
        return cause_of(self.message)


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


class BuildState(StrEnum):
    """How a server stands that was placed."""

    UNDER_WAY = "under way"
    ACTIVE = "active"
    FAILED = "failed"  # for good: nova-conductor tries no other host
    GONE = "gone"  # deleted, or moved and not built


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """A fault of a server as Nova keeps it.  ``on_node``: nova-compute of ``host`` has written it, and not
    nova-conductor.  ``at_s``: when, in seconds since 1970."""

    host: str
    reason: str
    at_s: float
    on_node: bool


@dataclass(frozen=True, slots=True)
class BuildRead:
    """What the database of a cell shows of a server since it was placed.  ``host`` and ``at_s``: of an active one;
    ``failures``: oldest first."""

    server: str
    state: BuildState
    host: str = ""
    at_s: float | None = None
    failures: tuple[BuildFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class BuildsRead:
    """The answer to each ``ReadBuild`` of a cell since the last read."""

    builds: tuple[BuildRead, ...]
    cause: str = field(default="builds read", kw_only=True)


@dataclass(frozen=True, slots=True)
class UnfinishedBuild:
    """A server that was placed before this scheduler started, and whose end no record shows.  ``failed_on``: the hosts
    whose failures are recorded."""

    server: str
    host: str
    age_s: float
    failed_on: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UnfinishedBuildsFound:
    """What the records show at the start of a scheduler of the builds that have not ended, oldest first."""

    builds: tuple[UnfinishedBuild, ...]
    cause: str = field(default="records read", kw_only=True)


@dataclass(frozen=True, slots=True)
class ServicesRead:
    """``complete``: these are all services of the cell, and others were deleted.  Otherwise an update."""

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
    """All sharing providers (they share with other trees through an aggregate), by uuid."""

    providers: Mapping[str, Provider]
    cause: str = field(default="sharing providers read", kw_only=True)


@dataclass(frozen=True, slots=True)
class NodeRead:
    """One node as read from the databases and Placement: the source of provisional rows.

    ``leaves`` and ``consumers`` have the shape that an agent would publish
    (``shared_scheduler/model/leaves.py``).  Ignored while the node's agent reports.
    ``read_at_s`` is when the read began; claims made later survive it.  ``generations`` of the consumers that have any.
    """

    cell: str
    node: str
    host: str
    nodename: str
    leaves: Mapping[str, Leaf]
    consumers: Mapping[str, Allocations]
    members: frozenset[str]  # instance uuids on the host
    read_at_s: float
    generations: Mapping[str, int] = field(default_factory=dict)
    cause: str = field(default="node read", kw_only=True)


@dataclass(frozen=True, slots=True)
class NodesGone:
    """Compute nodes that no longer exist in their cell's database."""

    cell: str
    nodes: frozenset[str]
    cause: str = field(default="nodes gone", kw_only=True)


@dataclass(frozen=True, slots=True)
class NodeNotFound:
    """A node that is to be read, because Placement names its provider, and that no cell has whose database answers.

    ``read_at_s``: the time at which the search began, on the monotonic clock of the core.
    """

    node: str
    read_at_s: float
    cause: str = field(default="node not found", kw_only=True)


@dataclass(frozen=True, slots=True)
class ResyncOrdered(Caused):
    """An operator wants the nodes of a host to be read anew.  The cause is unique."""

    host: str


@dataclass(frozen=True, slots=True)
class NodesListed:
    """Which compute nodes a cell's database has, and their hosts.

    ``hosts``: node -> host of all nodes; ``moved``: those that were of another host at the read before.
    ``read_at_s`` is when the read began.
    """

    cell: str
    hosts: Mapping[str, str]
    moved: frozenset[str]
    read_at_s: float
    cause: str = field(default="nodes listed", kw_only=True)


class WriteCode(StrEnum):
    """The result of an allocation write, by Placement's error code and never by its text."""

    WRITTEN = "written"  # also: the reply was lost, and the existing allocations are exactly those of the claim
    NO_CAPACITY = "no_capacity"  # this provider has no room: correct the row, next host
    PROVIDER_CONFLICT = "provider_conflict"  # other writers were faster, no retries left: next host
    CONSUMER_CONFLICT = "consumer_conflict"  # the consumer holds other allocations: hard error
    UNKNOWN_PROVIDER = "unknown_provider"  # stale topology: forget the node, next host
    HOST_CHANGED = "host_changed"  # not sent: its nova-compute service takes no servers any more: next host
    UNREACHABLE = "unreachable"  # it may have been carried out, or may still be: it is deleted
    DENIED = "denied"  # Placement refuses the credentials: nothing to delete, hard error
    NOT_SERVED = "not_served"  # no Placement was reached: nothing to delete, again after a pause
    REJECTED = "rejected"  # Placement answers that the request is malformed
    NEVER_SENT = "never_sent"  # it waited until its deadline, or was refused: nothing to delete, hard error


@dataclass(frozen=True, slots=True)
class AllocationWritten(Caused):
    """The answer to a ``WriteAllocation``.  ``written``: if WRITTEN, the allocations of the consumer (after a
    merge more than the claim asked for); if UNREACHABLE, the allocations that it may have.  ``before``: the
    allocations that a merge found.  ``generation``: the consumer's generation after the write; None: not known.
    ``consumer_s``: the time of one writer for each consumer of a full batch, by the last writes; 0 if it is not known.
    ``may_arrive``: a write without an answer was sent, and Placement may carry it out later.
    ``found``: if WRITTEN, it was read that this stands, which another request for the server may have written."""

    claim_id: str
    code: WriteCode
    detail: str = ""
    written: Allocations = field(default_factory=dict)
    before: Allocations = field(default_factory=dict)
    generation: int | None = None
    consumer_s: float = 0.0
    may_arrive: bool = False
    found: bool = False


@dataclass(frozen=True, slots=True)
class AllocationDeleted(Caused):
    """The answer to a ``DeleteAllocation``.  ``gone`` is False if the delete could not be verified.  With
    ``left_alone`` another writer has changed the allocations: they are kept, and the delete is not repeated.  With
    ``changed`` another writer has changed them, and Nova does not show yet whether the server needs our part."""

    claim_id: str
    gone: bool
    detail: str = ""
    left_alone: bool = False
    changed: bool = False


@dataclass(frozen=True, slots=True)
class AnswerUnheard(Caused):
    """The caller did not get the ``Answer``: what its claims wrote is not needed any more."""

    claim_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One allocation candidate: ``{"allocations": ..., "mappings": ...}`` of Placement."""

    allocations: Allocations
    mappings: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CandidatesAnswered(Caused):
    """The answer to an ``AskCandidates``.  ``error`` is empty on success; ``candidates`` may be empty."""

    ask_id: str
    candidates: tuple[Candidate, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class FittingAnswered(Caused):
    """The answer to an ``AskFitting``: the root providers that fit according to Placement."""

    ask_id: str
    nodes: frozenset[str]
    error: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerAnswered(Caused):
    """The answer to an ``AskConsumer``: its allocations, empty if it has none."""

    consumer: str
    allocations: Allocations
    error: str = ""


@dataclass(frozen=True, slots=True)
class GroupAnswered(Caused):
    """The answer to an ``AskGroup``: the members that hold allocations, with their providers.

    ``unanswered``: members without a cell, so the conductor has had no answer for them yet.  ``gone``: those in
    ``AskGroup.known`` that are not members any more.  ``hosts``: the service hosts of the others, as Nova has them, as
    far as ``AskGroup.cells`` and ``AskGroup.leaving`` ask for them."""

    ask_id: str
    standing: Mapping[str, frozenset[str]]
    error: str = ""
    unanswered: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    hosts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeContradicted:
    """Placement has other providers than the node's row: the agent, or this scheduler, has to read them."""

    node: str
    why: str
    cause: str = field(default="node contradicted", kw_only=True)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed.  ``SchedulerCore.next_deadline_s()`` returns when the next one is due."""

    cause: str = field(default="tick", kw_only=True)


@dataclass(frozen=True, slots=True)
class Stopping:
    """The service stops: every request, also one that arrives later, ends by ``deadline_s``."""

    deadline_s: float
    cause: str = field(default="service is stopping", kw_only=True)


@dataclass(frozen=True, slots=True)
class Draining:
    """The service stops: refuse new requests, finish the others."""

    cause: str = field(default="service is draining", kw_only=True)


Event = (
    MessagesArrived
    | CastReturned
    | ChannelChanged
    | RequestArrived
    | BuildsRead
    | UnfinishedBuildsFound
    | ServicesRead
    | AggregatesRead
    | SharingRead
    | NodeRead
    | NodesGone
    | NodeNotFound
    | NodesListed
    | AllocationWritten
    | AllocationDeleted
    | AnswerUnheard
    | CandidatesAnswered
    | FittingAnswered
    | ConsumerAnswered
    | GroupAnswered
    | NodeContradicted
    | ResyncOrdered
    | Tick
    | Stopping
    | Draining
)
