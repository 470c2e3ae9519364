# SPDX-License-Identifier: Apache-2.0
"""One simulated node: the real core of compute-agent between a nova-compute and a Placement that are not there.

The imitated nova-compute reports an empty host, and counts a new server some time after its claim was accepted.
The imitated Placement holds what was accepted and not released, so reads are answered at once and cost no CPU of
the measured Placement; they are counted.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compute_agent import effects as out
from compute_agent import events as ev
from compute_agent.core import AgentCore
from compute_agent.ledger import NoTopology
from compute_agent.settings import Settings
from shared_scheduler.protocol.addresses import agent_address
from shared_scheduler.protocol.messages import Allocations, Claim, Leaf, Message, Release, Usage, Verdict
from shared_scheduler.state.compute_node import leaves_from_compute_node
from shared_scheduler.state.providers import Provider
from shared_scheduler.state.resources import Inventory

from .fleet import TRAITS, Host, compute_node, inventories

PENDING_VERDICTS_MAX = 256
"""Claims remembered between a claim and its verdict, which come in one step."""


@dataclass(frozen=True)
class TakeOver:
    """At this moment nova-compute's tracker counts the server."""

    at_s: float
    claim: Claim


@dataclass
class Counts:
    """What all nodes of a process did since it started."""

    claims: int = 0
    accepted: int = 0
    refused: int = 0
    released: int = 0
    reads: int = 0
    """Of Placement, which a real agent would have made."""
    sent: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class Outgoing:
    """A message to one address, or to every scheduler where it is empty."""

    address: str
    message: Message


class SimulatedNode:
    """`takes_over_after_s` is how long nova-compute needs from an accepted claim to its own count."""

    def __init__(self, host: Host, epoch: int, settings: Settings, now: float,
                 takes_over_after_s: float, counts: Counts) -> None:  # fmt: skip
        self.host = host
        self._counts = counts
        self._takes_over_after_s = takes_over_after_s
        self._core = AgentCore(host.node, host.name, agent_address(host.name), epoch, NoTopology(), settings,
                               random.Random(host.number), now)  # fmt: skip
        self._usage: dict[str, Usage] = {}
        self._held: dict[str, Allocations] = {}
        self._claims: dict[str, Claim] = {}
        self._building: deque[TakeOver] = deque()
        self._empty = leaves_from_compute_node(compute_node(host))

    def appear(self, now: float) -> Iterator[Outgoing]:
        """nova-compute is there and has audited, the channel is connected."""
        for event in (
            ev.TrackerConnected("tap"),
            ev.TrackerReported(self._empty, {}, complete=True),
            ev.ChannelChanged(True),
        ):
            yield from self.step(event, now)

    def step(self, event: ev.Event, now: float) -> Iterator[Outgoing]:
        """Tell the core; what is to be sent comes out, everything else is played here."""
        todo = deque([event])
        while todo:
            self._note(todo[0])
            for effect in self._core.step(todo.popleft(), now):
                match effect:
                    case out.Broadcast(message=message):
                        yield Outgoing("", message)
                    case out.Cast(address=address, message=message):
                        self._judged(message, now)
                        yield Outgoing(address, message)
                    case out.ReadTree() | out.ReadAllocations():
                        self._counts.reads += 1
                        todo.append(self._read(effect, now))
                    case _:
                        pass  # notices, and what is kept over restarts

    def tick(self, now: float) -> Iterator[Outgoing]:
        """Time passed."""
        while self._building and self._building[0].at_s <= now:
            yield from self.step(self._taken_over(self._building.popleft().claim), now)
        yield from self.step(ev.Tick(), now)

    def deadline_s(self, now: float) -> float:
        """When `tick` is wanted."""
        wanted = self._core.next_deadline_s(now)
        deadline_s = now + 1.0 if wanted is None else wanted
        return min(deadline_s, self._building[0].at_s) if self._building else deadline_s

    # -- the imitated nova-compute and Placement ---------------------------------------------------

    def _note(self, event: ev.Event) -> None:
        """Remember claims until their verdict, forget what is released."""
        if not isinstance(event, ev.MessagesArrived):
            return
        for message in event.messages:
            if isinstance(message, Claim) and len(self._claims) < PENDING_VERDICTS_MAX:
                self._counts.claims += 1
                self._claims[message.claim_id] = message
            elif isinstance(message, Release):
                self._released(message)

    def _released(self, release: Release) -> None:
        self._counts.released += 1
        self._held.pop(release.consumer, None)
        kept = [one for one in self._building if one.claim.claim_id != release.claim_id]
        self._building = deque(kept)

    def _judged(self, message: Message, now: float) -> None:
        claim = self._claims.pop(message.claim_id, None) if isinstance(message, Verdict) else None
        if claim is None or not isinstance(message, Verdict):
            return
        if not message.accepted:
            self._counts.refused += 1
            return
        self._counts.accepted += 1
        self._held[claim.consumer] = claim.allocations
        self._building.append(TakeOver(now + self._takes_over_after_s, claim))

    def _taken_over(self, claim: Claim) -> ev.TrackerReported:
        self._usage[claim.consumer] = claim.usage
        return ev.TrackerReported(self._counted(), {claim.consumer: ev.Member()})

    def _counted(self) -> Mapping[str, Leaf]:
        """The leaves that move with servers, as nova-compute's tracker would have them."""
        servers = list(self._usage.values())
        row = compute_node(self.host)
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

    def _read(self, effect: out.ReadTree | out.ReadAllocations, now: float) -> ev.Event:
        if isinstance(effect, out.ReadAllocations):
            return ev.AllocationsRead(dict(self._held), now)
        stock = {name: Inventory(*row) for name, row in inventories(self.host).items()}
        root = Provider(self.host.node, self.host.name, None, 1, stock, frozenset(TRAITS))
        return ev.TreeRead((root,), now)
