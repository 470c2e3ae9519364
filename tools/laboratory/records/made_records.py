# SPDX-License-Identifier: Apache-2.0
"""Makes records as a large cloud writes them: of ten requests, nine are placed and built, and one fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared_scheduler.core.effects import RecordBuild
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import Attempt, DecisionCounts, DecisionRecord, Weighed, asked_of
from shared_scheduler.records import entries
from shared_scheduler.records.askers import asker_of
from shared_scheduler.records.store import Record
from tools.laboratory.decide.workloads import Workload, make_request

HOSTS = 10_000
PROJECTS = 500
SCHEDULERS = 3
#: the time between two requests
BETWEEN_S = 0.05
NO_ADDRESS = "NoMoreFixedIps: No fixed IP addresses available for network: lan"
#: a request for one server, as records hold it
ASKED = asked_of(
    make_request(Workload("small", [], {"resources": {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}}), 0, "")
)
#: of so many requests, the last one finds no host
FAILING_EVERY = 10
#: of so many builds, one fails
FAILING_BUILDS_EVERY = 20


def made(count: int, begin_s: float) -> Iterator[Record]:
    """The first ``count`` records; the first request was decided at ``begin_s``, in seconds since 1970."""
    number = written = 0
    while written < count:
        for record in _of_request(number, begin_s + number * BETWEEN_S)[: count - written]:
            yield record
            written += 1
        number += 1


def server(number: int) -> str:
    """The uuid of the server of a request."""
    return f"{number:08x}-26a3-4bfe-8f8c-7b3a6b0f8d1e"


def host(number: int) -> str:
    """The name of a host, as the table of ``live_scheduler`` has it."""
    return f"compute{number}"


def _of_request(number: int, at_s: float) -> list[Record]:
    scheduler = f"controller-{number % SCHEDULERS}"
    failed = number % FAILING_EVERY == FAILING_EVERY - 1
    decision = _decision(number, failed)
    if failed:
        short = {"asked": 2048, "used": 261_000, "capacity": 262_144}
        near = [ExplainedHost(f"n{n}", _host(number + n), "no_room:MEMORY_MB", short) for n in range(5)]
        return [entries.entry(decision, scheduler, at_s, entries.Near(near, {"no_room:MEMORY_MB": (24, 2_048)}))]
    reason = NO_ADDRESS if number % FAILING_BUILDS_EVERY == 0 else ""
    build = RecordBuild("n", decision.answer[0][0], server(number), not reason, reason, cause="")
    end = entries.build_entry(build, asker_of(decision), scheduler, at_s + 3.0)
    return [entries.entry(decision, scheduler, at_s), end]


def _decision(number: int, failed: bool) -> DecisionRecord:
    hosts = [_host(number + n) for n in range(3)]
    shares = {"RAMWeigher": 0.7312, "CPUWeigher": 0.5119, "DiskWeigher": 0.25}
    best = () if failed else tuple(Weighed(f"n-{host}", host, 1.4931, 3, number, shares) for host in hosts)
    reasons = {"no_room:MEMORY_MB": 6_000, "no_room:VCPU": 1_500, "disabled": 20}
    passed = 0 if failed else HOSTS - sum(reasons.values())
    return DecisionRecord(
        request_id=f"req-{server(number)}",
        asked=_asked(number),
        decisions=(DecisionCounts(0, HOSTS, passed, reasons, best),),
        attempts=() if failed else (Attempt(server(number), "n", hosts[0], "written", {}, 3, number, 2.5, 8.0),),
        answer=() if failed else (tuple(hosts),),
        failure="no_valid_host" if failed else "",
        text="0 of 10000 hosts passed" if failed else "",
        timings_ms={"decide": 4.1, "claim": 2.5, "write": 8.0, "total": 15.2},
    )


def _asked(number: int) -> dict[str, Any]:
    project, user = f"project-{number % PROJECTS}", f"user-{number % PROJECTS}"
    return {**ASKED, "project_id": project, "user_id": user, "instances": [server(number)]}


def _host(number: int) -> str:
    return host(number * 7919 % HOSTS)
