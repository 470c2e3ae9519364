# SPDX-License-Identifier: Apache-2.0
"""A nova-compute for the simulator: what the resource tracker of one node holds.

It reports to the agent as the tap does (``compute_agent/events.py``): builds that take time,
instances without a claim, deletes, audits.  Like the real one, it refuses for lack of NUMA cells and
devices, and never for lack of RAM, CPU or disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compute_agent.events import Member, TrackerReported
from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.protocol.messages import Leaf, Reason, Usage
from shared_scheduler.sim.topology import Board, SimFit


@dataclass(frozen=True, slots=True)
class Size:
    """What a simulated compute node has.  Ratios as Nova's defaults for simulated clouds."""

    vcpus: int = 16
    memory_mb: int = 65_536
    disk_gb: int = 2_000
    cpu_ratio: float = 4.0
    ram_ratio: float = 1.0
    disk_ratio: float = 1.0
    board: Board | None = None

    def inventories(self) -> dict[str, Inventory]:
        """What nova-compute reports to Placement."""
        return {
            "VCPU": Inventory(self.vcpus, max_unit=self.vcpus, allocation_ratio=self.cpu_ratio),
            "MEMORY_MB": Inventory(self.memory_mb, max_unit=self.memory_mb, allocation_ratio=self.ram_ratio),
            "DISK_GB": Inventory(self.disk_gb, max_unit=self.disk_gb, allocation_ratio=self.disk_ratio),
        }


@dataclass(frozen=True, slots=True)
class Held:
    """The resources that one instance holds of the node, and the topology that it requested."""

    usage: Usage
    topology: str = ""
    take: TopologyUsage | None = None
    migration: str = ""


@dataclass(slots=True)
class SimTracker:
    """The resource tracker of one node.  ``extra``: leaves that only a newer release reports."""

    node: str
    host: str
    nodename: str
    number: int
    size: Size
    instances: dict[str, Held] = field(default_factory=dict)
    #: counted although their build failed, until the next audit (the update after the claim raised)
    phantoms: set[str] = field(default_factory=set)
    #: live migrations that have ended here since the last audit
    unnoticed: set[str] = field(default_factory=set)
    extra: dict[str, Leaf] = field(default_factory=dict)

    def take(self, consumer: str, usage: Usage) -> TrackerReported:
        """Claim an instance without a topology.  Returns the report of the tap."""
        return self._hold(consumer, Held(usage))

    def fit(self, consumer: str, usage: Usage, topology: str) -> TrackerReported | Reason:
        """Claim an instance with a topology.  Returns the report of the tap, or why it does not fit."""
        leaves = self._board_leaves()
        changed = SimFit(from_top=True).consume(leaves, topology)
        if isinstance(changed, Reason):
            return changed
        return self._hold(consumer, Held(usage, topology, TopologyUsage.between(leaves, changed)))

    def _hold(self, consumer: str, held: Held) -> TrackerReported:
        self.phantoms.discard(consumer)
        self.instances[consumer] = held
        return self._change(consumer)

    def arrive(self, consumer: str, held: Held) -> None:
        """A live migration ends here: there is no claim, and only the next audit reports the instance."""
        self.phantoms.discard(consumer)
        self.unnoticed.add(consumer)
        self.instances[consumer] = replace(held, migration="")

    def leave(self, consumer: str, migration: str) -> TrackerReported:
        """Start a live migration from this node."""
        self.instances[consumer] = replace(self.instances[consumer], migration=migration)
        return self._change(consumer)

    def stay(self, consumer: str) -> TrackerReported:
        """End a move from this node that failed."""
        self.instances[consumer] = replace(self.instances[consumer], migration="")
        return self._change(consumer)

    def drop(self, consumer: str) -> TrackerReported:
        """Remove an instance: it was deleted, or its build was aborted."""
        self.instances.pop(consumer, None)
        return TrackerReported(self._leaves(), {consumer: None})

    def audit(self) -> TrackerReported:
        """The periodic task: counts all instances, and removes phantoms."""
        for consumer in self.phantoms:
            self.instances.pop(consumer, None)
        self.phantoms.clear()
        self.unnoticed.clear()
        return self.report()

    def report(self) -> TrackerReported:
        """All leaves as they are counted now."""
        members: dict[str, Member | None] = {c: _member(held) for c, held in self.instances.items()}
        return TrackerReported(self._static() | self._leaves(), members, complete=True)

    def zeros(self) -> TrackerReported:
        """The numbers after an audit has reset them and before it has added the instances."""
        empty = replace(self, instances={}, phantoms=set())
        return replace(empty.report(), ready=False)

    def _change(self, consumer: str) -> TrackerReported:
        return TrackerReported(self._leaves(), {consumer: _member(self.instances[consumer])})

    def _static(self) -> dict[str, Leaf]:
        size = self.size
        return {
            "cn.id": self.number,
            "cn.uuid": self.node,
            "cn.host": self.host,
            "cn.hypervisor_hostname": self.nodename,
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
            **self.extra,
            **(size.board.static() if size.board is not None else {}),
        }

    def _board_leaves(self) -> dict[str, Leaf]:
        """Cells and pools without the resources that instances have."""
        board = self.size.board
        if board is None:
            return {}
        leaves = board.static() | board.untouched()
        for held in self.instances.values():
            if held.take is not None:
                held.take.consume_from(leaves)
        return leaves

    def _leaves(self) -> dict[str, Leaf]:
        size, held = self.size, [one.usage for one in self.instances.values()]
        vcpus = sum(usage.vcpus for usage in held)
        memory_mb = sum(usage.memory_mb for usage in held)
        disk_gb = sum(usage.disk_gb for usage in held)
        return self._board_leaves() | {
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


def _member(held: Held) -> Member:
    return Member(True, held.migration)
