# SPDX-License-Identifier: Apache-2.0
"""One simulated host: the real core of compute-agent between a simulated nova-compute and a Placement."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from compute_agent import effects as ef
from compute_agent import events as ev
from compute_agent.agent_settings import AgentSettings
from compute_agent.core import AgentCore
from shared_scheduler.protocol.messages import Claim, Hello, Message, Release, Usage, Verdict, agent_address
from shared_scheduler.sim.acceptances import acceptances
from shared_scheduler.sim.topology import SimFit
from tools.laboratory.fleet.builds import Builds, Spawns
from tools.laboratory.fleet.hosts import Host
from tools.laboratory.fleet.orders import SPAWN_S
from tools.laboratory.fleet.reads import Reads
from tools.laboratory.fleet.tracker import Tracker

CHATTER_BYTES = 15_000
"""The size of a report of a nova-compute that reports too often: queues fill within seconds."""
IDLE_S = 1.0
GOLDEN_RATIO = (1 + 5**0.5) / 2
"""The fractional parts of its multiples are spread evenly, however many there are."""


@dataclass(frozen=True)
class Outgoing:
    """A message to one address, or to every scheduler if the address is empty."""

    address: str
    message: Message


class SimulatedNode:
    """`counts` are of all hosts of a process: messages broadcast (without Hello) and cast; claims and their ends;
    builds that have ended; reads of Placement, their failures, and the first two successes of each host. With
    `builds`, accepted servers are built without further orders. `spread_polls`: the first polls of Placement are due at
    any time of their interval, as those of an agent that has run for long.
    """

    def __init__(
        self, host: Host, epoch: int, settings: AgentSettings, now: float, reads: Reads,
        counts: Counter[str], builds: Builds | None = None, spawn_s: float = SPAWN_S, spread_polls: bool = False,
    ) -> None:  # fmt: skip
        self.host = host
        self.node = host.node
        self.tracker = Tracker(host)
        self._reads = reads
        self._counts = counts
        self._builds = builds
        self._spawns = Spawns(spawn_s)
        self._chatted = 0
        self._has_read: set[type[ev.Event]] = set()
        self._first_polls_within_s = settings.placement_poll_s if spread_polls else None
        self.claimed_by: set[str] = set()
        """The schedulers that have claimed something here."""
        self._core = AgentCore(self.node, host.name, agent_address(host.name), epoch, SimFit(), settings,
                               random.Random(host.number), now)  # fmt: skip

    def appear(self, now: float) -> Iterator[Outgoing]:
        """Start nova-compute, with its audit done."""
        yield from self.step(ev.TrackerConnected("tap"), now)
        yield from self.step(self.tracker.audit(), now)

    def step(self, event: ev.Event, now: float) -> Iterator[Outgoing]:
        """Pass an event to the core; yields its messages; its reads may be answered at once."""
        todo = deque([event])
        while todo:
            self._arrived(todo[0])
            effects = self._core.step(todo[0], now)
            self._note_read(todo.popleft(), now)
            self._note_verdicts(effects, now)
            for effect in effects:
                match effect:
                    case ef.Broadcast(message=message):
                        self._counts["broadcast"] += not isinstance(message, Hello)
                        yield Outgoing("", message)
                    case ef.Cast(address=address, message=message):
                        self._counts["cast"] += 1
                        yield Outgoing(address, message)
                    case ef.ReadTree() | ef.ReadAllocations():
                        self._counts["reads"] += 1
                        if answer := self._reads.begin(effect, now):
                            todo.append(answer)
                    case _:
                        pass  # notices, and the state for the next start

    def _arrived(self, event: ev.Event) -> None:
        if isinstance(event, ev.MessagesArrived):
            claims = [message for message in event.messages if isinstance(message, Claim)]
            self._counts["claims"] += len(claims)
            self.claimed_by |= {claim.scheduler for claim in claims}
            self._counts["released"] += sum(isinstance(message, Release) for message in event.messages)
        if self._builds:
            self._builds.arrived(event)

    def _note_verdicts(self, effects: Sequence[ef.Effect], now: float) -> None:
        """An increment accepts a claim that has no verdict; it may also follow one at the same moment."""
        messages = [effect.message for effect in effects if isinstance(effect, ef.Broadcast | ef.Cast)]
        verdicts = [message for message in messages if isinstance(message, Verdict)]
        answered = {verdict.claim_id for verdict in verdicts}
        accepted = chain.from_iterable(acceptances(message, self._core.ledger, now) for message in messages)
        for verdict in (*verdicts, *(one for one in accepted if one.claim_id not in answered)):
            self._judged(verdict, now)

    def _judged(self, verdict: Verdict, now: float) -> None:
        self._counts["accepted" if verdict.accepted else "refused"] += 1
        if self._builds:
            self._builds.judged(verdict, now)

    def _note_read(self, event: ev.Event, now: float) -> None:
        """Count failed reads, and plan the first poll of a kind after its first answer."""
        self._counts["failed_reads"] += isinstance(event, ev.ReadFailed)
        if isinstance(event, ev.TreeRead | ev.AllocationsRead) and type(event) not in self._has_read:
            self._has_read.add(type(event))
            self._counts["first_reads"] += 1
            plan = self._core.tree if isinstance(event, ev.TreeRead) else self._core.allocations
            if self._first_polls_within_s is not None:  # at a place in the interval that is far from those of others
                place = (self.host.number * GOLDEN_RATIO + len(self._has_read) / 2) % 1
                plan.ask(now + place * self._first_polls_within_s)

    def tick(self, now: float) -> Iterator[Outgoing]:
        """Time has passed."""
        for claim in self._builds.due(now) if self._builds else ():
            yield from self.build(claim.consumer, claim.usage, now)
        for consumer in self._spawns.due(now):
            self._counts["built"] += 1
            yield from self.step(ev.BuildEnded(consumer, True), now)
        yield from self.step(ev.Tick(), now)

    def deadline_s(self, now: float) -> float:
        """The time of the next `tick`."""
        builds_s = self._builds.deadline_s() if self._builds else None
        wanted = (self._core.next_deadline_s(now), builds_s, self._spawns.deadline_s())
        return min((at_s for at_s in wanted if at_s is not None), default=now + IDLE_S)

    # -- nova-compute

    def build(self, consumer: str, usage: Usage, now: float) -> Iterator[Outgoing]:
        """The instance claim; the build ends later."""
        self._spawns.begin(consumer, now)
        return self.step(self.tracker.take(consumer, usage), now)

    def delete(self, consumer: str, now: float) -> Iterator[Outgoing]:
        """Delete the instance, and then its allocation."""
        self._spawns.drop(consumer)
        return self.step(self.tracker.drop(consumer), now)

    def chatter(self, now: float) -> Iterator[Outgoing]:
        """Send a long report without effect."""
        self._chatted += 1
        text = str(self._chatted).rjust(CHATTER_BYTES)
        return self.step(ev.TrackerReported({"cn.metrics": text}, {}), now)

    # -- the state of the node

    def state(self) -> dict[str, object]:
        """The position of its messages, and its counts."""
        last = self._core.publisher.pipe.heartbeat()
        return {
            "position": [last.epoch, last.sequence, last.digest], "members": sorted(self.tracker.servers),
            "pending": sorted(held.claim.consumer for held in self._core.ledger.pending.values()),
        }  # fmt: skip

    @property
    def building(self) -> int:
        """Servers whose builds have not ended."""
        return self._spawns.waiting + (self._builds.waiting if self._builds else 0)

    @property
    def overcommitted(self) -> bool:
        """Whether it counts more memory than its capacity."""
        used_mb = {consumer: usage.memory_mb for consumer, usage in self.tracker.servers.items()}
        for held in self._core.ledger.pending.values():
            used_mb[held.claim.consumer] = held.claim.usage.memory_mb
        return sum(used_mb.values()) > self.host.memory_mb - self.host.hardware.reserved_mb
