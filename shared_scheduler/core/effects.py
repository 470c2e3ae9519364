# SPDX-License-Identifier: Apache-2.0
"""What the scheduler core wants done.  Edges carry these out, in order, without blocking the core.

Each effect has a ``cause`` (``protocol/causes.py``).  Where a request wants it, that is the request's id.
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
from shared_scheduler.protocol.messages import Allocations, Message


class OfRequest:
    """An effect that a request wants: its ``request_id`` (the global one, sent to Placement) is the cause."""

    __slots__ = ()
    request_id: str

    @property
    def cause(self) -> str:
        return self.request_id


@dataclass(frozen=True, slots=True)
class Send(Caused):
    """Cast to one endpoint of a cell's state channel."""

    cell: str
    address: str
    message: Message


@dataclass(frozen=True, slots=True)
class Broadcast(Caused):
    """Say it to every agent and other scheduler of a cell."""

    cell: str
    message: Message


class ConsumerPolicy(StrEnum):
    """What is expected of the consumer in Placement (one table in placement/consumer_conflicts.py)."""

    NEW = "new"  # generation null; any existing allocation is a hard error
    MERGE = "merge"  # evacuation: read the existing allocations, write the union with their generation


@dataclass(frozen=True, slots=True)
class WriteAllocation(OfRequest):
    """Write one consumer's allocations.  Answered by ``AllocationWritten``.

    ``serialise`` asks for at most one write in flight for these providers, and for a look at the
    provider afterwards: room is tight, and nobody but Placement has judged this claim, or that part of
    it which is of shared storage.
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


@dataclass(frozen=True, slots=True)
class DeleteAllocation(OfRequest):
    """Delete what this claim wrote: delete the consumer if its allocations are exactly
    ``written``; after a merge put back ``before``.  Answered by ``AllocationDeleted``.

    Until ``sole_until_s`` its request waits, so there is no other operation of this server.  After that
    the server may have been asked for again and have got the same host: Nova must be asked first."""

    claim_id: str
    consumer: str
    written: Allocations
    request_id: str
    before: Allocations = field(default_factory=dict)
    sole_until_s: float = float("-inf")


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
    """Before "no valid host": which root providers fit?  Answered by ``FittingAnswered``."""

    ask_id: str
    queries: tuple[str, ...]
    request_id: str


@dataclass(frozen=True, slots=True)
class LookUpConsumer(Caused):
    """GET /allocations/{consumer}.  Answered by ``ConsumerAnswered``."""

    consumer: str


@dataclass(frozen=True, slots=True)
class LookUpGroup(OfRequest):
    """Where do the members of a server group stand?  Answered by ``GroupAnswered``.

    The members are read from Nova's API database first, and then, one by one, their allocations from Placement.
    Those in ``known`` are left out.
    """

    ask_id: str
    group: str
    known: frozenset[str]
    request_id: str


@dataclass(frozen=True, slots=True)
class RefreshNode(Caused):
    """Read this node again from the databases and Placement.  Answered by ``NodeRead`` or nothing.

    ``cell`` is empty where the node is not known: look into all of them, and read its service too."""

    cell: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One host for one instance: what a Nova Selection is made from.

    ``candidate`` is None where nothing was claimed (rebuild, legacy callers).  ``limits`` is opaque
    (Nova's SchedulerLimits contents, from the host judge).
    """

    node: str
    host: str
    nodename: str
    cell: str
    candidate: Candidate | None
    limits: Any = None


class FailureCode(StrEnum):
    """Why a request has no answer."""

    NO_VALID_HOST = "no_valid_host"
    NO_CANDIDATES = "no_candidates"  # no valid host, because Placement has no candidate at all
    CONSUMER_CONFLICT = "consumer_conflict"
    TIMED_OUT = "timed_out"
    DRAINING = "draining"
    PLACEMENT_UNREACHABLE = "placement_unreachable"
    OVERLOADED = "overloaded"
    BAD_REQUEST = "bad_request"
    GROUP_UNSETTLED = "group_unsettled"


@dataclass(frozen=True, slots=True)
class Answer:
    """One inner tuple an instance, in order: the claimed choice, then alternates.  ``claim_ids`` are
    the claims behind it, for an ``AnswerUnheard``; empty where nothing was claimed."""

    request: Request
    choices: tuple[tuple[Choice, ...], ...]
    record: Any  # decision.record.DecisionRecord
    claim_ids: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        return self.request.request_id


@dataclass(frozen=True, slots=True)
class Fail:
    """The request ends without a host; ``text`` is for people, ``record`` says why in detail."""

    request: Request
    code: FailureCode
    text: str
    record: Any  # decision.record.DecisionRecord

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
    | LookUpConsumer
    | LookUpGroup
    | RefreshNode
    | Answer
    | Fail
)
