# SPDX-License-Identifier: Apache-2.0
"""The effects of the scheduler core.  Edges carry them out in order, without blocking the core.

Each effect has a ``cause`` (``protocol/causes.py``).  The cause of an effect of a request is the request id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared_scheduler.core.events import Candidate
from shared_scheduler.decision.request import Request
from shared_scheduler.model.providers import Provider
from shared_scheduler.protocol.causes import Caused
from shared_scheduler.protocol.messages import Allocations, Consumer, Message


class OfRequest:
    """An effect of a request.  Its cause is the ``request_id`` (the global one, which is sent to Placement)."""

    __slots__ = ()
    request_id: str

    @property
    def cause(self) -> str:
        return self.request_id


@dataclass(frozen=True, slots=True)
class Send(Caused):
    """Cast to one endpoint of a cell's state channel.

    ``service_host``: of a claim, the host whose nova-compute service has to accept servers when the claim is written
    (``WriteAllocation``).  It is read while the claim is under way.
    """

    cell: str
    address: str
    message: Message
    service_host: str = ""


@dataclass(frozen=True, slots=True)
class Broadcast(Caused):
    """Send to every agent and every other scheduler of a cell."""

    cell: str
    message: Message


class ConsumerPolicy(StrEnum):
    """What the consumer may hold in Placement (``placement/consumer_conflicts.py`` has the table)."""

    NEW = "new"  # generation null; any existing allocation is a hard error
    MERGE = "merge"  # evacuation: read the existing allocations, write the union with their generation


@dataclass(frozen=True, slots=True)
class WriteAllocation(OfRequest):
    """Write one consumer's allocations.  Answered by ``AllocationWritten``.

    ``serialise``: at most one write is in flight for these providers, and the provider is read afterwards.  This is
    for claims that only Placement judges, completely or for their part of shared storage, where little is free.  A
    Placement that announces that racing writes do not over-commit makes both unnecessary.
    ``service_host``: the host of ``cell`` whose nova-compute service has to accept servers at the time of the write,
    because it did at the decision; empty: it need not.
    ``asked_s``: when the request arrived (write_pace.py).
    ``standing``: all allocations that the consumer is known to have before a merge, with their generation, so that
    they need not be read.  None: they must be read.
    ``is_new``: it is of a new server, which is in no cell before a scheduler has answered.
    ``left``: of a merge, what the last write of this scheduler is known to have left.
    ``nova_knows_s``: when Nova knows of an answer with it.
    """

    claim_id: str
    consumer: str
    allocations: Allocations
    mappings: Mapping[str, tuple[str, ...]]
    project_id: str
    user_id: str
    policy: ConsumerPolicy
    serialise: bool
    request_id: str
    deadline_s: float
    cell: str = ""
    service_host: str = ""
    asked_s: float = 0.0
    standing: Consumer | None = None
    is_new: bool = False
    left: Consumer | None = None
    nova_knows_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class DeleteAllocation(OfRequest):
    """Delete what this claim wrote: delete the consumer if its allocations are exactly
    ``written``; after a merge put back ``before``.  Answered by ``AllocationDeleted``.

    ``generation``: the consumer's generation after the write.  If it has another one, another writer has written the
    same allocations since, and they stay.  None: not known.

    Until ``sole_until_s`` the request waits, so there is no other operation of this server.  After that another
    request may have placed the server on the same host: Nova's databases must be read first.
    ``is_new``: as for ``WriteAllocation``.
    ``stood``: the write was answered, and nothing of this scheduler has deleted it since.  ``noted``: changes of others
    are recorded up to this generation."""

    claim_id: str
    consumer: str
    written: Allocations
    request_id: str
    before: Allocations = field(default_factory=dict)
    sole_until_s: float = float("-inf")
    generation: int | None = None
    is_new: bool = False
    stood: bool = False
    noted: int | None = None


@dataclass(frozen=True, slots=True)
class AskCandidates(OfRequest):
    """GET /allocation_candidates with each of ``queries`` plus ``in_tree=node``, results appended in
    order.  Answered by ``CandidatesAnswered``.

    ``sharing``: providers of other trees that the node may take from, which ``in_tree`` hides."""

    ask_id: str
    node: str
    queries: tuple[str, ...]
    request_id: str
    sharing: tuple[Provider, ...] = ()


@dataclass(frozen=True, slots=True)
class AskFitting(OfRequest):
    """GET the root providers that fit, before "no valid host".  Answered by ``FittingAnswered``."""

    ask_id: str
    queries: tuple[str, ...]
    request_id: str


@dataclass(frozen=True, slots=True)
class AskConsumer(Caused):
    """GET /allocations/{consumer}.  Answered by ``ConsumerAnswered``."""

    consumer: str


@dataclass(frozen=True, slots=True)
class AskGroup(OfRequest):
    """Read where the members of a server group are placed.  Answered by ``GroupAnswered``.

    The members are read from Nova's API database first, and then, one by one, their allocations from Placement.
    Deleted servers and those in cell 0, whose request has failed, are no members.  Those in ``known`` are left out.
    With a ``label``, the members are the servers of the project that have it; ``images``: also by a property of their
    image.

    After the allocations, the databases of these ``cells`` are read for the hosts of the members: while a server
    leaves a host, its allocations there are in the name of its migration.  ``leaving``: so are, in whatever
    cell, the hosts of those members that hold nothing, and of all others but those that move to a host that Nova's
    record of the move names.
    """

    ask_id: str
    group: str
    known: frozenset[str]
    request_id: str
    project_id: str = ""
    label: str = ""
    cells: frozenset[str] = frozenset()
    leaving: bool = False
    images: bool = False


@dataclass(frozen=True, slots=True)
class RefreshNode(Caused):
    """Read this node again from the databases and Placement, in so many seconds.  Answered by ``NodeRead`` or nothing.

    ``cell`` is empty if the node is not known: then all cells are searched, and its service is read as well."""

    cell: str
    node: str
    why: str
    in_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadBuild(Caused):
    """Read from Nova's databases how the build of a server stands that was placed ``age_s`` ago.  Answered by
    ``BuildsRead`` or nothing."""

    cell: str
    server: str
    age_s: float


@dataclass(frozen=True, slots=True)
class RecordBuild(Caused):
    """Record how nova-compute ended the build of an instance; ``reason`` is the error if it failed.

    ``at_s``: when, in seconds since 1970, if Nova's databases show it; None: an agent reports it now."""

    node: str
    host: str
    consumer: str
    succeeded: bool
    reason: str
    at_s: float | None = None


class SeenBy(StrEnum):
    """What has found that another writer changed the allocations of a consumer."""

    NEW = "new"  # the first write of a server that should have no allocations
    MERGE = "merge"  # the write of an evacuation
    DELETE = "delete"  # the delete of an allocation that is not needed
    REPORT = "report"  # what an agent has published, or what was read of a node without one


@dataclass(frozen=True, slots=True)
class ExamineChange(Caused):
    """Find out from Nova and Placement what a change means that another writer has made, and record it.

    ``before`` and ``generation_before`` are what the last write of this scheduler left of the consumer, or what was
    seen of it since; of a report, only the part in the tree of its ``node``; ``elsewhere`` is the other part.
    ``whole``: nobody else has written it before.  A generation of None: the consumer has no allocations."""

    consumer: str
    node: str
    host: str
    before: Allocations
    generation_before: int | None
    after: Allocations
    generation_after: int | None
    seen_by: SeenBy
    elsewhere: Allocations = field(default_factory=dict)
    whole: bool = True


class NodeChange(StrEnum):
    """What happened to the knowledge of a node."""

    SNAPSHOT = "snapshot"  # its whole state arrived
    RESYNC = "resync"  # messages are missing or doubtful: its agent was asked
    SILENT = "silent"  # its agent does not report; the row is read from the databases


@dataclass(frozen=True, slots=True)
class RecordNode(Caused):
    """Record a change of what this scheduler knows of a node, and the increments that it applied before.

    ``epoch`` and ``sequence``: the state of a snapshot, or after which a resync asks; 0 for the whole state."""

    host: str
    change: NodeChange
    epoch: int
    sequence: int
    increments: int


@dataclass(frozen=True, slots=True)
class Choice:
    """One host for one instance, from which Nova's Selection is made.

    ``candidate`` is None if nothing was claimed (rebuild, legacy callers).  ``limits`` is opaque (the contents of
    Nova's SchedulerLimits, from the host judge).
    """

    node: str
    host: str
    nodename: str
    cell: str
    candidate: Candidate | None
    limits: Any = None


class FailureCode(StrEnum):
    """Why a request failed."""

    NO_VALID_HOST = "no_valid_host"
    NO_CANDIDATES = "no_candidates"  # no valid host, because Placement has no candidate at all
    CONSUMER_CONFLICT = "consumer_conflict"
    TIMED_OUT = "timed_out"
    DRAINING = "draining"
    PLACEMENT_UNREACHABLE = "placement_unreachable"
    OVERLOADED = "overloaded"
    BAD_REQUEST = "bad_request"
    NO_TIME = "no_time"  # Placement cannot write so many servers before the deadline
    GROUP_UNSETTLED = "group_unsettled"
    IMAGE_UNREAD = "image_unread"


#: the failures that say that no host fits
NO_HOST = frozenset({FailureCode.NO_VALID_HOST, FailureCode.NO_CANDIDATES})


@dataclass(frozen=True, slots=True)
class Answer:
    """One inner tuple for each instance, in order: the claimed choice, then alternates.  ``claim_ids`` are the
    claims of the answer, for an ``AnswerUnheard``; empty if nothing was claimed.  ``request`` contains what was read
    from its texts; ``arrived`` is the object that arrived, None if it is the same."""

    request: Request
    choices: tuple[tuple[Choice, ...], ...]
    record: Any  # decision.record.DecisionRecord
    claim_ids: tuple[str, ...] = ()
    arrived: Request | None = None

    @property
    def cause(self) -> str:
        return self.request.request_id


@dataclass(frozen=True, slots=True)
class Fail:
    """The request ends without a host; ``text`` is a message for operators, ``record`` contains the details.
    ``arrived``: as for ``Answer``."""

    request: Request
    code: FailureCode
    text: str
    record: Any  # decision.record.DecisionRecord
    arrived: Request | None = None

    @property
    def cause(self) -> str:
        return self.request.request_id


Effect = (
    Send
    | Broadcast
    | WriteAllocation
    | DeleteAllocation
    | AskCandidates
    | AskFitting
    | AskConsumer
    | AskGroup
    | RefreshNode
    | ReadBuild
    | RecordBuild
    | RecordNode
    | ExamineChange
    | Answer
    | Fail
)
