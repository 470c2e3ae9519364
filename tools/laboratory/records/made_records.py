# SPDX-License-Identifier: Apache-2.0
"""Makes records as a large cloud writes them: of ten requests, nine are placed and built, and one fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared_scheduler.core.effects import RecordBuild
from shared_scheduler.decision.explain import HostAnswer
from shared_scheduler.decision.record import Attempt, DecisionCounts, DecisionRecord, Weighed
from shared_scheduler.records import entries
from shared_scheduler.records.askers import asker_of
from shared_scheduler.records.store import Record

HOSTS = 10_000
PROJECTS = 500
SCHEDULERS = 3
#: when the first request was decided, in seconds since 1970, and the time between two
BEGIN_S, BETWEEN_S = 1_760_000_000.0, 0.05
NO_ADDRESS = "NoMoreFixedIps: No fixed IP addresses available for network: lan"
#: of so many requests, the last one finds no host
FAILING_EVERY = 10
#: of so many builds, one fails
FAILING_BUILDS_EVERY = 20


def made(count: int) -> Iterator[Record]:
    """The first ``count`` records."""
    number = written = 0
    while written < count:
        for record in _of_request(number)[: count - written]:
            yield record
            written += 1
        number += 1


def server(number: int) -> str:
    """The uuid of the server of a request."""
    return f"{number:08x}-26a3-4bfe-8f8c-7b3a6b0f8d1e"


def _of_request(number: int) -> list[Record]:
    at_s, scheduler = BEGIN_S + number * BETWEEN_S, f"controller-{number % SCHEDULERS}"
    failed = number % FAILING_EVERY == FAILING_EVERY - 1
    decision = _decision(number, failed)
    if failed:
        short = {"asked": 2048, "used": 261_000, "capacity": 262_144}
        near = [HostAnswer(f"n{n}", _host(number + n), "no_room:MEMORY_MB", short) for n in range(5)]
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
    form = {"resources": {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}, "required": [], "forbidden": []}
    return {
        "project_id": f"project-{number % PROJECTS}", "user_id": f"user-{number % PROJECTS}", "flavor": "m1.small",
        "extra_specs": {}, "forms": [form], "instances": [server(number)], "image": server(7), "group": None,
        "availability_zone": "nova", "ignore_hosts": [], "force_hosts": [], "force_nodes": [], "spread": [],
    }  # fmt: skip


def _host(number: int) -> str:
    return f"compute-{number * 7919 % HOSTS:05d}"
