# SPDX-License-Identifier: Apache-2.0
"""Facts that the agent's tests share: one node with four VCPU and its tracker's leaves."""

from __future__ import annotations

from typing import Any

from compute_agent.events import Member, TrackerReported
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.protocol.messages import Claim, Leaf, Reason, RefusalCode, Usage

NODE = "4d6ad7b1-6b1c-4f5d-8f5f-000000000001"
HOST = "cmp-1"
ROOT_LEAVES: dict[str, Leaf] = {
    "cn.uuid": NODE,
    "cn.vcpus": 4,
    "cn.vcpus_used": 0,
    "cn.memory_mb": 8192,
    "cn.memory_mb_used": 512,
    "cn.free_ram_mb": 7680,
    "cn.local_gb": 100,
    "cn.local_gb_used": 0,
    "cn.free_disk_gb": 100,
    "stats.num_instances": 0,
    "stats.io_workload": 0,
}


def root(vcpus: int = 4, **changes: Any) -> Provider:
    facts: dict[str, Any] = {
        "uuid": NODE,
        "name": HOST,
        "parent": None,
        "generation": 1,
        "inventories": {
            "VCPU": Inventory(vcpus, max_unit=max(vcpus, 1)),
            "MEMORY_MB": Inventory(8192, reserved=512),
        },
        "traits": frozenset({"COMPUTE_NODE"}),
    }
    return Provider(**(facts | changes))


def report(members: dict[str, Member | None] | None = None, complete: bool = True, **leaves: Leaf) -> TrackerReported:
    """A tracker report; keyword ``vcpus_used=2`` stands for ``cn.vcpus_used``."""
    changed = {f"cn.{name}": value for name, value in leaves.items()}
    base = dict(ROOT_LEAVES) if complete else {}
    return TrackerReported(base | changed, members or {}, complete)


def claim(claim_id: str, consumer: str = "", vcpus: int = 1, topology: str = "", **changes: Any) -> Claim:
    fields: dict[str, Any] = {
        "claim_id": claim_id,
        "node": NODE,
        "scheduler": "ssched.scheduler.a",
        "consumer": consumer or f"instance-of-{claim_id}",
        "allocations": {NODE: {"VCPU": vcpus, "MEMORY_MB": 256 * vcpus}},
        "usage": Usage(vcpus, 256 * vcpus, 1, 1, 1),
        "topology": topology,
    }
    return Claim(**(fields | changes))


class SlotFit:
    """A topology fit without Nova: the text is a number of slots, ``numa.0`` has the free ones."""

    def consume(self, leaves: Any, topology: str) -> Any:
        free, asked = leaves.get("numa.0", 0), int(topology)
        if asked > free:
            return Reason(RefusalCode.TOPOLOGY, {"free": free, "asked": asked})
        return {"numa.0": free - asked}
