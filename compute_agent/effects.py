# SPDX-License-Identifier: Apache-2.0
"""What the agent's core wants done.  Edges carry these out, in order, without blocking the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared_scheduler.protocol.messages import Claim, Leaf, Message


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Say it to every scheduler."""

    message: Message


@dataclass(frozen=True, slots=True)
class Cast:
    """Say it to the one scheduler with this address."""

    address: str
    message: Message


@dataclass(frozen=True, slots=True)
class ReadTree:
    """Read the node's providers with inventories, traits and aggregates.

    Answered by ``TreeRead`` or ``ReadFailed``.
    """

    node: str


@dataclass(frozen=True, slots=True)
class ReadAllocations:
    """Read the consumers of these providers.  Answered by ``AllocationsRead`` or ``ReadFailed``."""

    node: str
    providers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptClaim:
    """An accepted claim as it is kept over restarts.  Its age starts again with each life."""

    claim: Claim
    #: how the tracker counted the consumer when the claim was accepted (see claims.py)
    known_as: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Keep:
    """The pending claims, all of them: what a restarted agent must know.  Replaces what was kept."""

    node: str
    claims: tuple[KeptClaim, ...]


@dataclass(frozen=True, slots=True)
class KeepEpoch:
    """The node goes on in this epoch: the next life must begin above it."""

    node: str
    epoch: int


class NoticeCode(StrEnum):
    """What an operator may want to read in the log."""

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
class Notice:
    """Something worth a log line."""

    code: NoticeCode
    node: str
    detail: Mapping[str, Leaf] = field(default_factory=dict)


Effect = Broadcast | Cast | ReadTree | ReadAllocations | Keep | KeepEpoch | Notice
