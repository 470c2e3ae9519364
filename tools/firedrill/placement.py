# SPDX-License-Identifier: Apache-2.0
"""A small Placement in a process of its own: `python -m tools.firedrill.placement SOCKET HOSTS`.

It stands in for the real one as far as schedulers and agents call it here: allocations are written all or none, a
new consumer is new, capacity is checked (without the race that the real one loses), error codes are Placement's.
It is also what a scheduler reads of a node in Nova's databases.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shared_scheduler.placement.reply import CONCURRENT_UPDATE, Reply, no_reply, reply_from
from shared_scheduler.protocol.messages import Allocations

from .control import ControlError, Line, serve
from .nodes import AMOUNTS, INVENTORIES, node_name

Answer = tuple[int, Any]
FIRST_GENERATION = 1
ROW = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


class StandIn:
    """The calls that are made of it; one at a time."""

    def __init__(self, hosts: int) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Allocations] = {}  # by consumer
        self._on: dict[str, dict[str, Mapping[str, int]]] = {node_name(n): {} for n in range(1, hosts + 1)}
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
                    return (200, shown) if node in self._on else _error(404, "")
                case "GET", ["resource_providers"]:
                    return 200, {"resource_providers": []}  # asked for those that share: there are none
                case "GET", ["allocation_candidates"]:
                    return 200, self._candidates(parse_qs(url.query))
        return _error(404, f"{method} {path} is not imitated")

    # -- writes

    def _write(self, consumers: Mapping[str, Any]) -> Answer:
        """All or none."""
        wanted = {name: _allocations(body) for name, body in consumers.items()}
        for name, body in consumers.items():
            generation = FIRST_GENERATION if name in self._held else None
            if body["consumer_generation"] != generation:
                return _error(409, f"consumer {name} has generation {generation}", CONCURRENT_UPDATE)
            if not wanted[name].keys() <= self._on.keys():
                return _error(400, "no such resource provider")
        self._generation += 1
        before = {name: self._held.get(name, {}) for name in wanted}
        self._replace(wanted)
        if any(self._is_beyond(node) for allocations in wanted.values() for node in allocations):
            self._replace(before)
            self.refused_for_capacity += 1
            return _error(409, "no room")
        return 204, None

    def _replace(self, allocations: Mapping[str, Allocations]) -> None:
        for consumer, wanted in allocations.items():
            for node in self._held.pop(consumer, {}):
                del self._on[node][consumer]
            if wanted:
                self._held[consumer] = wanted
            for node, amounts in wanted.items():
                self._on[node][consumer] = amounts

    def _used(self, node: str) -> Counter[str]:
        used: Counter[str] = Counter()
        for amounts in self._on[node].values():
            used.update(amounts)
        return used

    def _is_beyond(self, node: str) -> bool:
        return any(amount > INVENTORIES[name].capacity for name, amount in self._used(node).items())

    # -- reads

    def _consumer(self, consumer: str) -> dict[str, Any]:
        held = self._held.get(consumer, {})
        body: dict[str, Any] = {"allocations": {node: {"resources": amounts} for node, amounts in held.items()}}
        return body | ({"consumer_generation": FIRST_GENERATION} if held else {})

    def _of_provider(self, node: str, what: str) -> Answer:
        if node not in self._on:
            return _error(404, "no such resource provider")
        match what:
            case "allocations":
                return 200, {"allocations": {name: {"resources": part} for name, part in self._on[node].items()}}
            case "usages":
                return 200, {"usages": dict(self._used(node))}
            case "inventories":
                return 200, {"inventories": {name: dict(zip(ROW, row.to_leaf(), strict=True))
                                             for name, row in INVENTORIES.items()}}  # fmt: skip
        return _error(404, f"{what} is not imitated")

    def _candidates(self, query: Mapping[str, list[str]]) -> dict[str, Any]:
        """Everybody asks for a server of the one flavor."""
        asked = query.get("in_tree") or self._on
        fitting = [node for node in asked if node in self._on and self._has_room(node)]
        nodes = sorted(fitting)[: int(query.get("limit", ["1000"])[0])]
        return {
            "allocation_requests": [
                {"allocations": {node: {"resources": AMOUNTS}}, "mappings": {"": [node]}} for node in nodes
            ],
            "provider_summaries": {
                node: {"resources": {}, "traits": [], "parent_provider_uuid": None, "root_provider_uuid": node}
                for node in nodes
            },
        }  # fmt: skip

    def _has_room(self, node: str) -> bool:
        used = self._used(node)
        return all(used[name] + amount <= INVENTORIES[name].capacity for name, amount in AMOUNTS.items())

    # -- for the drill

    def consumers(self) -> dict[str, str]:
        """Consumer -> the node that it has its allocation on."""
        with self._lock:
            return {name: next(iter(held)) for name, held in self._held.items()}

    def free(self, consumer: str) -> None:
        """nova-compute has ended a server, or nova-api one that never was."""
        with self._lock:
            self._replace({consumer: {}})


def _allocations(body: Mapping[str, Any]) -> Allocations:
    return {node: dict(part["resources"]) for node, part in body["allocations"].items()}


def _error(status: int, detail: str, code: str = "placement.undefined_code") -> Answer:
    return status, {"errors": [{"status": status, "code": code, "detail": detail}]}


class StandInTransport:
    """`placement.connection.Transport` to the process above: a connection for each thread."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._own = threading.local()

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, request_id: str = "",
        timeout_s: float = 10.0,
    ) -> Reply:  # fmt: skip
        """One request; never raises for what happens on the way."""
        if not hasattr(self._own, "line"):
            self._own.line = Line(self._socket)
        try:
            status, answer = self._own.line.ask("call", timeout_s, method=method, path=path, body=body)
        except ControlError as error:
            return no_reply(str(error))
        return reply_from(status, answer)


def main() -> None:
    socket, hosts = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the drill ends us
    stand_in = StandIn(int(hosts))
    serve(Path(socket), {
        "call": lambda asked: stand_in.call(asked["method"], asked["path"], asked["body"]),
        "consumers": lambda _: stand_in.consumers(),
        "free": lambda asked: stand_in.free(asked["consumer"]),
        "status": lambda _: {"refused_for_capacity": stand_in.refused_for_capacity},
    })  # fmt: skip
    threading.Event().wait()


if __name__ == "__main__":
    main()
