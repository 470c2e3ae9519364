# SPDX-License-Identifier: Apache-2.0
"""How the agents of a process read Placement: a stand-in answers at once, the answers of a real one come later.

The real one is read with the code of the product. A real agent has a thread for it; here some threads serve all. Only
the first reads are simulated, because 10,000 agents would need five minutes for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from oslo_config import cfg

from compute_agent import events as ev
from compute_agent.effects import ReadTree
from compute_agent.service.placement_thread import Answer, PlacementThread, Read
from shared_scheduler.model.providers import Provider
from shared_scheduler.placement.connection import Reply, Transport, reply_from
from shared_scheduler.placement.reader import PlacementReader, register_opts, transport_from
from shared_scheduler.protocol.messages import Allocations
from tools.laboratory.fleet.hosts import FIRST_GENERATION, TRAITS, Host, inventories, provider
from tools.laboratory.placement import INVENTORY_FIELDS, StandInTransport

THREADS = 4
"""Of each process."""


class Reads(Protocol):
    """Carries out what the cores want to read."""

    def begin(self, read: Read, now: float) -> Answer | None:
        """The answer; None if it comes later."""


class ReadAtOnce(Protocol):
    """A Placement that answers at once; `SimPlacement` is one."""

    def tree(self, node: str) -> tuple[Provider, ...]: ...

    def consumers_of(self, node: str) -> dict[str, Allocations] | None:
        """None if it does not answer."""


class AtOnce:
    """Answers in the calling thread."""

    def __init__(self, placement: ReadAtOnce) -> None:
        self._placement = placement

    def begin(self, read: Read, now: float) -> Answer:
        """Always the answer."""
        if isinstance(read, ReadTree):
            return ev.TreeRead(self._placement.tree(read.node), now)
        found = self._placement.consumers_of(read.node)
        if found is None:
            return ev.ReadFailed("allocations", "Placement does not answer")
        return ev.AllocationsRead(found, now)


class RemotePlacement:
    """Reads from the stand-in's process; a tree is known without a read."""

    def __init__(self, socket: Path, hosts: Sequence[Host]) -> None:
        self._transport = StandInTransport(socket)
        self._hosts = {host.node: host for host in hosts}

    def tree(self, node: str) -> tuple[Provider, ...]:
        """Its one provider."""
        return (provider(self._hosts[node]),)

    def consumers_of(self, node: str) -> dict[str, Allocations] | None:
        """None if it does not answer."""
        reply = self._transport.call("GET", f"/resource_providers/{node}/allocations")
        if reply.status != 200:
            return None
        return {name: {node: part["resources"]} for name, part in reply.body["allocations"].items()}


class FirstSimulated:
    """Answers the first call of each path like a Placement without servers; `then` answers all others."""

    def __init__(self, then: Transport, hosts: Sequence[Host]) -> None:
        self._then = then
        self._hosts = {host.node: host for host in hosts}
        self._answered: set[str] = set()

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:  # fmt: skip
        """One request."""
        if path in self._answered:
            return self._then.call(method, path, body, request_id, timeout_s)
        self._answered.add(path)
        return reply_from(200, self._first(path))

    def _first(self, path: str) -> dict[str, Any]:
        url = urlsplit(path)
        match url.path.strip("/").split("/"):
            case ["resource_providers", node, "inventories"]:
                return {"inventories": _inventories(self._hosts[node])}
            case ["resource_providers", _, "traits"]:
                return {"traits": list(TRAITS)}
            case ["resource_providers", _, what]:
                return {what: {"aggregates": [], "allocations": {}}[what]}
        return {"resource_providers": [_listed(self._hosts[node]) for node in parse_qs(url.query)["in_tree"]]}


def _inventories(host: Host) -> dict[str, Any]:
    return {name: dict(zip(INVENTORY_FIELDS, row.to_leaf(), strict=True)) for name, row in inventories(host).items()}


def _listed(host: Host) -> dict[str, Any]:
    ids = {"uuid": host.node, "root_provider_uuid": host.node, "parent_provider_uuid": None}
    return {**ids, "name": host.name, "generation": FIRST_GENERATION}


class InThreads:
    """Reads a real Placement; `answered` is called with each answer, in one of the threads."""

    def __init__(self, transport: Transport, answered: Callable[[str, Answer], None]) -> None:
        self._threads = [PlacementThread(PlacementReader(transport), answered) for _ in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def begin(self, read: Read, now: float) -> None:
        """A node always has the same thread, which knows what it read of the node before."""
        self._threads[hash(read.node) % THREADS].submit(read)


def transport_of(nova_conf: str) -> Transport:
    """To the Placement that `[placement]` of this file names."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([], project="nova", default_config_files=[nova_conf], default_config_dirs=[])
    return transport_from(conf)
