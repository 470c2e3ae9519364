# SPDX-License-Identifier: Apache-2.0
"""A process of many compute-agents: `python -m tools.laboratory.fleet.process JSON`.

Each has the real core, the real channel and a real queue on the broker; some hundred share one link (two connections).
One thread drives the cores. The fields of JSON are those of `Orders`. Agents join after `go`; builds and deletes are
ordered, unless accepted servers are built without orders.
"""

from __future__ import annotations

import heapq
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from compute_agent import events as ev
from compute_agent.agent_settings import AgentSettings
from compute_agent.service.placement_thread import Answer
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, agent_line, parse_agent_keys
from shared_scheduler.protocol.messages import Hello, Message, Usage
from shared_scheduler.protocol.signing import parse_keyring
from shared_scheduler.transport import transport_settings as transport
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.key_options import new_host_keys
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tools.laboratory.fleet.builds import Builds
from tools.laboratory.fleet.hosts import HARDWARE, Host
from tools.laboratory.fleet.node import IDLE_S, Outgoing, SimulatedNode
from tools.laboratory.fleet.orders import USER_AGENT, Orders
from tools.laboratory.fleet.reads import AtOnce, FirstSimulated, InThreads, Reads, RemotePlacement, transport_of
from tools.laboratory.processes.control import serve
from tools.laboratory.processes.usage import own_memory_mb

CHATTER_INTERVAL_S = 0.1
CHATTERERS_MAX = 24
"""The limit of each process. Hundreds of them would take all CPU time of the process and of the broker."""
AGENTS_PER_LINK = 500
"""A real agent has its own link. Threads of a hundred links would delay the thread that drives the cores."""
SHORTEST_WAIT_S = 0.0005
Work = Callable[[], Any]


def _keys_of(host: str, master: str) -> HostKeys:
    """Those that a host requires; without a master, none."""
    keys = new_host_keys()
    if master:
        masters = parse_keyring(master)
        secret = masters.secret(masters.primary)
        assert secret is not None, "the primary key is one of the keyring"
        keys.replace(HostKeysMode.REQUIRE, parse_agent_keys(agent_line(masters.primary, secret, host), host))
    return keys


class Fleet:
    """The nodes of this process and the thread that drives them."""

    def __init__(self, orders: Orders) -> None:
        hosts = [Host(number, HARDWARE[orders.hardware]) for number in range(orders.first, orders.last + 1)]
        url = parse_transport_url(orders.url)
        buses = [KombuBus(url, CHANNEL_NAME, shared=True) for _ in range(-(-len(hosts) // AGENTS_PER_LINK))]
        self._inbox: SimpleQueue[Work] = SimpleQueue()
        self._heap: list[tuple[float, str]] = []
        self._planned: dict[str, float] = {}
        self._chatter_until_s = self._chatter_at_s = 0.0
        self._lock = threading.Lock()  # guards the counters of the links' threads
        self.counts: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()  # host -> number of losses of the broker
        self._hosts = {host.node: host.name for host in hosts}
        reads = self._reads_of(orders, hosts)
        self.nodes = {node.host.name: node for node in _nodes(orders, hosts, reads, self.counts)}
        self._channels = {
            host.name: Channel(
                buses[host.number % len(buses)].agent_endpoint(host.name), host_keys=_keys_of(host.name, orders.master)
            )
            for host in hosts
        }

    def _reads_of(self, orders: Orders, hosts: Sequence[Host]) -> Reads:
        if orders.nova_conf:
            return InThreads(FirstSimulated(transport_of(orders.nova_conf), hosts), self._answered)
        return AtOnce(RemotePlacement(Path(orders.placement), hosts))

    # -- from other threads

    def ask(self, work: Work) -> Any:
        """Run a function in the driving thread, and return its result."""
        done: Future[Any] = Future()

        def carry_out() -> None:
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        self._inbox.put(carry_out)
        return done.result()

    def _received(self, host: str, messages: Sequence[Message]) -> None:
        self._count("received", sum(not isinstance(message, Hello) for message in messages))
        self._inbox.put(partial(self._step, host, ev.MessagesArrived(tuple(messages), time.monotonic())))

    def _count(self, name: str, more: int) -> None:
        with self._lock:
            self.counts[name] += more

    def _changed(self, host: str, connected: bool) -> None:
        self._count("connected", 1 if connected else -1)
        self.lost[host] += not connected
        self._inbox.put(partial(self._step, host, ev.ChannelChanged(connected)))

    def _returned(self, host: str, message: Message) -> None:
        self._inbox.put(partial(self._step, host, ev.CastReturned(message)))

    def _answered(self, node: str, answer: Answer) -> None:
        self._inbox.put(partial(self._step, self._hosts[node], answer))

    # -- the driving thread

    def run(self) -> None:
        """Join the channel, then run without end."""
        for host, node in self.nodes.items():
            received, changed = partial(self._received, host), partial(self._changed, host)
            self._channels[host].start(received, changed, partial(self._returned, host))
            self._play(host, node.appear(time.monotonic()))
        while True:
            try:
                self._inbox.get(timeout=self._tick())()
            except Empty:
                continue

    def _step(self, host: str, event: ev.Event) -> None:
        self._play(host, self.nodes[host].step(event, time.monotonic()))

    def _play(self, host: str, messages: Iterator[Outgoing]) -> None:
        """Send the messages, and plan the next tick."""
        channel = self._channels[host]
        for one in messages:
            if one.address:
                channel.cast(one.address, one.message)
            else:
                channel.broadcast(one.message)
        self._plan(host)

    def _plan(self, host: str) -> None:
        """Plan the next tick; an older entry of the heap is void from now on."""
        at_s = self.nodes[host].deadline_s(time.monotonic())
        if self._planned.get(host) != at_s:
            self._planned[host] = at_s
            heapq.heappush(self._heap, (at_s, host))

    def _tick(self) -> float:
        """Run the ticks that are due; returns seconds until the next one."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at_s, host = heapq.heappop(self._heap)
            if self._planned.get(host) == at_s:
                del self._planned[host]
                self._play(host, self.nodes[host].tick(now))
        wait_s = self._heap[0][0] - now if self._heap else IDLE_S
        return max(SHORTEST_WAIT_S, min(wait_s, IDLE_S, self._chatter(now)))

    def _chatter(self, now: float) -> float:
        if now >= self._chatter_until_s:
            return IDLE_S
        if now >= self._chatter_at_s:
            self._chatter_at_s = now + CHATTER_INTERVAL_S
            for host, node in islice(self.nodes.items(), CHATTERERS_MAX):
                self._play(host, node.chatter(now))
        return CHATTER_INTERVAL_S

    # -- questions

    def build(self, host: str, consumer: str, usage: Usage) -> None:
        """An order."""
        self.ask(lambda: self._play(host, self.nodes[host].build(consumer, usage, time.monotonic())))

    def delete(self, host: str, consumer: str) -> None:
        """An order."""
        self.ask(lambda: self._play(host, self.nodes[host].delete(consumer, time.monotonic())))

    def begin_chatter(self, seconds: float) -> None:
        """Send frequent reports without effect, from some hosts."""

        def begin() -> None:
            self._chatter_until_s = time.monotonic() + seconds

        self.ask(begin)

    def node_states(self) -> dict[str, Any]:
        """Node -> position of its messages, and its counts."""
        return self.ask(lambda: {node.node: node.state() for node in self.nodes.values()})  # type: ignore[no-any-return]

    def claimed_hosts(self) -> dict[str, int]:
        """Scheduler -> the number of hosts that it has claimed something of."""
        return self.ask(lambda: dict(Counter(each for node in self.nodes.values() for each in node.claimed_by)))  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        """The counters of the whole process; those of other threads may be slightly old."""
        return dict(self.counts) | {
            "dropped": sum(channel.counters["outbox_full"] for channel in self._channels.values()),
            "overcommitted": self.ask(lambda: sum(node.overcommitted for node in self.nodes.values())),
            "building": self.ask(lambda: sum(node.building for node in self.nodes.values())),
            "memory_mb": own_memory_mb(),
        }  # fmt: skip

    def messages(self) -> dict[str, int]:
        """The counters of all channels together."""
        total: Counter[str] = Counter()
        for channel in self._channels.values():
            total.update(dict(channel.counters))  # a copy at once, because the links' threads count meanwhile
        return dict(total)


def _nodes(orders: Orders, hosts: Sequence[Host], reads: Reads, counts: Counter[str]) -> Iterator[SimulatedNode]:
    settings = AgentSettings(heartbeat_interval_s=orders.heartbeat_s)
    epoch, now = int(time.time() * 1000), time.monotonic()
    for host in hosts:
        builds = None if orders.builds_after_s is None else Builds(orders.builds_after_s)
        yield SimulatedNode(host, epoch, settings, now, reads, counts, builds, orders.spawn_s, orders.spread_polls)


def main() -> None:
    """Serve questions; join on request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    orders = Orders(**json.loads(sys.argv[1]))
    sys.argv[0] = USER_AGENT  # keystoneauth1 makes the header of it
    transport.AMQP_HEARTBEAT_S = orders.amqp_heartbeat_s
    fleet = Fleet(orders)
    go = threading.Event()
    serve(Path(orders.control), {
        "go": lambda _: go.set(),
        "glance": lambda _: {name: fleet.counts[name] for name in ("connected", "first_reads")},
        "status": lambda _: fleet.status(),
        "messages": lambda _: fleet.messages(),
        "lost": lambda _: dict(fleet.lost),
        "claimed_hosts": lambda _: fleet.claimed_hosts(),
        "node_states": lambda _: fleet.node_states(),
        "build": lambda asked: fleet.build(asked["host"], asked["consumer"], Usage(**asked["usage"])),
        "delete": lambda asked: fleet.delete(asked["host"], asked["consumer"]),
        "chatter": lambda asked: fleet.begin_chatter(asked["seconds"]),
    })  # fmt: skip
    go.wait()
    fleet.run()


if __name__ == "__main__":
    main()
