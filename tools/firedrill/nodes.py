# SPDX-License-Identifier: Apache-2.0
"""One simulated compute host: the real core of compute-agent beside a nova-compute that is not there."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

from compute_agent import effects as ef
from compute_agent import events as ev
from compute_agent.core import AgentCore
from compute_agent.ledger import NoTopology
from compute_agent.service.channel import Channel
from compute_agent.settings import Settings
from shared_scheduler.decision.request import Flavor
from shared_scheduler.protocol.addresses import agent_address
from shared_scheduler.protocol.messages import Allocations, Hello, Leaf, Usage, Verdict
from shared_scheduler.state.providers import Provider
from shared_scheduler.state.resources import Inventory

VCPUS, MEMORY_MB, DISK_GB, CPU_RATIO = 16, 65_536, 2_000, 4.0
INVENTORIES = {
    "VCPU": Inventory(VCPUS, max_unit=VCPUS, allocation_ratio=CPU_RATIO),
    "MEMORY_MB": Inventory(MEMORY_MB, max_unit=MEMORY_MB),
    "DISK_GB": Inventory(DISK_GB, max_unit=DISK_GB),
}
FLAVOR = Flavor("large", 4, 16_384, 80)
"""Four of these fill a host, so that over-commit would show."""
AMOUNTS = {"VCPU": FLAVOR.vcpus, "MEMORY_MB": FLAVOR.memory_mb, "DISK_GB": FLAVOR.root_gb}
USAGE = Usage(FLAVOR.vcpus, FLAVOR.memory_mb, FLAVOR.root_gb, 1, 0)
CHATTER_BYTES = 15_000
"""What one report of a chattering nova-compute weighs: queues fill in seconds."""

ReadAllocations = Callable[[str], dict[str, Allocations] | None]
"""The consumers of a node in Placement; None where it does not answer."""


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def host_name(number: int) -> str:
    return f"drill-{number:05d}"


class Tracker:
    """nova-compute's resource tracker: which servers, and what they leave."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.servers: set[str] = set()

    def take(self, consumer: str) -> ev.TrackerReported:
        self.servers.add(consumer)
        return ev.TrackerReported(self._used(), {consumer: ev.Member()})

    def drop(self, consumer: str) -> ev.TrackerReported:
        self.servers.discard(consumer)
        return ev.TrackerReported(self._used(), {consumer: None})

    def audit(self) -> ev.TrackerReported:
        """The periodic task: everything."""
        members: dict[str, ev.Member | None] = dict.fromkeys(self.servers, ev.Member())
        return ev.TrackerReported(self._fixed() | self._used(), members, complete=True)

    def _fixed(self) -> dict[str, Leaf]:
        host = host_name(self._number)
        return {
            "cn.id": self._number, "cn.uuid": node_name(self._number), "cn.host": host,
            "cn.hypervisor_hostname": host, "cn.hypervisor_type": "fake", "cn.hypervisor_version": 1_000,
            "cn.host_ip": "192.0.2.1", "cn.cpu_info": "{}", "cn.metrics": "[]", "cn.vcpus": VCPUS,
            "cn.memory_mb": MEMORY_MB, "cn.local_gb": DISK_GB, "cn.cpu_allocation_ratio": CPU_RATIO,
            "cn.ram_allocation_ratio": 1.0, "cn.disk_allocation_ratio": 1.0,
            "cn.supported_hv_specs": [["x86_64", "fake", "hvm"]],
        }  # fmt: skip

    def _used(self) -> dict[str, Leaf]:
        count = len(self.servers)
        memory_mb, disk_gb = count * USAGE.memory_mb, count * USAGE.disk_gb
        return {
            "cn.vcpus_used": count * USAGE.vcpus, "cn.memory_mb_used": memory_mb,
            "cn.free_ram_mb": MEMORY_MB - memory_mb, "cn.local_gb_used": disk_gb, "cn.free_disk_gb": DISK_GB - disk_gb,
            "cn.disk_available_least": DISK_GB - disk_gb, "cn.running_vms": count, "cn.current_workload": 0,
            "stats.num_instances": count, "stats.io_workload": 0,
        }  # fmt: skip


class DrillNode:
    """`counts` are of all nodes of a process: what was broadcast (Hellos apart) and
    cast, claims judged."""

    def __init__(
        self, number: int, epoch: int, channel: Channel, read: ReadAllocations, settings: Settings, now: float,
        counts: Counter[str],
    ) -> None:  # fmt: skip
        self.node, self.host = node_name(number), host_name(number)
        self.channel = channel
        self._read = read
        self._counts = counts
        self._chatted = 0
        self._tracker = Tracker(number)
        self._core = AgentCore(self.node, self.host, agent_address(self.host), epoch, NoTopology(), settings,
                               random.Random(number), now)  # fmt: skip

    def appear(self, now: float) -> None:
        """nova-compute is there and has audited."""
        self.step(ev.TrackerConnected("tap"), now)
        self.step(self._tracker.audit(), now)

    def step(self, event: ev.Event, now: float) -> None:
        """Tell the core; what it wants is done at once."""
        todo = deque([event])
        while todo:
            for effect in self._core.step(todo.popleft(), now):
                match effect:
                    case ef.Broadcast(message):
                        self._counts["broadcast"] += not isinstance(message, Hello)
                        self.channel.broadcast(message)
                    case ef.Cast(address, message):
                        self._counts["cast"] += 1
                        self._note_verdict(message)
                        self.channel.cast(address, message)
                    case ef.ReadTree():
                        todo.append(ev.TreeRead((self._provider(),), now))
                    case ef.ReadAllocations():
                        todo.append(self._allocations(now))
                    case _:
                        pass  # notices, and what is kept over restarts

    def _note_verdict(self, message: object) -> None:
        if isinstance(message, Verdict):
            self._counts["accepted" if message.accepted else "refused"] += 1

    def _provider(self) -> Provider:
        return Provider(self.node, self.host, None, 1, INVENTORIES)

    def _allocations(self, now: float) -> ev.Event:
        found = self._read(self.node)
        if found is None:
            return ev.ReadFailed("allocations", "Placement does not answer")
        return ev.AllocationsRead(found, now)

    def deadline_s(self, now: float) -> float:
        """When a tick is wanted."""
        wanted = self._core.next_deadline_s(now)
        return now + 1.0 if wanted is None else wanted

    # -- nova-compute

    def build(self, consumer: str, now: float) -> None:
        """The conductor's cast has arrived: the instance claim."""
        self.step(self._tracker.take(consumer), now)

    def delete(self, consumer: str, now: float) -> None:
        """The instance is no more; its allocation goes right after."""
        self.step(self._tracker.drop(consumer), now)

    def chatter(self, now: float) -> None:
        """A long report with nothing in it that matters."""
        self._chatted += 1
        text = str(self._chatted).rjust(CHATTER_BYTES)
        self.step(ev.TrackerReported({"cn.metrics": text}, {}), now)

    # -- the truth

    def truth(self) -> dict[str, object]:
        """Where its sequence stands, and what it counts."""
        beat = self._core.publisher.pipe.beat()
        return {
            "position": [beat.epoch, beat.sequence, beat.digest],
            "members": sorted(self._tracker.servers),
            "pending": sorted(held.claim.consumer for held in self._core.ledger.pending.values()),
        }  # fmt: skip

    @property
    def overcommitted(self) -> bool:
        """Does it count more than it has?"""
        pending = {held.claim.consumer for held in self._core.ledger.pending.values()}
        return len(pending | self._tracker.servers) * FLAVOR.memory_mb > MEMORY_MB
