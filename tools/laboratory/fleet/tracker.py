# SPDX-License-Identifier: Apache-2.0
"""The simulated nova-compute: its resource tracker reports servers, and the free resources."""

from __future__ import annotations

from compute_agent import events as ev
from shared_scheduler.model.compute_node import leaves_from_compute_node
from shared_scheduler.protocol.messages import Leaf, Usage
from tools.laboratory.fleet.hosts import Host, compute_node


class Tracker:
    """The servers of one host by consumer, and their usage."""

    def __init__(self, host: Host) -> None:
        self.servers: dict[str, Usage] = {}
        self._row = compute_node(host)

    def take(self, consumer: str, usage: Usage) -> ev.TrackerReported:
        """An instance claim."""
        self.servers[consumer] = usage
        return ev.TrackerReported(self._used(), {consumer: ev.Member()})

    def drop(self, consumer: str) -> ev.TrackerReported:
        """The end of an instance."""
        self.servers.pop(consumer, None)
        return ev.TrackerReported(self._used(), {consumer: None})

    def audit(self) -> ev.TrackerReported:
        """The periodic task: reports everything."""
        members: dict[str, ev.Member | None] = dict.fromkeys(self.servers, ev.Member())
        return ev.TrackerReported(self.leaves(), members, complete=True)

    def leaves(self) -> dict[str, Leaf]:
        """All leaves."""
        return {**leaves_from_compute_node(self._row), **self._used()}

    def _used(self) -> dict[str, Leaf]:
        """The leaves that change with servers."""
        row, servers = self._row, self.servers.values()
        memory_mb, disk_gb = sum(one.memory_mb for one in servers), sum(one.disk_gb for one in servers)
        return {
            "cn.vcpus_used": sum(one.vcpus for one in servers),
            "cn.memory_mb_used": row["memory_mb_used"] + memory_mb,
            "cn.free_ram_mb": row["free_ram_mb"] - memory_mb,
            "cn.local_gb_used": disk_gb,
            "cn.free_disk_gb": row["free_disk_gb"] - disk_gb,
            "cn.running_vms": len(servers),
            "stats.num_instances": len(servers),
            "stats.io_workload": 0,
        }
