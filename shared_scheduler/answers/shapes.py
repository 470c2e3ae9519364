# SPDX-License-Identifier: Apache-2.0
"""The shape of each answer.  ``schema.py`` makes a JSON schema of each; keys that are not named here may be added.

Times with the end ``at`` are seconds since 1970; times with the end ``_s`` are durations in seconds.  The commands and
the site add the text of each moment in ISO 8601: ``time`` beside ``at``, ``since_time`` beside ``since_at``
(``times.py``).
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class RecordEntry(TypedDict):
    """A record of any kind.  ``doc/source/admin/records.rst`` describes the kinds and all fields.

    Only two are in every record, because releases differ in the others.
    """

    at: float
    kind: str
    request_id: NotRequired[str]
    global_request_id: NotRequired[str]
    instances: NotRequired[list[str]]
    project_id: NotRequired[str]
    user_id: NotRequired[str]
    result: NotRequired[str]
    reason: NotRequired[str]
    scheduler: NotRequired[str]
    hosts: NotRequired[list[str]]
    reasons: NotRequired[dict[str, int]]
    near: NotRequired[list[dict[str, Any]]]
    rejected: NotRequired[list[dict[str, Any]]]
    missing: NotRequired[dict[str, list[int]]]
    source: NotRequired[str]
    asked: NotRequired[dict[str, Any]]
    decisions: NotRequired[list[dict[str, Any]]]
    attempts: NotRequired[list[dict[str, Any]]]
    answer: NotRequired[list[list[str]]]
    timings_ms: NotRequired[dict[str, float]]


#: the ``action`` of a fault of a server; its ``event`` is the code of the fault
FAULT = "fault"
#: the ``result`` of an event without an end
UNFINISHED = "unfinished"


class NovaEvent(TypedDict):
    """An event of an action of a server or a fault, as Nova keeps it.  ``result``: ``Success``, ``Error`` or
    ``unfinished``."""

    instance: str
    at: float
    request_id: str
    action: str
    event: str
    host: str
    result: str
    details: str


class Why(TypedDict):
    """What became of a request or a server.  ``causes``: why it failed; ``would_help``: what the hosts lacked;
    ``later``: what became of later requests for servers of this request; ``records``: oldest first.

    ``nova``: the events of its servers in Nova's databases, oldest first, if they were asked for."""

    name: str
    outcome: str
    causes: list[str]
    would_help: list[str]
    later: NotRequired[list[str]]
    records: list[RecordEntry]
    nova: NotRequired[list[NovaEvent]]


class WhyNot(TypedDict):
    """One fact about a server and a host.  ``source``: ``record``, or ``table``: that of a running scheduler, now.

    ``instance``: of a request for several servers, the uuid of the one that the fact is about."""

    at: float
    request_id: str
    instance: NotRequired[str]
    text: str
    source: Literal["record", "table"]


class HostEvent(TypedDict):
    """One fact about a host.  ``instances``: the servers that it is about."""

    at: float
    request_id: str
    instances: list[str]
    text: str


class Reasons(TypedDict):
    """Failures by reason over time.

    ``counts``: reason -> number of failures in each step of ``step_s`` from ``since_at`` on.  A decision that failed
    counts once, under the reason that rejected the most hosts, or else under its result; a build that failed counts
    under the name of its error.  ``texts``: of such a name -> the most frequent texts behind it -> failures.
    ``records``: number of records that were read; ``whole``: whether these are all records from ``since_at`` to
    ``until_at``.
    """

    since_at: float
    until_at: float
    step_s: float
    records: int
    whole: bool
    counts: dict[str, list[int]]
    texts: dict[str, dict[str, int]]


class Use(TypedDict):
    """One resource class of a node.  ``capacity``: (total - reserved) * ratio, as Placement counts."""

    used: int
    capacity: int


class FleetHost(TypedDict):
    """One node.  ``lag``: messages that are known to exist and not applied; ``why_not``: empty if choosable;
    ``disabled_reason``: Nova's; ``agent``: ``heard``; ``silent``, heard once and not now; or ``none``, never heard."""

    host: str
    node: str
    cell: str
    freshness: str
    state: str
    agent: NotRequired[Literal["heard", "silent", "none"]]
    lag: int
    heard_ago_s: float | None
    why_not: str
    disabled_reason: NotRequired[str]
    resources: dict[str, Use]


class Fleet(TypedDict):
    """The nodes that one scheduler knows, by host."""

    scheduler: str
    pid: int
    hosts: list[FleetHost]


class LaggingHost(TypedDict):
    """A node whose messages are missing, or whose agent is silent."""

    host: str
    state: str
    agent: NotRequired[Literal["heard", "silent", "none"]]
    lag: int
    heard_ago_s: float | None


class Load(TypedDict):
    """What one scheduler does.  Counts are those since its start (``started_at``).

    ``clock_s``: the clock of the scheduler; the difference of two loads is the time between them.  ``windows``: state
    of a window -> nodes.  ``lags``: at most so many messages behind -> nodes; those without an agent that reports are
    in ``silent`` or ``without_agent``.  ``queues``: what waits.
    """

    scheduler: str
    pid: int
    started_at: NotRequired[float]
    clock_s: float
    nodes: int
    windows: dict[str, int]
    lags: dict[str, int]
    lagging: list[LaggingHost]
    decisions: int
    failures: int
    refusals: int
    conflicts: int
    queues: dict[str, int]
    per_s: NotRequired[dict[str, float] | None]


class FitHost(TypedDict):
    """A host on which servers would be placed."""

    host: str
    node: str
    servers: int


class FitNext(TypedDict):
    """The server after the last that fits.

    ``host``: where it would be placed, if one more than asked for fits.  Otherwise ``text`` is one line, ``reasons``
    the number of hosts by reason, ``missing`` the least and the most that the hosts of a reason lack, ``near`` some
    hosts of each reason with the numbers compared, and ``refused`` the hosts that Nova's own filters refused.
    """

    host: str
    text: str
    reasons: NotRequired[dict[str, int]]
    missing: NotRequired[dict[str, list[int]]]
    near: NotRequired[list[dict[str, Any]]]
    refused: NotRequired[list[dict[str, Any]]]


class HostAnswer(TypedDict):
    """Why a host is rejected now; ``code`` is empty if it passes.

    ``detail``: the values compared; ``source``: ``agent`` or ``databases``; ``age_s``: since that was heard or read.
    """

    host: str
    node: str
    code: str
    detail: dict[str, Any]
    weight: float
    weights: dict[str, float]
    epoch: int
    sequence: int
    source: str
    age_s: float | None


class HostAnswers(TypedDict):
    """The present reasons of some hosts for a request."""

    scheduler: str
    pid: int
    at: float
    hosts: list[HostAnswer]


class Fit(TypedDict):
    """Whether ``number`` servers would fit.

    ``result``: ``fits``, ``does_not_fit`` or ``unknown``; ``unknown``: why that is not known; ``fit``: how many were
    placed; ``hosts``: in the order in which they were chosen first; ``table_hosts``: hosts that the scheduler knows.
    """

    scheduler: str
    pid: int
    at: float
    result: Literal["fits", "does_not_fit", "unknown"]
    unknown: str
    number: int
    fit: int
    hosts: list[FitHost]
    next: FitNext
    asked: dict[str, Any]
    table_hosts: int
    took_ms: float


class Difference(TypedDict):
    """A request that gets other hosts.  ``was`` and ``now``: the hosts of its servers; empty if none was found."""

    request_id: str
    at: float
    was: list[str]
    now: list[str]
    why: str


class Replay(TypedDict):
    """Recorded requests that were decided again.

    ``state``: ``recorded`` or ``current``; ``compared_with``: ``recorded``, or ``config_file`` if the choices are
    compared with those of --config-file alone, not with the recorded ones; ``result``: ``same``, ``differs`` or
    ``cannot``; ``choice``: the hosts of the servers if there is one request only, and it is the same (empty: no host);
    ``differences``: the first thousand; ``cannot_reasons``: why requests could not be decided again -> how many.
    """

    state: Literal["recorded", "current"]
    compared_with: Literal["recorded", "config_file"]
    choice: NotRequired[list[str]]
    result: Literal["same", "differs", "cannot"]
    requests: int
    same: int
    differ: int
    cannot: int
    differences: list[Difference]
    cannot_reasons: dict[str, int]
    took_s: float


class Failed(TypedDict):
    """The answer over HTTP if there is none."""

    error: str
