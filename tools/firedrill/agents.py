# SPDX-License-Identifier: Apache-2.0
"""A process of many compute-agents: `python -m tools.firedrill.agents JSON`.

Each has the real core, the real channel and a real queue on the broker; so many share one link (two connections). One
thread drives the cores. The fields of JSON are those of `Orders`.
"""

from __future__ import annotations

import heapq
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from compute_agent import events as ev
from compute_agent.service.channel import Channel
from compute_agent.settings import Settings
from shared_scheduler.protocol.messages import Allocations, Hello, Message
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url

from .control import ControlError, Line, serve
from .memory import memory_mb
from .nodes import DrillNode, host_name
from .pace import Pace

CHATTER_INTERVAL_S = 0.1
CHATTERERS_MAX = 24
"""Of each process. Hundreds of them kept their own process from anything else, and the broker too."""
IDLE_S = 1.0
AGENTS_PER_LINK = 500
"""A real agent has a link of its own. Threads of a hundred links would starve the one that drives the cores."""
Work = Callable[[], Any]


@dataclass(frozen=True)
class Orders:
    """`first` to `last` are the numbers of the hosts."""

    url: str
    first: int
    last: int
    control: str
    placement: str
    pace: dict[str, Any]


class Fleet:
    """The nodes of this process and the thread that drives them."""

    def __init__(self, orders: Orders, pace: Pace) -> None:
        url = parse_transport_url(orders.url)
        links = -(-(orders.last - orders.first + 1) // AGENTS_PER_LINK)
        buses = [KombuBus(url, CHANNEL_NAME, shared=True) for _ in range(links)]
        self._line = Line(Path(orders.placement))
        self._inbox: SimpleQueue[Work] = SimpleQueue()
        self._heap: list[tuple[float, int, DrillNode]] = []
        self._planned: dict[str, float] = {}
        self._chatter_until_s = self._chatter_at_s = 0.0
        self._lock = threading.Lock()  # of what the links' threads count
        self.counts: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()  # how often each host's agent lost the broker
        settings = Settings(beat_interval_s=pace.beat_s)
        epoch, now = int(time.time() * 1000), time.monotonic()
        self.nodes = {
            host_name(number): DrillNode(
                number, epoch, Channel(buses[number % links].agent_endpoint(host_name(number))), self._read, settings,
                now, self.counts,
            )
            for number in range(orders.first, orders.last + 1)
        }

    def _read(self, node: str) -> dict[str, Allocations] | None:
        try:
            path = f"/resource_providers/{node}/allocations"
            status, body = self._line.ask("call", 10.0, method="GET", path=path, body=None)
        except ControlError:
            return None
        found = {name: {node: part["resources"]} for name, part in body["allocations"].items()}
        return found if status == 200 else None

    # -- from other threads

    def put(self, node: DrillNode, event: ev.Event) -> None:
        self._inbox.put(partial(self._step, node, event))

    def ask(self, work: Work) -> Any:
        """Have the driving thread do this, and wait for what it returns."""
        done: Future[Any] = Future()

        def carry_out() -> None:
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        self._inbox.put(carry_out)
        return done.result()

    def _received(self, node: DrillNode, messages: Sequence[Message]) -> None:
        self._count("received", sum(not isinstance(message, Hello) for message in messages))
        self.put(node, ev.MessagesArrived(tuple(messages), time.monotonic()))

    def _count(self, name: str, more: int) -> None:
        with self._lock:
            self.counts[name] += more

    def _changed(self, node: DrillNode, connected: bool) -> None:
        self._count("connected", 1 if connected else -1)
        self.lost[node.host] += not connected
        self.put(node, ev.ChannelChanged(connected))

    # -- the driving thread

    def run(self) -> None:
        for node in self.nodes.values():
            node.channel.start(partial(self._received, node), partial(self._changed, node))
            node.appear(time.monotonic())
            self._plan(node)
        while True:
            try:
                self._inbox.get(timeout=self._tick())()
            except Empty:
                continue

    def _step(self, node: DrillNode, event: ev.Event) -> None:
        node.step(event, time.monotonic())
        self._plan(node)

    def _tick(self) -> float:
        """Whoever is due; returns seconds until the next one."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at_s, _, node = heapq.heappop(self._heap)
            if self._planned.get(node.node) == at_s:
                del self._planned[node.node]
                self._step(node, ev.Tick())
        wait_s = self._heap[0][0] - now if self._heap else IDLE_S
        return max(0.0005, min(wait_s, IDLE_S, self._chatter(now)))

    def _plan(self, node: DrillNode) -> None:
        at_s = node.deadline_s(time.monotonic())
        if self._planned.get(node.node) != at_s:
            self._planned[node.node] = at_s
            heapq.heappush(self._heap, (at_s, id(node), node))

    def _chatter(self, now: float) -> float:
        if now >= self._chatter_until_s:
            return IDLE_S
        if now >= self._chatter_at_s:
            self._chatter_at_s = now + CHATTER_INTERVAL_S
            for node in islice(self.nodes.values(), CHATTERERS_MAX):
                node.chatter(now)
                self._plan(node)
        return CHATTER_INTERVAL_S

    # -- questions

    def build(self, host: str, consumer: str) -> None:
        self.ask(lambda: self._do(self.nodes[host], self.nodes[host].build, consumer))

    def delete(self, host: str, consumer: str) -> None:
        self.ask(lambda: self._do(self.nodes[host], self.nodes[host].delete, consumer))

    def _do(self, node: DrillNode, work: Callable[[str, float], None], consumer: str) -> None:
        work(consumer, time.monotonic())
        self._plan(node)

    def begin_chatter(self, seconds: float) -> None:
        def begin() -> None:
            self._chatter_until_s = time.monotonic() + seconds

        self.ask(begin)

    def truth(self) -> dict[str, Any]:
        return {node.node: node.truth() for node in self.nodes.values()}

    def status(self) -> dict[str, Any]:
        """Of the whole process; reads what other threads count, so a little late is possible."""
        found = dict(self.counts)
        found["dropped"] = sum(node.channel.counters["outbox_full"] for node in self.nodes.values())
        return found | {
            "overcommitted": self.ask(lambda: sum(node.overcommitted for node in self.nodes.values())),
            "memory_mb": memory_mb(),
        }  # fmt: skip


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the drill ends us
    orders = Orders(**json.loads(sys.argv[1]))
    pace = Pace(**orders.pace)
    pace.apply()
    fleet = Fleet(orders, pace)
    go = threading.Event()
    serve(Path(orders.control), {
        "go": lambda _: go.set(),
        "glance": lambda _: {"connected": fleet.counts["connected"]},
        "status": lambda _: fleet.status(),
        "lost": lambda _: dict(fleet.lost),
        "truth": lambda _: fleet.ask(fleet.truth),
        "build": lambda asked: fleet.build(asked["host"], asked["consumer"]),
        "delete": lambda asked: fleet.delete(asked["host"], asked["consumer"]),
        "chatter": lambda asked: fleet.begin_chatter(asked["seconds"]),
    })  # fmt: skip
    go.wait()
    fleet.run()


if __name__ == "__main__":
    main()
