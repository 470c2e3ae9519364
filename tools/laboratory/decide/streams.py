# SPDX-License-Identifier: Apache-2.0
"""Increments per second, and memory, of the table alone."""

import resource
import subprocess
import sys
import time
from random import Random
from typing import Any

import msgpack

from shared_scheduler.model.compute_node import leaves_from_compute_node
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.messages import Consumer, Increment
from shared_scheduler.service.cell_channel import MESSAGES_PER_EVENT_MAX
from shared_scheduler.table.host_table import HostTable
from tools.laboratory.decide import workloads
from tools.laboratory.decide.burst import PLAIN, body

#: increments in one batch, as the channel passes them on
BATCH = MESSAGES_PER_EVENT_MAX


def increments(hosts: int, count: int) -> dict[str, Any]:
    """Increments of boots, seven numbers and one consumer, on random nodes.

    Each batch is decoded directly before it is applied, as in a scheduler; only the table is timed.
    """
    rng = Random(1)
    rows = [workloads.compute_node_row(n, {}, rng) for n in range(hosts)]
    table = workloads.make_table(PLAIN, rows)
    bodies = [body(rng.randrange(hosts), 2 + which, which, rng) for which in range(count)]
    starts = range(0, count - BATCH + 1, BATCH)
    rates = sorted(BATCH / apply_batch(table, bodies[s : s + BATCH]) for s in starts)
    return {
        "hosts": hosts,
        "increments": count,
        "per_second": rates[len(rates) // 2],
        "per_second_of_slow_tenth": rates[len(rates) // 10],
        "per_second_fastest": rates[-1],
    }


def apply_batch(table: HostTable, bodies: list[bytes]) -> float:
    """CPU seconds of the table for these."""
    batch = [message for body in bodies if isinstance(message := codec.decode(body), Increment)]
    before = time.thread_time()
    for one in batch:
        table.apply(one.node, one.leaves, one.consumers, one.claims, epoch=one.epoch, sequence=one.sequence)
    return time.thread_time() - before


def memory(hosts: int, instances: int) -> dict[str, Any]:
    """MiB of a separate process, without its imports."""
    code = f"from tools.laboratory.decide.streams import print_memory; print_memory({hosts}, {instances})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"hosts": hosts, "instances_a_host": instances, "mib": float(done.stdout)}


def print_memory(hosts: int, instances: int) -> None:
    """Create a table row by row, as messages arrive, and print its memory."""
    before = _resident_mib()
    table = HostTable()
    rng = Random(1)
    table.set_aggregates(workloads.aggregates(hosts))
    for number in range(hosts):
        _add(table, number, instances, rng)
    print(_resident_mib() - before)


def _add(table: Any, number: int, instances: int, rng: Random) -> None:
    row = workloads.compute_node_row(number, {}, rng)
    node = row["uuid"]
    leaves = leaves_from_compute_node(row)
    leaves[f"rp.{node}"] = workloads.provider_leaf(number, {})
    leaves = msgpack.unpackb(msgpack.packb(leaves), strict_map_key=False)
    taken = {node: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}}
    uuids = [f"00000000-0000-{n:04d}-0000-{number:012d}" for n in range(instances)]
    table.set_service(ServiceFacts(row["host"]))
    table.upsert(node, workloads.CELL, row["host"], row["hypervisor_hostname"])
    table.load(node, leaves, {uuid: Consumer(taken, True) for uuid in uuids}, epoch=1, sequence=1)


def _resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return pages * resource.getpagesize() / 1024 / 1024
