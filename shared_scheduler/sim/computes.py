# SPDX-License-Identifier: Apache-2.0
"""A nova-compute for the simulator: what the resource tracker of one node holds.

It reports to the agent what the tap would (``compute_agent/events.py``): builds that take their time,
instances that come uninvited, deletes, audits.  It does not refuse for lack of RAM, CPU or disk, as
the real one does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compute_agent.events import Member, TrackerReported
from shared_scheduler.protocol.messages import Leaf, Usage
from shared_scheduler.state.resources import Inventory


@dataclass(frozen=True, slots=True)
class Size:
    """What a simulated compute node has.  Ratios as Nova's defaults for simulated clouds."""

    vcpus: int = 16
    memory_mb: int = 65_536
    disk_gb: int = 2_000
    cpu_ratio: float = 4.0
    ram_ratio: float = 1.0
    disk_ratio: float = 1.0

    def inventories(self) -> dict[str, Inventory]:
        """What nova-compute reports to Placement."""
        return {
            "VCPU": Inventory(self.vcpus, max_unit=self.vcpus, allocation_ratio=self.cpu_ratio),
            "MEMORY_MB": Inventory(self.memory_mb, max_unit=self.memory_mb, allocation_ratio=self.ram_ratio),
            "DISK_GB": Inventory(self.disk_gb, max_unit=self.disk_gb, allocation_ratio=self.disk_ratio),
        }


@dataclass(slots=True)
class SimTracker:
    """The resource tracker of one node."""

    node: str
    host: str
    number: int
    size: Size
    instances: dict[str, Usage] = field(default_factory=dict)

    def take(self, consumer: str, usage: Usage) -> TrackerReported:
        """An instance claim; the report that the tap makes of it."""
        self.instances[consumer] = usage
        return TrackerReported(self._leaves(), {consumer: Member()})

    def drop(self, consumer: str) -> TrackerReported:
        """An instance is deleted, or its build aborted."""
        self.instances.pop(consumer, None)
        return TrackerReported(self._leaves(), {consumer: None})

    def audit(self) -> TrackerReported:
        """The periodic task: everything."""
        members: dict[str, Member | None] = {consumer: Member() for consumer in self.instances}
        return TrackerReported(self._static() | self._leaves(), members, complete=True)

    def _static(self) -> dict[str, Leaf]:
        size = self.size
        return {
            "cn.id": self.number,
            "cn.uuid": self.node,
            "cn.host": self.host,
            "cn.hypervisor_hostname": self.host,
            "cn.hypervisor_type": "fake",
            "cn.hypervisor_version": 1_000,
            "cn.host_ip": "192.0.2.1",
            "cn.cpu_info": "{}",
            "cn.metrics": "[]",
            "cn.vcpus": size.vcpus,
            "cn.memory_mb": size.memory_mb,
            "cn.local_gb": size.disk_gb,
            "cn.cpu_allocation_ratio": size.cpu_ratio,
            "cn.ram_allocation_ratio": size.ram_ratio,
            "cn.disk_allocation_ratio": size.disk_ratio,
            "cn.supported_hv_specs": [["x86_64", "fake", "hvm"]],
        }

    def _leaves(self) -> dict[str, Leaf]:
        size, held = self.size, list(self.instances.values())
        vcpus = sum(usage.vcpus for usage in held)
        memory_mb = sum(usage.memory_mb for usage in held)
        disk_gb = sum(usage.disk_gb for usage in held)
        return {
            "cn.vcpus_used": vcpus,
            "cn.memory_mb_used": memory_mb,
            "cn.free_ram_mb": size.memory_mb - memory_mb,
            "cn.local_gb_used": disk_gb,
            "cn.free_disk_gb": size.disk_gb - disk_gb,
            "cn.disk_available_least": size.disk_gb - disk_gb,
            "cn.running_vms": len(held),
            "cn.current_workload": 0,
            "stats.num_instances": len(held),
            "stats.io_workload": 0,
        }
