# SPDX-License-Identifier: Apache-2.0
"""The life of a claim on its node.

A claim that was judged good is *pending*: it is counted on top of what nova-compute's resource
tracker holds, until there is evidence that it need not be.  Between the verdict and the moment at
which the tracker takes the instance over, minutes may pass (builds queue), so no timer ends a claim.
A timer only makes the agent look in Placement.

======== ======================================================== ==========  =====================
state    evidence                                                 next        counted afterwards
======== ======================================================== ==========  =====================
(asked)  does not fit, or the node is not authoritative           (refused)   nothing was kept
(asked)  its Release came first                                   (refused)   nothing was kept
(asked)  fits                                                     pending     allocations, usage and
                                                                              topology of the claim
pending  the tracker counts the consumer in a new way             taken_over  the tracker's leaves;
                                                                              allocations as claimed
pending  the scheduler releases it                                released    nothing
pending  nova-compute refused to claim for the consumer           refused     what Placement holds
pending  Placement held its allocation, and holds it no more      vanished    what Placement holds
pending  Placement does not hold it, and it is old enough that    vanished    what Placement holds
         the scheduler would have written it
======== ======================================================== ==========  =====================

*In a new way*: a resize to the same host claims for an instance that the tracker counts already.  So
each pending claim remembers how its consumer was counted when it was accepted ("instance",
"migration:<uuid>"); only a way that is not among those takes it over.  Ways that disappear are
forgotten, so that they are new when they come back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from compute_agent.effects import KeptClaim
from compute_agent.events import Member
from shared_scheduler.protocol.messages import Claim

Value = TypeVar("Value")


class How(StrEnum):
    """How a pending claim ended."""

    TAKEN_OVER = "taken_over"
    RELEASED = "released"
    REFUSED = "refused"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class Ending:
    """A pending claim ended; each one does exactly once."""

    claim: Claim
    how: How
    why: str = ""


@dataclass(slots=True)
class Pending:
    """An accepted claim that the tracker has not taken over yet."""

    claim: Claim
    accepted_at_s: float
    known_as: frozenset[str] = frozenset()
    #: Placement was seen to hold its allocations
    written: bool = False
    #: its NUMA or PCI part could not be counted on top of the tracker's newest leaves
    in_doubt: bool = False

    def kept(self) -> KeptClaim:
        return KeptClaim(self.claim, self.known_as)


def ways(member: Member | None) -> frozenset[str]:
    """How the tracker counts a consumer, as names."""
    if member is None:
        return frozenset()
    found = {"instance"} if member.instance else set()
    if member.migration:
        found.add(f"migration:{member.migration}")
    return frozenset(found)


@dataclass(slots=True)
class Bounded(Generic[Value]):
    """A memory of the newest ``most`` entries; the oldest makes room."""

    most: int
    entries: OrderedDict[str, Value] = field(default_factory=OrderedDict)

    def remember(self, key: str, value: Value) -> None:
        self.entries[key] = value
        self.entries.move_to_end(key)
        while len(self.entries) > self.most:
            self.entries.popitem(last=False)

    def recall(self, key: str) -> Value | None:
        return self.entries.get(key)

    def forget(self, key: str) -> Value | None:
        return self.entries.pop(key, None)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)
