# SPDX-License-Identifier: Apache-2.0
"""The shape of each answer of the commands that operate schedulers: ``status``, ``resync``, ``compare``, ``agreement``.

As in ``shapes.py``, keys that are not named here may be added, and times with the end ``at`` are seconds since 1970.  A
scheduler of an earlier release may leave out what is ``NotRequired``.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from shared_scheduler.answers.shapes import RecordEntry


class CellConnection(TypedDict):
    """The connection of a scheduler to the message bus of a cell.

    ``in_state_s``: for how long it has been connected, or not; ``heard_ago_s``: None if nothing was heard yet.
    """

    name: NotRequired[str]
    connected: bool
    address: str
    in_state_s: float
    heard_ago_s: float | None
    host_keys: NotRequired[Literal["off", "accept", "require"]]


class TwoAgents(TypedDict):
    """A node for which two agents speak: ``host`` is that of the database, ``other_host`` that of the other agent."""

    node: str
    host: str
    other_host: str


class SilentAgent(TypedDict):
    """A node whose agent was heard since this scheduler started, and does not report now."""

    node: str
    host: str
    heard_ago_s: float | None


class Releases(TypedDict):
    """Release -> number of programs that run it."""

    schedulers: dict[str, int]
    agents: dict[str, int]


class Status(TypedDict):
    """The state of one scheduler.

    ``freshness``: freshness -> nodes; ``in_flight``: requests under way; ``cells``: uuid of a cell -> its connection;
    ``counters``: name -> events since the start.  ``quarantined``: uuids of nodes.  ``agents_silent``: number of nodes
    whose agents were heard and are not now; ``silent_agents``: those that have been silent for the longest time.
    """

    scheduler: str
    pid: int
    mode: NotRequired[str]
    nodes: int
    freshness: dict[str, int]
    quarantined: list[str]
    quarantined_hosts: NotRequired[list[str]]
    agents_silent: NotRequired[int]
    silent_agents: NotRequired[list[SilentAgent]]
    second_agents: NotRequired[list[TwoAgents]]
    claims_open: int
    claims_watched: NotRequired[int]
    release: str
    releases: Releases
    in_flight: int
    cells: dict[str, CellConnection]
    counters: dict[str, int]


class NodeStatus(TypedDict):
    """One node as a scheduler knows it.  ``why_not``: empty if no reason is known; ``used``: resource class -> amount.

    ``disabled_reason``: why the service is disabled, if Nova keeps it.
    ``agent``: ``heard``; ``silent``, heard once and not now; or ``none``, never heard.
    ``outstanding``: servers that an agent has not confirmed; ``pending``: claims of the node.
    """

    node: str
    host: str
    cell: str
    freshness: str
    agent: NotRequired[Literal["heard", "silent", "none"]]
    epoch: int
    sequence: int
    heard_ago_s: float | None
    choosable: bool
    why_not: str
    disabled_reason: NotRequired[str]
    outstanding: int
    pending: int
    used: dict[str, int]


class NodeList(TypedDict):
    """The nodes of one scheduler, by host."""

    scheduler: str
    nodes: list[NodeStatus]


class ReadSource(TypedDict):
    """One kind of read of Nova's databases or Placement, with its age and cost (``doc/source/admin/reads.rst``)."""

    source: str
    authority: str
    key: str
    poll_s: float | None
    triggers: str
    decision_waits: str
    refusal_waits: str
    keys: int
    oldest_s: float | None
    due: int
    waiting: int
    in_flight: int
    failing: int
    reads: int
    failures: int
    seconds: float
    queries: int
    rows: int


class Reads(TypedDict):
    """The reads of one scheduler."""

    scheduler: str
    pid: int
    reads: list[ReadSource]


class ForeignChangeEntry(TypedDict):
    """Allocations of a server that another writer changed.  ``before`` and ``after``: provider -> resource class ->
    amount; ``seen_by``: the action or report that showed it; ``kind``: what it was, as far as that can be told;
    ``host``: whose report showed it, or empty."""

    consumer: str
    before: dict[str, dict[str, int]]
    generation_before: int | None
    after: dict[str, dict[str, int]]
    generation_after: int | None
    seen_by: str
    seen_at_s: float
    kind: NotRequired[str]
    host: NotRequired[str]


class ForeignChangeList(TypedDict):
    """The number of such changes since the start that Nova does not explain, that of each kind, and the last ones of
    all kinds, newest first."""

    scheduler: str
    pid: int
    count: int
    kinds: NotRequired[dict[str, int]]
    changes: list[ForeignChangeEntry]


class ResyncedNode(TypedDict):
    """How far a node is.  ``source``: who is asked for its state; ``result``: ``read`` when it has been read."""

    node: str
    cell: str
    source: Literal["agent", "databases"]
    result: str
    epoch_before: int
    sequence_before: int
    epoch: int
    sequence: int
    ended_quarantine: bool
    quarantined: bool


class ResyncedHost(TypedDict):
    """What one scheduler has read of a host anew; no nodes if it knows none of the host."""

    scheduler: str
    pid: int
    host: str
    nodes: list[ResyncedNode]


class Compared(TypedDict):
    """Whether schedulers, agents, Placement and Nova's databases agree.

    ``sources``: source -> its nodes; ``differences``: a line each; ``foreign_changes``: scheduler -> number.
    """

    sources: dict[str, int]
    nodes_without_agent: list[str]
    hosts_without_agent: NotRequired[list[str]]
    differences: list[str]
    foreign_changes: dict[str, int]


class AgreementReason(TypedDict):
    """How many requests had this result for this reason."""

    result: str
    reason: str
    requests: int


class AgreementSum(TypedDict):
    """How mode ``shadow`` agrees with nova-scheduler.

    ``results``: result -> requests; ``latency_ms``: ``ours`` and ``stock`` -> quantile -> time of a request;
    ``rank_of_stocks_host``: quantile -> place of nova-scheduler's host among ours; ``differences``: the last ones.
    """

    first_at: float | None
    last_at: float | None
    requests: int
    results: dict[str, int]
    reasons: list[AgreementReason]
    latency_ms: dict[str, dict[str, float]]
    rank_of_stocks_host: dict[str, float]
    differences: list[RecordEntry]
