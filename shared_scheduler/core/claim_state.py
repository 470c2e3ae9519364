# SPDX-License-Identifier: Apache-2.0
"""The state of a claim (``claims.py`` contains its transitions)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from shared_scheduler.core.effects import ConsumerPolicy
from shared_scheduler.core.events import WriteCode
from shared_scheduler.model.resources import same_allocations
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.protocol.limits import MAPPED_WITHIN_S
from shared_scheduler.protocol.messages import Allocations, ClaimGroup, Consumer, Reason, Usage
from shared_scheduler.table.row import Version

#: the version of a row that no agent has reported
DATABASES = Version(0, 0)


class ClaimState(StrEnum):
    """The states of a claim.  The second half are endings; ABANDONED is only reported to the request."""

    CLAIMING = "claiming"
    WRITING = "writing"
    WRITTEN = "written"
    DELETING = "deleting"

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    UNDELIVERED = "undelivered"
    LATE = "late"
    RELEASED = "released"
    NOT_WRITTEN = "not_written"
    DELETED = "deleted"
    LEFT_ALONE = "left_alone"
    ABANDONED = "abandoned"


#: the states of a claim with which its request may be answered, or was
WANTED = frozenset({ClaimState.CLAIMING, ClaimState.WRITING, ClaimState.WRITTEN, ClaimState.CONFIRMED})


@dataclass(frozen=True, slots=True)
class Intent:
    """One consumer to place on one node.  ``by_agent``: the agent of the node judges the claim first.

    ``epoch`` is the epoch of that agent; it may have begun after the host was chosen.
    """

    node: str
    cell: str
    host: str
    consumer: str
    allocations: Allocations
    mappings: Mapping[str, tuple[str, ...]]
    usage: Usage
    topology: str
    by_agent: bool
    project_id: str
    user_id: str
    policy: ConsumerPolicy
    request_id: str
    deadline_s: float
    #: all allocations that a merge is known to find; None: they must be read
    standing: Consumer | None = None
    #: what the claim takes of NUMA cells and PCI pools, as far as the judge knows
    take: TopologyUsage | None = None
    epoch: int = 0
    group: ClaimGroup | None = None
    #: whether the agent that judges the claim counts the members of groups
    counts_groups: bool = False
    #: whether the nova-compute service of the host accepted servers at the decision
    service_accepts: bool = False
    #: when the request arrived
    asked_s: float = 0.0
    #: whether it is a new server
    is_new: bool = False

    @property
    def service_host(self) -> str:
        """The host whose nova-compute service has to accept servers at the time of the write; empty: none."""
        return self.host if self.service_accepts else ""


@dataclass(slots=True)
class OpenClaim:
    """A claim that has not ended.  ``owner`` is the request and the instance that it belongs to."""

    claim_id: str
    owner: tuple[int, int]
    intent: Intent
    state: ClaimState
    began_s: float
    #: when the agent is late, and when it is not waited for any more
    late_s: float = inf
    verdict_s: float = inf
    #: the last moment for the write; later, the agent may have ended the claim and accepted another one
    written_by_s: float = inf
    #: the version of the row that the decision used
    seen: Version = DATABASES
    #: when the verdict came, and the epoch in which the agent judged
    judged_s: float | None = None
    judged_epoch: int = 0
    #: the version of the row from which on the agent reports it
    reflected: Version = DATABASES
    #: when the write began, and when its answer came
    writing_s: float | None = None
    answered_s: float | None = None
    #: whether its request has not cancelled it
    wanted: bool = True
    #: whether the agent has accepted it
    accepted: bool = False
    #: why the agent has refused it, or its request has cancelled it
    reason: Reason | None = None
    write_code: WriteCode | None = None
    write_detail: str = ""
    #: another request may have made the write that stands
    found: bool = False
    written: Allocations = field(default_factory=dict)
    #: the allocations that a merge found
    before: Allocations = field(default_factory=dict)
    #: of the consumer after the write; None: not known
    generation: int | None = None
    #: how often a delete was sent
    deletes: int = 0
    #: the lost write was carried out while a delete was under way, and the delete may have come before it
    outrun: bool = False
    #: a delete has left nothing of it, and no lost write was carried out since
    gone: bool = False
    #: until then a write without an answer may be carried out
    arrives_until_s: float = float("-inf")
    #: an end was reported to the request, and other requests may place the same server
    abandoned: bool = False
    #: until then Nova may not know of an answer with the server on the node, which was given before this claim began
    nova_knows_s: float = -inf
    #: the claims of the server on the node that are wanted, of those that were open when this one began, or began while
    #: it was open
    others: list[OpenClaim] = field(default_factory=list)

    @property
    def cause(self) -> str:
        """The cause id of the request, which is the cause of everything that is done for the claim."""
        return self.intent.request_id

    @property
    def place(self) -> tuple[str, str]:
        """The server and the node: other claims of one place may be the same allocation in Placement."""
        return self.intent.consumer, self.intent.node

    def note_other(self, claim: OpenClaim) -> None:
        """Note another claim of the place.  One that is not wanted any more is never wanted again, and is dropped."""
        self.others = [one for one in (*self.others, claim) if one.is_wanted]

    def other_wanted(self) -> OpenClaim | None:
        """The claim with which another request has placed the server on the node, or may still do so.

        Placement does not show which of both wrote: each may be the first write of the consumer."""
        return next((one for one in self.others if one.is_wanted), None)

    def take_over(self, claim: OpenClaim) -> None:
        """Delete later what a claim of another request has left as well: one has written over the other.

        ``claim`` is not deleted for the sake of this one.  Whichever wrote last has made the generation, if nothing was
        deleted in between, and what one has added did not stand before both."""
        if claim.write_code != WriteCode.WRITTEN:
            return
        if not claim.gone and same_allocations(claim.written, self.written):
            self.generation = self._last_generation(claim.generation)
        part = {name: amounts for name, amounts in claim.written.items() if name not in claim.before}
        self.before = {name: amounts for name, amounts in self.before.items() if part.get(name) != amounts}

    def _last_generation(self, its: int | None) -> int | None:
        """The later one.  If one is not known, that of a move is not: Nova is asked before its delete.  That of a new
        server stays: another scheduler may have been answered with the other one."""
        mine = self.generation
        if mine is not None and its is not None:
            return max(mine, its)
        return None if self.before else mine

    @property
    def answer_known_s(self) -> float:
        """When Nova knows of an answer with this claim."""
        return self.intent.deadline_s + MAPPED_WITHIN_S

    @property
    def is_twin(self) -> bool:
        """Whether the write has replaced the same allocations: another scheduler may have got the request too, and may
        have answered with them."""
        return not self.before and self.generation is not None and self.generation > 1

    def may_delete_from_s(self) -> float:
        """From when on what it may have written may be deleted, because Nova can tell whether the server needs it."""
        if self.is_twin:
            return max(self.nova_knows_s, self.answer_known_s)
        made = self.write_code == WriteCode.WRITTEN and not self.found
        return -inf if made else self.nova_knows_s

    @property
    def is_wanted(self) -> bool:
        """Whether the request may be answered, or was answered, with this claim."""
        return self.wanted and self.state in WANTED
