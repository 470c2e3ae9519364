# SPDX-License-Identifier: Apache-2.0
"""The effects that the agent's core returns.  The edges carry them out in order and do not block the core.

Each effect has a ``cause`` (``shared_scheduler/protocol/causes.py``): that of the event or message that
led to it.  A sent message carries its own cause, which the receiver sees too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared_scheduler.protocol.causes import Caused, cause_of
from shared_scheduler.protocol.messages import Claim, Leaf, Message


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send the message to every scheduler."""

    message: Message

    @property
    def cause(self) -> str:
        return cause_of(self.message)


@dataclass(frozen=True, slots=True)
class Cast:
    """Send the message to the one scheduler with this address."""

    address: str
    message: Message

    @property
    def cause(self) -> str:
        return cause_of(self.message)


@dataclass(frozen=True, slots=True)
class ReadTree(Caused):
    """Read the node's providers with inventories, traits and aggregates.

    Answered by ``TreeRead`` or ``ReadFailed``.
    """

    node: str


@dataclass(frozen=True, slots=True)
class ReadAllocations(Caused):
    """Read the consumers of these providers.  Answered by ``AllocationsRead`` or ``ReadFailed``."""

    node: str
    providers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptClaim:
    """An accepted claim as it is kept over restarts.  Its age starts again with each start of the agent."""

    claim: Claim
    #: how the tracker counted the consumer when the claim was accepted (see claim_ledger.py)
    known_as: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Keep(Caused):
    """Keep all pending claims of a node, and the groups of its consumers (consumer -> group uuid), for the next start
    of the agent.  They replace those kept before."""

    node: str
    claims: tuple[KeptClaim, ...]
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeepEpoch(Caused):
    """Keep the epoch that the node has started, so that the next start of the agent uses a greater one."""

    node: str
    epoch: int


class NoticeCode(StrEnum):
    """The kinds of notices that are written to the log."""

    READY = "ready"
    NOT_READY = "not_ready"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    ENDED = "ended"
    TOPOLOGY_IN_DOUBT = "topology_in_doubt"
    TREE_MISSING = "tree_missing"
    READ_FAILED = "read_failed"
    UNSENDABLE = "unsendable"
    EPOCH_BEGUN = "epoch_begun"
    EPOCH_REFUSED = "epoch_refused"


@dataclass(frozen=True, slots=True)
class Notice(Caused):
    """A fact for the log."""

    code: NoticeCode
    node: str
    detail: Mapping[str, Leaf] = field(default_factory=dict)


Effect = Broadcast | Cast | ReadTree | ReadAllocations | Keep | KeepEpoch | Notice
