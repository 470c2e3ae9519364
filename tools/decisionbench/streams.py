# SPDX-License-Identifier: Apache-2.0
"""Increments a second, and memory: the table by itself."""

import resource
import subprocess
import sys
import time
from random import Random
from typing import Any

import msgpack

from shared_scheduler.protocol.messages import Consumer
from tools.decisionbench import fleet
from tools.decisionbench.burst import PLAIN, boot

#: increments that are timed together
BATCH = 1_000


def increments(hosts: int, count: int) -> dict[str, Any]:
    """Increments as a boot makes them: seven numbers and one consumer."""
    rng = Random(1)
    rows = [fleet.compute_node_row(n, {}, rng) for n in range(hosts)]
    table = fleet.make_table(PLAIN, rows)
    numbers = [rng.randrange(hosts) for _ in range(count)]
    changes = [(fleet.uuid_of(n), *boot(n, which, rng)) for which, n in enumerate(numbers)]
    took_s = []
    for start in range(0, count, BATCH):
        before = time.thread_time()
        for sequence, (node, leaves, consumers) in enumerate(changes[start : start + BATCH], start):
            table.apply(node, leaves, consumers, {}, epoch=1, sequence=sequence + 2)
        took_s.append(time.thread_time() - before)
    took_s.sort()
    return {
        "hosts": hosts,
        "increments": count,
        "per_second": BATCH / took_s[len(took_s) // 2],
        "per_second_slowest": BATCH / took_s[-1],
        "per_second_fastest": BATCH / took_s[0],
    }


def memory(hosts: int, instances: int) -> dict[str, Any]:
    """MiB beyond imports, of a process of its own."""
    code = (
        "from tools.decisionbench.streams import print_memory; "
        f"print_memory({hosts}, {instances})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"hosts": hosts, "instances_a_host": instances, "mib": float(done.stdout)}


def print_memory(hosts: int, instances: int) -> None:
    """Build a table row by row, as messages come, and print what it costs."""
    before = _resident_mib()
    table = fleet.HostTable()
    rng = Random(1)
    table.set_aggregates(fleet.aggregates(hosts))
    for number in range(hosts):
        _add(table, number, instances, rng)
    print(_resident_mib() - before)


def _add(table: Any, number: int, instances: int, rng: Random) -> None:
    row = fleet.compute_node_row(number, {}, rng)
    node = row["uuid"]
    leaves = fleet.leaves_from_compute_node(row)
    leaves[f"rp.{node}"] = fleet.provider_leaf(number, {})
    leaves = msgpack.unpackb(msgpack.packb(leaves), strict_map_key=False)
    taken = {node: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}}
    uuids = [f"00000000-0000-{n:04d}-0000-{number:012d}" for n in range(instances)]
    table.set_service(fleet.ServiceFacts(row["host"]))
    table.upsert(node, fleet.CELL, row["host"], row["hypervisor_hostname"])
    table.load(node, leaves, {uuid: Consumer(taken, True) for uuid in uuids}, epoch=1, sequence=1)


def _resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return pages * resource.getpagesize() / 1024 / 1024
