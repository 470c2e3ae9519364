# SPDX-License-Identifier: Apache-2.0
"""What schedulers and agents say to each other.

Identity is ``(node, epoch, sequence)``.  A *node* is a compute node uuid, which is also the uuid of
its root resource provider.  An *epoch* only grows: an agent begins one when it starts, and when a
scheduler asks it to exceed one.  The agent numbers each increment with a *sequence*, one counter a
node, starting at 1 in each epoch; snapshots and heartbeats name the newest one.

Values are absolute per leaf, never ``+n``: applying one twice is harmless, and two increments merge
by "the last value of a leaf wins".  Consumers travel as a set keyed by consumer uuid for the same
reason.  A leaf or consumer that is gone travels as ``None``.

The leaves that an agent publishes are *effective*: what nova-compute's resource tracker holds plus
every claim that the agent has accepted and that the tracker has not taken over yet.  Leaf names are
described in ``shared_scheduler/model/leaves.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: What a leaf may hold: scalars, and lists and string-keyed dicts of them (msgpack's own types).
Leaf = None | bool | int | float | str | list["Leaf"] | dict[str, "Leaf"]

#: provider uuid -> resource class -> amount
Allocations = Mapping[str, Mapping[str, int]]


class Role(StrEnum):
    """The program that sends a Hello."""

    AGENT = "agent"
    SCHEDULER = "scheduler"


class Want(StrEnum):
    """What a scheduler's Hello asks of each agent."""

    NOTHING = "nothing"  # presence only, schedulers hear it from one another
    HEARTBEAT = "heartbeat"  # "I knew you before: tell me your sequence and digest"
    SNAPSHOT = "snapshot"  # "I am new, I know nothing"


@dataclass(frozen=True, slots=True)
class Usage:
    """What one claim takes from the numbers that nova-compute keeps (HostState's consumption)."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    instances: int = 0
    io_ops: int = 0


@dataclass(frozen=True, slots=True)
class Consumer:
    """One consumer of a node.

    ``allocations`` is its part in this node's provider tree, empty where Placement holds none.
    ``member`` is true if nova-compute's resource tracker counts it (an instance on the node, or one
    that moves in or out), which server groups depend on.  The consumer of an accepted claim is
    a member at once: it is as good as on the node, and its group's next member must see it there.
    ``group`` is the uuid of its server group, as far as the agent has learnt it from a claim; empty otherwise.
    """

    allocations: Allocations
    member: bool = False
    group: str = ""


class GroupPolicy(StrEnum):
    """The policies of Nova's server groups."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    SOFT_AFFINITY = "soft-affinity"
    SOFT_ANTI_AFFINITY = "soft-anti-affinity"


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """The server group of a claim's consumer.

    ``members`` are the other instances of the group that the request or the scheduler knows, those that may be on
    the node first, at most ``limits.GROUP_MEMBERS_MAX``.  ``seen`` is how many of them the decision saw on the node;
    with a soft policy the agent refuses a claim whose decision saw fewer than there are.  None: whatever there is.
    """

    uuid: str
    policy: str
    max_server_per_host: int = 1
    members: tuple[str, ...] = ()
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a claim was refused: a code for programs, numbers for people.

    ``code`` is one of ``RefusalCode``; ``detail`` holds what was compared, for example
    ``{"provider": ..., "resource_class": "VCPU", "capacity": 4, "used": 4, "asked": 1}``.
    """

    code: str
    detail: Mapping[str, Leaf] = field(default_factory=dict)


class RefusalCode(StrEnum):
    """Codes of ``Reason`` that an agent gives."""

    NO_CAPACITY = "no_capacity"
    NO_INVENTORY = "no_inventory"
    TOPOLOGY = "topology"  # NUMA or PCI, by Nova's own fit functions
    GROUP_FULL = "group_full"  # as many members of its anti-affinity group are there as may be
    GROUP_CHANGED = "group_changed"  # soft policy: more members are there than the decision saw
    NOT_AUTHORITATIVE = "not_authoritative"  # nova-compute is away or has not audited yet
    WRONG_NODE = "wrong_node"
    EXPIRED = "expired"  # judged too late for the scheduler that asked
    TOO_MANY_CLAIMS = "too_many_claims"
    RELEASED = "released"  # its Release came before it
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Hello:
    """Fanout from either side: "I live, this is my epoch".

    ``sender`` is the address that answers go to.  An agent names its ``node``, a scheduler leaves it
    empty.  ``spread_ms`` bounds the random delay with which agents answer a scheduler's wish.
    """

    role: Role
    sender: str
    epoch: int
    node: str = ""
    host: str = ""
    want: Want = Want.NOTHING
    spread_ms: int = 0


@dataclass(frozen=True, slots=True)
class Increment:
    """What changed on a node since the message before it."""

    node: str
    epoch: int
    sequence: int
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    consumers: Mapping[str, Consumer | None] = field(default_factory=dict)
    #: claim id -> consumer uuid while the claim is pending, None once it has ended
    claims: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of a node at ``sequence``.  ``digest`` is over leaves, consumers without their groups, and claims;
    ``groups_digest`` is over the groups (protocol/digest.py)."""

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
    """"I live, and this is my newest sequence": reveals a lost last message and silent corruption.

    ``digest`` and ``groups_digest`` as in a snapshot: a release without groups knows the first one only."""

    node: str
    epoch: int
    sequence: int
    host: str
    digest: int
    groups_digest: int = 0


@dataclass(frozen=True, slots=True)
class Leave:
    """A clean shutdown: what follows is the next epoch's."""

    node: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A scheduler asks a node's agent to take a consumer.

    ``seen_epoch`` and ``seen_sequence`` are the state that the scheduler decided on, so that the verdict can
    bring it up to date.  ``topology`` is opaque here: a JSON text that the topology fit on the
    node understands (NUMA, PCI), empty where nothing of the kind is asked.  ``deadline_ms`` is how
    long after sending the answer is still of use.  ``group`` is None where the consumer is in no server group.
    """

    claim_id: str
    node: str
    scheduler: str  # the address that the verdict goes to
    consumer: str
    allocations: Allocations
    usage: Usage
    topology: str = ""
    seen_epoch: int = 0
    seen_sequence: int = 0
    deadline_ms: int = 0
    group: ClaimGroup | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A scheduler takes a claim back: it was not, and will not be, written to Placement.

    Idempotent.  A release that overtakes its claim makes the agent refuse that claim.
    """

    claim_id: str
    node: str
    scheduler: str
    consumer: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A node's answer to one claim, with the news since what the scheduler had seen.

    ``reflected_sequence`` is the first sequence whose state contains an accepted claim.  ``news`` are
    the increments after ``seen_sequence`` as far as the replay ring holds all of them, else empty
    (the agent then sends that scheduler a snapshot).
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
    """A scheduler missed something: replay after ``after_sequence``, or send a snapshot.

    ``epoch`` is the one that it follows; another one, or 0, always asks for a snapshot.  One above
    the agent's own shows the agent that it came back with an old epoch (a clock set back,
    its memory lost): it begins a new one above that.

    ``doubted``: the scheduler missed nothing, but Placement contradicts what the agent says of it; the
    agent looks there first, and then answers.
    """

    node: str
    scheduler: str  # the address that the answer goes to
    epoch: int
    after_sequence: int
    doubted: bool = False


Message = (
    Hello | Increment | Snapshot | Heartbeat | Leave | Claim | Release | Verdict | Resync
)


def is_for_agents(message: Message) -> bool:
    """Whether agents have something to do when a scheduler broadcasts this.

    A Hello that wants nothing comes every few seconds, and there may be 10,000 agents.
    """
    return not isinstance(message, Hello) or message.want is not Want.NOTHING


def agent_address(host: str) -> str:
    """Where casts to the agent of nova-compute service ``host`` go: the same in each of its lives."""
    return f"ssched.agent.{host}"
