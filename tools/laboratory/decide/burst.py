# SPDX-License-Identifier: Apache-2.0
"""Decisions during a burst of increments: how long they wait, and what the burst costs.

The increments take the same way as in a scheduler: bytes, decoded by the thread that receives them, passed to the core
slice after slice (``service/cell_channel.py``), through each node's window into the table.  Decisions wait like any
other event.
"""

import threading
import time
from random import Random
from typing import Any

from shared_scheduler.core.events import Event, MessagesArrived
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.model.compute_node import leaves_from_compute_node
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.messages import Consumer, Increment, Snapshot
from shared_scheduler.service.cell_channel import CellChannel
from shared_scheduler.service.engine import Engine, Sinks
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.transport_settings import BATCH_MAX_MESSAGES
from tools.laboratory.decide import workloads
from tools.laboratory.decide.workloads import Workload

PLAIN = Workload("plain", [], {"resources": {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}})
QUIET_DECISIONS = 300
MS = 1000.0


class Idle:
    """A sink that receives nothing here."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def submit(self, effect: Any) -> None: ...


class Feed:
    """Stands in for an endpoint: passes on the bodies that are put in."""

    address = "bench"

    def start(self, receive: Any, changed: Any) -> None:
        self.receive = receive

    def close(self) -> None: ...


def boot(number: int, which: int, rng: Random) -> tuple[dict[str, Any], dict[str, Consumer]]:
    """The changes of a boot on a node: seven numbers and one consumer."""
    used = rng.randrange(40)
    leaves = {
        "cn.vcpus_used": used,
        "cn.memory_mb_used": used * 512,
        "cn.free_ram_mb": workloads.MEMORY_MB - used * 512,
        "cn.local_gb_used": used,
        "cn.free_disk_gb": workloads.DISK_GB - used,
        "stats.num_instances": used,
        "stats.io_workload": used % 3,
    }
    taken = {workloads.uuid_of(number): {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}}
    return leaves, {f"00000000-0000-0000-0001-{which:012d}": Consumer(taken, True)}


def burst(hosts: int, increments: int) -> dict[str, Any]:
    """Times in ms: ``wait_`` is wall time (includes other programs), ``slice_`` CPU time of one event."""
    rng = Random(1)
    engine, decider = make_engine()
    engine.start(Sinks(Idle(), Idle()))
    learn(engine, hosts, rng)
    slices: list[float] = []

    def handle(event: Event) -> None:
        before = time.thread_time()
        engine.handle(event)
        slices.append((time.thread_time() - before) * MS)

    feed = Feed()
    channel = CellChannel(workloads.CELL, Channel(feed), handle)  # type: ignore[arg-type]
    engine.add_channel(channel)
    bodies = [body(number % hosts, 2 + number // hosts, number, rng) for number in range(increments)]
    request = workloads.make_request(PLAIN, hosts, "")

    def decide() -> float:
        before = time.perf_counter()
        engine.inspect(lambda core: next(decider.decide(request).nodes(), None))
        return (time.perf_counter() - before) * MS

    quiet = sorted(decide() for _ in range(QUIET_DECISIONS))
    spent: list[float] = []
    feeder = threading.Thread(target=lambda: spent.append(feed_all(feed, bodies)))
    feeder.start()
    waits = []
    while feeder.is_alive():
        waits.append(decide())
    feeder.join()
    engine.stop()
    waits.sort()
    slices.sort()
    return {
        "hosts": hosts,
        "increments": increments,
        "wire_us": spent[0] / increments * 1e6,
        "quiet_p50_ms": quiet[len(quiet) // 2],
        "quiet_max_ms": quiet[-1],
        "decisions": len(waits),
        "wait_p50_ms": waits[len(waits) // 2] if waits else 0.0,
        "wait_p99_ms": waits[int((len(waits) - 1) * 0.99)] if waits else 0.0,
        "wait_max_ms": waits[-1] if waits else 0.0,
        "slice_p50_ms": slices[len(slices) // 2],
        "slice_max_ms": slices[-1],
    }


def make_engine() -> tuple[Engine, Decider]:
    """A scheduler without Nova, Placement and broker."""
    table = HostTable()
    decider = Decider(table)
    judge: Any = None  # nothing is claimed here
    identity = Identity("bench", 1)
    return Engine(SchedulerCore(identity, SchedulerSettings(), table, decider, judge, Random(1))), decider


def learn(engine: Engine, hosts: int, rng: Random) -> None:
    """Apply every node's snapshot."""
    for number in range(hosts):
        row = workloads.compute_node_row(number, {}, rng)
        node = row["uuid"]
        leaves = leaves_from_compute_node(row)
        leaves[f"rp.{node}"] = workloads.provider_leaf(number, {})
        leaves["agent.ready"] = True
        engine.core.table.set_service(ServiceFacts(row["host"]))
        snapshot = Snapshot(node, 1, 1, row["host"], leaves, {}, {}, 0)
        engine.handle(MessagesArrived(workloads.CELL, (snapshot,)))


def body(number: int, sequence: int, which: int, rng: Random) -> bytes:
    """One increment as it arrives from the broker."""
    leaves, consumers = boot(number, which, rng)
    return codec.encode(Increment(workloads.uuid_of(number), 1, sequence, leaves, consumers, {}))


def feed_all(feed: Feed, bodies: list[bytes]) -> float:
    """Deliver in batches of the receiver's size; returns CPU seconds."""
    before = time.thread_time()
    for start in range(0, len(bodies), BATCH_MAX_MESSAGES):
        feed.receive(bodies[start : start + BATCH_MAX_MESSAGES])
    return time.thread_time() - before
