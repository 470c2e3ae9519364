# SPDX-License-Identifier: Apache-2.0
"""The messages between schedulers and agents.

The state of a node is identified by ``(node, epoch, sequence)``.  A *node* is the uuid of a compute node, which is also
the uuid of its root resource provider.  An *epoch* only grows: an agent begins a new one when it starts, and when a
scheduler asks it to exceed one.  The agent numbers each increment with a *sequence*, one counter for each node, which
starts at 1 in each epoch; snapshots and heartbeats name the newest sequence.

Values are absolute per leaf, never ``+n``.  Therefore it is harmless to apply a value twice, and increments are merged
by taking the last value of each leaf.  For the same reason, consumers are a set keyed by consumer uuid.  A leaf or
consumer that was removed has the value ``None``.

The leaves that an agent publishes are *effective*: they contain the state of nova-compute's resource tracker and every
claim that the agent has accepted and that the tracker does not count yet.  ``shared_scheduler/model/leaves.py``
describes the names of leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared_scheduler.protocol import limits

#: The values of a leaf: scalars, and lists and string-keyed dicts of them (msgpack's own types).
Leaf = None | bool | int | float | str | list["Leaf"] | dict[str, "Leaf"]

#: provider uuid -> resource class -> amount
Allocations = Mapping[str, Mapping[str, int]]


class Role(StrEnum):
    """The program that sends a Hello."""

    AGENT = "agent"
    SCHEDULER = "scheduler"


class Want(StrEnum):
    """What each agent shall send in answer to the Hello of a scheduler."""

    NOTHING = "nothing"  # the Hello is for other schedulers only
    HEARTBEAT = "heartbeat"  # the scheduler has copies and compares their sequences and digests
    SNAPSHOT = "snapshot"  # the scheduler is new and has no copies


@dataclass(frozen=True, slots=True)
class Usage:
    """What one claim takes of the numbers of nova-compute, as HostState consumes them."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    instances: int = 0
    io_ops: int = 0


@dataclass(frozen=True, slots=True)
class Consumer:
    """One consumer of a node.

    ``allocations`` is its part in the provider tree of this node, empty if Placement has none.
    ``member`` is true if nova-compute's resource tracker counts the consumer (an instance on the node, or one that
    moves in or out); server groups depend on it.  The consumer of an accepted claim is a member at once, because the
    decision for the next member of its group must count it.
    ``group`` is the uuid of its server group if the agent knows it from a claim; empty otherwise.
    ``generation`` is the consumer generation that Placement had with these allocations, 0 if it is not known.
    ``whole`` is true if the consumer has no other allocations at this generation, in any tree.  Both are not part of
    the digest, because Placement checks a generation whenever it is used.
    """

    allocations: Allocations
    member: bool = False
    group: str = ""
    generation: int = 0
    whole: bool = False


class GroupPolicy(StrEnum):
    """The policies of Nova's server groups."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    SOFT_AFFINITY = "soft-affinity"
    SOFT_ANTI_AFFINITY = "soft-anti-affinity"


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """The server group of a claim's consumer.

    ``members`` are the other instances of the group that the request or the scheduler knows, at most
    ``limits.GROUP_MEMBERS_MAX``; members that may be on the node come first.  ``seen`` is the number of members that
    the decision saw on the node.  With a soft policy the agent refuses a claim whose decision saw fewer members than
    there are.  None: the agent does not compare.
    """

    uuid: str
    policy: str
    max_server_per_host: int = 1
    members: tuple[str, ...] = ()
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a claim was refused: a code for programs, and values for operators.

    ``code`` is one of ``RefusalCode``; ``detail`` contains the values that were compared, for example
    ``{"provider": ..., "resource_class": "VCPU", "capacity": 4, "used": 4, "asked": 1}``.
    """

    code: str
    detail: Mapping[str, Leaf] = field(default_factory=dict)


class RefusalCode(StrEnum):
    """Codes of ``Reason`` in refusals of an agent."""

    NO_CAPACITY = "no_capacity"
    NO_INVENTORY = "no_inventory"
    TOPOLOGY = "topology"  # NUMA or PCI, by Nova's own fit functions
    GROUP_FULL = "group_full"  # the node has the maximum number of members of its anti-affinity group
    GROUP_CHANGED = "group_changed"  # soft policy: the node has more members than the decision saw
    NOT_AUTHORITATIVE = "not_authoritative"  # nova-compute does not run or has not audited yet
    WRONG_NODE = "wrong_node"
    EXPIRED = "expired"  # judged after the deadline of the claim
    TOO_MANY_CLAIMS = "too_many_claims"
    RELEASED = "released"  # its Release arrived before the claim
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Hello:
    """Broadcast by schedulers and agents: the sender is alive, with this epoch.

    ``sender`` is the address for answers.  An agent names its ``node``; a scheduler leaves it empty.
    ``spread_ms`` bounds the random delay with which agents answer the ``want`` of a scheduler.
    ``release`` is the release of the sender; empty from releases that do not send it.
    """

    role: Role
    sender: str
    epoch: int
    node: str = ""
    host: str = ""
    want: Want = Want.NOTHING
    spread_ms: int = 0
    release: str = ""


@dataclass(frozen=True, slots=True)
class Increment:
    """The changes of a node since the previous increment."""

    node: str
    epoch: int
    sequence: int
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    consumers: Mapping[str, Consumer | None] = field(default_factory=dict)
    #: claim id -> consumer uuid while the claim is pending, None once it has ended
    claims: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state of a node at ``sequence``.  ``digest`` covers leaves, consumers without their groups, and
    claims; ``groups_digest`` covers the groups (``protocol/digest.py``)."""

    node: str
    epoch: int
    sequence: int
    host: str
    leaves: Mapping[str, Leaf]
    consumers: Mapping[str, Consumer]
    claims: Mapping[str, str]
    digest: int
    groups_digest: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The agent is alive, with this newest sequence.  Reveals a lost last message and silent corruption.

    ``digest`` and ``groups_digest`` as in a snapshot; a release without groups knows only the first one.  ``ends`` are
    results of builds that are sent once more; a release that does not know them ignores them."""

    node: str
    epoch: int
    sequence: int
    host: str
    digest: int
    groups_digest: int = 0
    ends: tuple[BuildResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """An agent stops; the next message belongs to a new epoch."""

    node: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A scheduler asks the agent of a node to accept a consumer.

    ``seen_epoch`` and ``seen_sequence`` identify the state that the decision used, so that the verdict can bring the
    scheduler up to date.  ``topology`` is opaque here: a JSON text for the topology fit on the node (NUMA, PCI), empty
    if the request has neither.  ``deadline_ms`` is the time after sending within which the answer is useful.
    ``group`` is None if the consumer is in no server group.  ``increment_suffices``: the scheduler also takes an
    increment that has the claim for the verdict that accepts it; schedulers of earlier releases need the verdict.
    """

    claim_id: str
    node: str
    scheduler: str  # the address for the verdict
    consumer: str
    allocations: Allocations
    usage: Usage
    topology: str = ""
    seen_epoch: int = 0
    seen_sequence: int = 0
    deadline_ms: int = 0
    group: ClaimGroup | None = None
    increment_suffices: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """A scheduler releases a claim: it was not, and will not be, written to Placement.

    Idempotent.  A release that overtakes its claim makes the agent refuse that claim.  ``never_written``: Placement was
    not asked to write the claim, so what it has is no reason for the release; False if it may be, and by default.
    """

    claim_id: str
    node: str
    scheduler: str
    consumer: str
    never_written: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a node to one claim, with the changes since the state that the decision used.

    An accepted claim has none if its increment is sent at once and suffices (``Claim.increment_suffices``).

    ``reflected_sequence`` is the first sequence whose state contains an accepted claim.  ``news`` are all increments
    after ``seen_sequence``; if the replay ring does not hold all of them, it is empty and the agent sends a snapshot
    to the scheduler.
    """

    claim_id: str
    node: str
    epoch: int
    accepted: bool
    reason: Reason | None = None
    reflected_sequence: int = 0
    news: tuple[Increment, ...] = ()


@dataclass(frozen=True, slots=True)
class Resync:
    """A scheduler has missed messages: replay after ``after_sequence``, or send a snapshot.

    ``epoch`` is the epoch that the scheduler follows; if it differs from the agent's, or is 0, the agent sends a
    snapshot.  If it is above the agent's, the agent has restarted with an old epoch (its clock was set back, or its
    state was lost), and begins a new epoch above it.

    ``recheck``: no message is missing, but Placement contradicts the state of the agent; the agent reads Placement
    before it answers.
    """

    node: str
    scheduler: str  # the address for the answer
    epoch: int
    after_sequence: int
    recheck: bool = False


@dataclass(frozen=True, slots=True)
class BuildResult:
    """From an agent to the scheduler that placed an instance, or to all: nova-compute has ended its build on this node.

    It changes no state, so it has no sequence; because it may be lost, a heartbeat carries it once more.  ``reason`` is
    the text of the error if the build failed.  ``scheduler`` is the address of the scheduler whose claim placed the
    instance, empty if the agent does not know it.  ``number`` counts the ends of an epoch from 1, so that one that
    arrives again is recognised; 0 from releases that send it once.  Releases without records ignore this message.
    """

    node: str
    epoch: int
    consumer: str
    succeeded: bool
    reason: str = ""
    scheduler: str = ""
    number: int = 0


Message = Hello | Increment | Snapshot | Heartbeat | Leave | Claim | Release | Verdict | Resync | BuildResult


def is_for_agents(message: Message) -> bool:
    """Whether a message that is broadcast must also reach the agents.

    A Hello that wants nothing is broadcast every few seconds, and there may be 10,000 agents.  The result of a build
    is of interest to schedulers only.
    """
    if isinstance(message, BuildResult):
        return False
    return not isinstance(message, Hello) or message.want is not Want.NOTHING


def must_be_heard(message: Message) -> bool:
    """Whether its sender is told when nobody receives a cast: then the receiver is not connected, and will not act."""
    return isinstance(message, Claim | Resync | BuildResult)


def agent_address(host: str) -> str:
    """The address of the agent of nova-compute service ``host``, equal after each restart."""
    return f"{limits.ADDRESS_PREFIX}agent.{host}"
