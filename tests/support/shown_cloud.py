# SPDX-License-Identifier: Apache-2.0
"""A cloud as the page shows it: records of a day, and schedulers that answer on their admin sockets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from shared_scheduler.core.effects import RecordBuild
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import Attempt, DecisionCounts, Weighed
from shared_scheduler.protocol.phases import FRESHNESS, WindowPhase
from shared_scheduler.records import entries
from shared_scheduler.records.askers import NOBODY
from tests.unit.records.test_entries import record

STATES = [WindowPhase.IN_ORDER] * 60 + [WindowPhase.UNVERIFIED, WindowPhase.GAP, WindowPhase.SILENT, WindowPhase.NEW]
NO_ADDRESS = "NoMoreFixedIps: No fixed IP addresses available for network: lan"


def hosts(count: int, rng: Random) -> list[dict[str, Any]]:
    """Nodes of three kinds, most of them half full; some have no CPU left and much memory."""
    return [_host(number, rng) for number in range(count)]


def _host(number: int, rng: Random) -> dict[str, Any]:
    cores, gib = rng.choice([(64, 256), (96, 384), (128, 1024)])
    load = min(1.0, max(0.0, rng.gauss(0.55, 0.25)))
    even = rng.random() < 0.85
    shares = [load, load if even else load * rng.random(), load * 0.6]
    phase = rng.choice(STATES)
    capacity = {"VCPU": cores * 4, "MEMORY_MB": gib * 1024, "DISK_GB": 3600}
    lag = rng.randint(1, 40) if phase == WindowPhase.GAP else 0
    return {
        "host": f"rack{number // 40:03d}-c{number % 40:02d}", "node": f"node-{number}", "cell": "cell1",
        "freshness": FRESHNESS[phase].value, "state": phase.value, "lag": lag,
        "heard_ago_s": None
        if phase == WindowPhase.NEW
        else round(rng.random() * (90 if phase == WindowPhase.SILENT else 2), 1),
        "why_not": "disabled" if rng.random() < 0.02 else "",
        "resources": {name: {"used": int(share * most), "capacity": most}
                      for share, (name, most) in zip(shares, capacity.items(), strict=True)},
    }  # fmt: skip


class ShownScheduler:
    """Answers as a scheduler does; each question finds five more decisions."""

    def __init__(
        self, fleet: list[dict[str, Any]], name: str = "controller-1", started_at: float = 1_759_989_200.0
    ) -> None:
        self._fleet, self._asked, self._started_at = fleet, 0, started_at
        self._head = {"scheduler": name, "pid": 4711}

    def questions(self) -> dict[str, Any]:
        """The handlers of an admin server."""
        return {"fleet": lambda _: {**self._head, "hosts": self._fleet}, "top": self._load}

    def _load(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self._asked += 1
        lagging = [one for one in self._fleet if one["lag"]]
        states = [one["state"] for one in self._fleet]
        return {
            **self._head, "started_at": self._started_at, "clock_s": float(self._asked), "nodes": len(self._fleet),
            "windows": {each.value: states.count(each.value) for each in WindowPhase},
            "lags": {"0": len(self._fleet) - len(lagging), "1": 0, "4": 0, "16": 0, "more": len(lagging)},
            "lagging": [{name: one[name] for name in ("host", "state", "lag", "heard_ago_s")} for one in lagging[:20]],
            "decisions": 181_204 + 38 * self._asked, "failures": 312, "refusals": 1_094, "conflicts": 27,
            "queues": {"requests": 6, "placement_writes": 2, "records": 0},
        }  # fmt: skip


def day(until_s: float, count: int, rng: Random, names: list[str]) -> Iterator[dict[str, Any]]:
    """``count`` decisions of the day before ``until_s``, oldest first, and the ends of their builds."""
    for number in range(count):
        yield from request(number, until_s - (count - number) * 86_400 / count, rng, names)


def request(number: int, at_s: float, rng: Random, names: list[str]) -> Iterator[dict[str, Any]]:
    """One request for a server, and how it ended."""
    server = f"{rng.getrandbits(32):08x}-26a3-4bfe-8f8c-{number:012x}"
    named = {"request_id": f"req-{number:08x}-0a7e-4f0f-8b0a-3b1d6f1a2c3d"}
    chosen = rng.sample(names, 3)
    if rng.random() < 0.06:
        refused = _refused(server, len(names), rng, named)
        yield _with_resources(entries.entry(refused, "controller-1", at_s, _near(chosen)))
        return
    best = tuple(Weighed("n", host, 1.8 - place / 7, 3, 41, {"RAMWeigher": 1.0 - place / 7, "CPUWeigher": 0.8})
                 for place, host in enumerate(chosen))  # fmt: skip
    attempts = [Attempt(server, "n", chosen[0], "written", {}, 3, 41, 2.5, 8.0)]
    if rng.random() < 0.1:
        attempts.insert(0, Attempt(server, "n", rng.choice(names), "topology", {"why": "no NUMA cell fits"}, 3, 2, 1.5))
    counts = DecisionCounts(0, len(names), len(names) - 57, {"no_room:VCPU": 41, "ComputeFilter": 16}, best)
    placed = record((server,), answer=(tuple(chosen),), attempts=tuple(attempts), decisions=(counts,), **named)
    yield _with_resources(entries.entry(placed, "controller-1", at_s))
    for host in chosen if rng.random() < 0.03 else ():
        yield build(server, host, at_s + 4, NO_ADDRESS)


def _with_resources(entry: dict[str, Any]) -> dict[str, Any]:
    asked = {"flavor": "m1.large", "forms": [{"resources": {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 80}}]}
    return {**entry, "asked": {**entry["asked"], **asked}}


def build(server: str, host: str, at_s: float, reason: str) -> dict[str, Any]:
    """The end of a build; without a reason it succeeded."""
    ended = RecordBuild("n", host, server, not reason, reason, cause="x")
    return entries.build_entry(ended, NOBODY, "controller-1", at_s)


def _refused(server: str, hosts: int, rng: Random, named: Mapping[str, Any]) -> Any:
    memory = rng.choice([hosts * 7 // 10, hosts // 5])
    reasons = {"no_room:MEMORY_MB": memory, "no_room:VCPU": hosts - memory - 16, "ComputeFilter": 16}
    text = f"0 of {hosts} hosts pass"
    return record((server,), failure="no_valid_host", text=text, answer=(), attempts=(),
                  decisions=(DecisionCounts(0, hosts, 0, reasons),), **named)  # fmt: skip


def _near(chosen: list[str]) -> entries.Near:
    detail = {"asked": 65_536, "used": 200_000, "capacity": 262_144}
    hosts = [ExplainedHost(host, host, "no_room:MEMORY_MB", detail, epoch=3, sequence=41) for host in chosen]
    origins = {host: {"source": "agent", "age_s": 0.4} for host in chosen}
    return entries.Near(hosts, {"no_room:MEMORY_MB": (3_392, 61_440)}, origins)
