# SPDX-License-Identifier: Apache-2.0
"""A process that is many compute-agents, each with its own queue on the broker.

`python -m tools.benchmarks.agents TRANSPORT_URL FIRST LAST TAKES_OVER_AFTER_S STATS_FILE` plays hosts FIRST to LAST.
One thread receives from all their queues (`mailboxes`), another drives the cores in the order of what arrives and
of their deadlines. What the nodes did is written to STATS_FILE each second (`simulated.Counts`); the file appears
once all nodes have introduced themselves.
"""

import heapq
import json
import os
import queue
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from compute_agent.events import MessagesArrived
from compute_agent.settings import Settings
from shared_scheduler.protocol.codec import decode, encode

from .fleet import Host
from .mailboxes import Mailboxes
from .simulated import Counts, Outgoing, SimulatedNode

STATS_INTERVAL_S = 1.0
INBOX_MAX = 100_000
"""Messages that wait for the driving thread; more are dropped, as a full queue on the broker would."""


class Agents:
    """Drives all nodes of this process, by one thread."""

    def __init__(self, fleet: Iterable[Host], takes_over_after_s: float, mailboxes: Mailboxes) -> None:
        self.counts = Counts()
        self._mailboxes = mailboxes
        self._fleet = list(fleet)
        self._takes_over_after_s = takes_over_after_s
        self._nodes: dict[str, SimulatedNode] = {}
        self._planned: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def appear(self) -> None:
        """Make all nodes, one after the other; each introduces itself."""
        epoch = int(time.time() * 1000)
        for host in self._fleet:
            now = time.monotonic()
            node = SimulatedNode(host, epoch, Settings(), now, self._takes_over_after_s, self.counts)
            self._nodes[host.name] = node
            self._send(node.appear(now))
            self._plan(host.name, now)

    def arrived(self, name: str, body: bytes) -> None:
        """One message for the node of host `name`."""
        now = time.monotonic()
        self._send(self._nodes[name].step(MessagesArrived((decode(body),), now), now))
        self._plan(name, now)

    def run_due(self) -> float:
        """Tick the nodes whose deadline has come; returns seconds until the next one."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at_s, name = heapq.heappop(self._heap)
            if self._planned.get(name) == at_s:
                self._send(self._nodes[name].tick(now))
                self._plan(name, now, again=True)
        return max(0.0, self._heap[0][0] - time.monotonic()) if self._heap else STATS_INTERVAL_S

    def _plan(self, name: str, now: float, again: bool = False) -> None:
        """Remember a node's next deadline; an older entry of the heap is void from then on."""
        at_s = self._nodes[name].deadline_s(now)
        if again or self._planned.get(name) != at_s:
            self._planned[name] = at_s
            heapq.heappush(self._heap, (at_s, name))

    def _send(self, messages: Iterable[Outgoing]) -> None:
        for one in messages:
            body = encode(one.message)
            taken = self._mailboxes.cast(one.address, body) if one.address else self._mailboxes.broadcast(body)
            self.counts.sent += 1
            self.counts.dropped += not taken


class Driver:
    """The loop: what arrived, what is due, and once a second the statistics."""

    def __init__(self, agents: Agents, inbox: "queue.Queue[tuple[str, bytes]]", stats: Path) -> None:
        self._agents, self._inbox, self._stats = agents, inbox, stats
        self._report_at_s = 0.0

    def run(self) -> None:
        while True:
            wait_s = min(self._agents.run_due(), STATS_INTERVAL_S)
            try:
                self._agents.arrived(*self._inbox.get(timeout=max(wait_s, 0.001)))
                self._drain()
            except queue.Empty:
                pass
            self._report()

    def _drain(self) -> None:
        """What is there already, before deadlines are looked at again."""
        for _ in range(self._inbox.qsize()):
            self._agents.arrived(*self._inbox.get_nowait())

    def _report(self) -> None:
        if time.monotonic() >= self._report_at_s:
            self._report_at_s = time.monotonic() + STATS_INTERVAL_S
            temporary = self._stats.with_suffix(".new")
            temporary.write_text(json.dumps(asdict(self._agents.counts)))
            temporary.rename(self._stats)


def main() -> None:
    url, first, last, takes_over_after_s, stats = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    fleet = [Host(number) for number in range(int(first), int(last) + 1)]
    inbox: queue.Queue[tuple[str, bytes]] = queue.Queue(INBOX_MAX)
    mailboxes = Mailboxes(url, [host.name for host in fleet], inbox)
    agents = Agents(fleet, float(takes_over_after_s), mailboxes)
    mailboxes.start()
    agents.appear()
    Driver(agents, inbox, Path(stats)).run()


if __name__ == "__main__":
    main()
