# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Placement in its own process: `python -m tools.laboratory.placement SOCKET HARDWARE HOSTS`.

It is the simulator's Placement behind the part of the HTTP interface that schedulers and agents use here: a write is
atomic, a new consumer has no generation, capacity is checked (without the race of the real Placement), and the error
codes are Placement's. A scheduler also reads nodes from it instead of from Nova's databases.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.connection import CONCURRENT_UPDATE, Reply, no_reply, reply_from
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.placement import SimPlacement, wanted_of
from tools.laboratory.fleet.hosts import HARDWARE, Host, hosts, inventories
from tools.laboratory.processes.control import ControlError, Line, serve

Answer = tuple[int, Any]
FIRST_GENERATION = 1
INVENTORY_FIELDS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


class StandIn:
    """Answers one call at a time."""

    def __init__(self, fleet: Sequence[Host]) -> None:
        self._lock = threading.Lock()
        self._sim = SimPlacement(races=False)
        for host in fleet:
            self._sim.add_provider(host.node, host.name, inventories(host))
        self._generation = 0  # of all providers: it grows with every write to any
        self.refused_for_capacity = 0

    def call(self, method: str, path: str, body: Any) -> Answer:
        """One HTTP request: status and decoded body."""
        url = urlsplit(path)
        parts = url.path.strip("/").split("/")
        with self._lock:
            match method, parts:
                case "POST", ["allocations"]:
                    return self._write(body)
                case "PUT", ["allocations", consumer]:
                    return self._write({consumer: body})
                case "GET", ["allocations", consumer]:
                    return 200, self._consumer(consumer)
                case "GET", ["resource_providers", node, what]:
                    return self._of_provider(node, what)
                case "GET", ["resource_providers", node]:
                    shown = {"uuid": node, "generation": self._generation}
                    return (200, shown) if node in self._sim.providers else _error(404, "")
                case "GET", ["resource_providers"]:
                    return 200, {"resource_providers": []}  # a request for sharing providers: there are none
                case "GET", ["allocation_candidates"]:
                    return 200, self._candidates(parse_qs(url.query))
        return _error(404, f"{method} {path} is not simulated")

    # -- writes

    def _write(self, bodies: Mapping[str, Any]) -> Answer:
        """Write all or none."""
        wanted = {name: _allocations(body) for name, body in bodies.items()}
        for name, body in bodies.items():
            generation = FIRST_GENERATION if name in self._sim.consumers else None
            if body["consumer_generation"] != generation:
                return _error(409, f"consumer {name} has generation {generation}", CONCURRENT_UPDATE)
            if not wanted[name].keys() <= self._sim.providers.keys():
                return _error(400, "no such resource provider")
        self._generation += 1
        before = {name: self._sim.consumers.get(name, {}) for name in wanted}
        if refused := self._replace(wanted):
            self._replace(before)
            self.refused_for_capacity += 1
            return _error(409, refused)
        return 204, None

    def _replace(self, allocations: Mapping[str, Allocations]) -> str:
        """Replace the allocations of these consumers; returns the reason if that is not possible."""
        for consumer in allocations:
            self._sim.delete(consumer)
        for consumer, wanted in allocations.items():
            if wanted:
                code, detail = self._sim.end_write(self._sim.begin_write(consumer, wanted))
                if code is not WriteCode.WRITTEN:
                    return detail
        return ""

    # -- reads

    def _consumer(self, consumer: str) -> dict[str, Any]:
        held = self._sim.consumers.get(consumer, {})
        body: dict[str, Any] = {"allocations": {node: {"resources": amounts} for node, amounts in held.items()}}
        return body | ({"consumer_generation": FIRST_GENERATION} if held else {})

    def _of_provider(self, node: str, what: str) -> Answer:
        if node not in self._sim.providers:
            return _error(404, "no such resource provider")
        match what:
            case "allocations":
                held = self._sim.consumers_of(node)
                return 200, {"allocations": {name: {"resources": part[node]} for name, part in held.items()}}
            case "usages":
                return 200, {"usages": dict(self._sim.used(node))}
            case "inventories":
                rows = self._sim.providers[node].inventories.items()
                return 200, {"inventories": {name: dict(zip(INVENTORY_FIELDS, row.to_leaf(), strict=True))
                                             for name, row in rows}}  # fmt: skip
        return _error(404, f"{what} is not simulated")

    def _candidates(self, query: Mapping[str, list[str]]) -> dict[str, Any]:
        """The candidates of a request with one unnumbered group of resources."""
        resources = f"resources={query['resources'][0]}"
        wanted = wanted_of(resources)
        fitting = self._sim.fitting(resources) & frozenset(query.get("in_tree", self._sim.providers))
        nodes = sorted(fitting)[: int(query.get("limit", ["1000"])[0])]
        return {
            "allocation_requests": [
                {"allocations": {node: {"resources": wanted}}, "mappings": {"": [node]}} for node in nodes
            ],
            "provider_summaries": {
                node: {"resources": {}, "traits": [], "parent_provider_uuid": None, "root_provider_uuid": node}
                for node in nodes
            },
        }  # fmt: skip

    # -- for the experiment

    def consumers(self) -> dict[str, str]:
        """Consumer -> the node of its allocation."""
        with self._lock:
            return {name: next(iter(held)) for name, held in self._sim.consumers.items()}

    def free(self, consumer: str) -> None:
        """Delete an allocation, because nova-compute has deleted the server, or nova-api one that was never built."""
        with self._lock:
            self._sim.delete(consumer)


def _allocations(body: Mapping[str, Any]) -> Allocations:
    return {node: dict(part["resources"]) for node, part in body["allocations"].items()}


def _error(status: int, detail: str, code: str = "placement.undefined_code") -> Answer:
    return status, {"errors": [{"status": status, "code": code, "detail": detail}]}


class StandInTransport:
    """A `placement.connection.Transport` to that process: one connection for each thread."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._own = threading.local()

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, request_id: str = "",
        timeout_s: float | None = 10.0,
    ) -> Reply:  # fmt: skip
        """One request; what goes wrong on the way is a reply too."""
        if not hasattr(self._own, "line"):
            self._own.line = Line(self._socket)
        try:
            status, answer = self._own.line.ask("call", timeout_s, method=method, path=path, body=body)
        except ControlError as error:
            return no_reply(str(error))
        return reply_from(status, answer)


def main() -> None:
    """Serve until the process that started this one ends it."""
    socket, hardware, count = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stand_in = StandIn(hosts(int(count), HARDWARE[hardware]))
    serve(Path(socket), {
        "call": lambda asked: stand_in.call(asked["method"], asked["path"], asked["body"]),
        "consumers": lambda _: stand_in.consumers(),
        "free": lambda asked: stand_in.free(asked["consumer"]),
        "status": lambda _: {"refused_for_capacity": stand_in.refused_for_capacity},
    })  # fmt: skip
    threading.Event().wait()


if __name__ == "__main__":
    main()
