# SPDX-License-Identifier: Apache-2.0
"""One scheduler in a process: `python -m tools.laboratory.fire.scheduler JSON`.

Everything is the product's except Nova's edges: requests arrive on a local socket instead of Nova's RPC, selected hosts
are not checked by Nova's filters, and rows without an agent come from the stand-in for Placement. The fields of JSON
are those of `Orders`.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as core_events
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import PlacementForm, Request
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.placement.batch_writer import BatchWriter
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.questions import Question
from shared_scheduler.placement.reconciler import without_nova
from shared_scheduler.protocol.messages import Leaf, Message
from shared_scheduler.service import inspection
from shared_scheduler.service.cell_channel import CellChannel
from shared_scheduler.service.engine import Engine, RequestOverdueError, Sinks
from shared_scheduler.sim.topology import SimJudge
from shared_scheduler.sync.flight import Key, ReadRequest
from shared_scheduler.sync.question_reads import QuestionReads
from shared_scheduler.sync.read_registry import NODE, SOURCES
from shared_scheduler.sync.revalidator import Revalidator
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Freshness
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tools.laboratory.fire.flavor import AMOUNTS, FLAVOR, HARDWARE, USAGE
from tools.laboratory.fire.pace import Pace
from tools.laboratory.fleet.hosts import Host, inventories
from tools.laboratory.fleet.hosts import hosts as fleet_hosts
from tools.laboratory.fleet.tracker import Tracker
from tools.laboratory.placement import StandInTransport
from tools.laboratory.processes.control import serve
from tools.laboratory.processes.usage import own_cpu_s, own_memory_mb

CELL = "cell-1"
ALTERNATES = 2


@dataclass(frozen=True)
class Orders:
    """`hosts`: the size of the whole fleet."""

    name: str
    url: str
    hosts: int
    control: str
    placement: str
    pace: dict[str, Any]


class CountedChannel(Channel):
    """Counts the casts (all go to agents), and the losses of the broker."""

    def cast(self, address: str, message: Message) -> None:
        self.counters["cast"] += 1
        super().cast(address, message)

    def _connection_changed(self, connected: bool) -> None:
        self.counters["connections_lost"] += not connected
        super()._connection_changed(connected)


class Rereads:
    """Reads one node as the databases and Placement would show it, and answers the core's questions."""

    def __init__(
        self, client: PlacementClient, handle: Any, hosts: Sequence[Host], agent_speaks_for: Callable[[str], bool]
    ) -> None:
        self._client = client
        self._agent_speaks_for = agent_speaks_for
        self._hosts = {host.node: host for host in hosts}
        self._revalidator = Revalidator(handle, sources=[each for each in SOURCES if each.is_on_request])
        self._revalidator.provide({NODE: self._node})
        self._questions = QuestionReads(client, self._revalidator, handle, lambda _: {}, lambda *_: {})

    def start(self) -> None:
        self._revalidator.start()

    def submit(self, effect: ef.RefreshNode | ef.ReadBuild | Question) -> None:
        if isinstance(effect, ef.RefreshNode):
            self._revalidator.request(ReadRequest(NODE, (CELL, effect.node), effect.in_s))
        elif not isinstance(effect, ef.ReadBuild):  # there are no databases of Nova
            self._questions.submit(effect)

    def stop(self) -> None:
        self._revalidator.stop()
        self._questions.stop()

    def _node(self, key: Key, began_s: float) -> Iterator[core_events.NodeRead]:
        if self._agent_speaks_for(key[1]):
            return
        host = self._hosts[key[1]]
        held = {uuid: one.amounts for uuid, one in self._client.allocations(host.node).items()}
        yield node_read(host, held, began_s)


def node_read(host: Host, held: Mapping[str, Mapping[str, int]], read_at_s: float) -> core_events.NodeRead:
    """A node with these consumers, all of them servers of the one flavor."""
    node, tracker = host.node, Tracker(host)
    tracker.servers |= dict.fromkeys(held, USAGE)
    rows: dict[str, Leaf] = {name: [*row.to_leaf()] for name, row in inventories(host).items()}
    root: dict[str, Leaf] = {
        "name": host.name, "parent": None, "generation": 1, "inventories": rows, "traits": [], "aggregates": [],
    }  # fmt: skip
    leaves = {**tracker.leaves(), f"rp.{node}": root}
    consumers = {consumer: {node: dict(amounts)} for consumer, amounts in held.items()}
    return core_events.NodeRead(CELL, node, host.name, host.name, leaves, consumers, frozenset(held), read_at_s)


def request_of(number: int) -> Request:
    """A request for one server, as Nova's edge would create it."""
    query = "resources=" + ",".join(f"{name}:{amount}" for name, amount in sorted(AMOUNTS.items()))
    return Request(
        request_id=f"req-{number}", project_id="project", user_id="user", flavor=FLAVOR,
        forms=(PlacementForm(AMOUNTS),), usage=USAGE, instance_uuids=(f"server-{number}",), queries=(query,),
        num_alternates=ALTERNATES,
    )  # fmt: skip


class DrillScheduler:
    """Created like `nova.running.RunningScheduler`."""

    def __init__(self, orders: Orders, pace: Pace) -> None:
        hosts = fleet_hosts(orders.hosts, HARDWARE)
        self._pace = pace
        self._released = threading.Event()
        url = parse_transport_url(orders.url)
        bus = KombuBus(url, CHANNEL_NAME, queue_messages_max=pace.queue_max)
        self._endpoint = bus.scheduler_endpoint(orders.name)
        table, rng = HostTable(), random.Random()
        identity = Identity(
            orders.name, int(time.time() * 1000), {CELL: self._endpoint.address}, f"{os.getpid()}-{time.time_ns()}"
        )
        settings = SchedulerSettings(silent_after_s=pace.silent_after_s)
        core = SchedulerCore(identity, settings, table, Decider(table, rng=rng), SimJudge(), rng)
        self._engine = Engine(core)
        client = PlacementClient(StandInTransport(Path(orders.placement)))
        handle = self._engine.handle
        writer = BatchWriter(client, handle, without_nova)
        self._engine.start(Sinks(writer, Rereads(client, handle, hosts, core.nodes.agent_speaks_for)))
        self._load(hosts)
        self._channel = CellChannel(CELL, CountedChannel(self._endpoint), handle)

    def _load(self, hosts: Sequence[Host]) -> None:
        """Load every row as provisional, as after the bulk load."""
        services = tuple(ServiceFacts(host.name) for host in hosts)
        self._engine.handle(core_events.ServicesRead(CELL, services, True))
        for host in hosts:
            self._engine.handle(node_read(host, {}, time.monotonic()))

    def go(self) -> None:
        """Join the channel."""
        self._engine.add_channel(self._channel)

    def decide(self, number: int, until_s: float) -> dict[str, Any]:
        """One request of the conductor, which waits until `until_s` of the machine's monotonic clock."""
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return {"outcome": "late"}  # taken from the queue after its caller had stopped waiting
        request = request_of(number)
        try:
            outcome = self._engine.decide(request, min(self._pace.request_s, left_s))
        except RequestOverdueError:
            return {"outcome": "overdue"}  # this process was stopped or its core was held, and the caller still waits
        if isinstance(outcome, ef.Fail):
            return {"outcome": outcome.code.value, "text": outcome.text}
        if time.monotonic() > until_s:
            self._engine.handle(core_events.AnswerUnheard(outcome.claim_ids, cause=outcome.cause))
            return {"outcome": "late"}
        chosen = outcome.choices[0][0]
        return {"outcome": "answered", "node": chosen.node, "host": chosen.host, "consumer": request.instance_uuids[0]}

    def glance(self) -> dict[str, Any]:
        """A short status, for frequent calls."""
        return {"connected": self._channel.channel.connected, **self._engine.inspect(glance_at)}

    def status(self) -> dict[str, Any]:
        found = inspection.status(self._engine)
        return found | {
            "memory_mb": own_memory_mb(), "cpu_s": own_cpu_s(), "address": self._endpoint.address,
        }  # fmt: skip

    def silent(self) -> list[str]:
        """Nodes without an agent, in its table."""
        return self._engine.inspect(_silent)

    def positions(self) -> dict[str, Any]:
        """Node -> epoch, sequence and digest of its row."""
        return self._engine.inspect(_positions)

    def hold(self, seconds: float) -> None:
        """Keep the core busy until `release`, for at most this time, so that it reads nothing from the channel."""
        self._released.clear()
        self._engine.inspect(lambda _: self._released.wait(seconds))

    def release(self) -> None:
        self._released.set()


def glance_at(core: SchedulerCore) -> dict[str, Any]:
    """How many nodes there are, whether all rows are fresh, and more. Rows after one that is not fresh are not read,
    because a scheduler that starts among others has no CPU time to spare."""
    table = core.table
    return {
        "nodes": len(table), "fresh": all(table.freshness(node) is Freshness.FRESH for node in table.nodes()),
        "live": len(core.peers.live(CELL)), "gaps": core.nodes.window_counters.gaps,
    }  # fmt: skip


def _silent(core: SchedulerCore) -> list[str]:
    return [node for node in core.table.nodes() if not core.nodes.agent_speaks_for(node)]


def _positions(core: SchedulerCore) -> dict[str, Any]:
    return {
        known.node: [known.window.epoch, known.window.sequence, core.table.digest(known.node)] for known in core.nodes
    }


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the drill stops this process
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    orders = Orders(**json.loads(sys.argv[1]))
    pace = Pace(**orders.pace)
    pace.apply()
    scheduler = DrillScheduler(orders, pace)
    serve(Path(orders.control), {
        "go": lambda _: scheduler.go(),
        "glance": lambda _: scheduler.glance(),
        "status": lambda _: scheduler.status(),
        "positions": lambda _: scheduler.positions(),
        "silent": lambda _: scheduler.silent(),
        "decide": lambda asked: scheduler.decide(asked["number"], asked["until_s"]),
        "hold": lambda asked: scheduler.hold(asked["seconds"]),
        "release": lambda _: scheduler.release(),
    })  # fmt: skip
    threading.Event().wait()


if __name__ == "__main__":
    main()
