# SPDX-License-Identifier: Apache-2.0
"""A steady stream of requests, and the servers that result from it.

It simulates users, nova-api and nova-conductor: requests go to the schedulers in turn, and a caller waits for its
answer until the RPC timeout. A server is built on the host of the answer and deleted some time later. All records must
agree with the answers.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from queue import Empty, Queue

from tools.laboratory.fire.environment import Environment
from tools.laboratory.fire.flavor import SERVERS_PER_HOST, USAGE
from tools.laboratory.fleet.hosts import number_of
from tools.laboratory.processes.control import ControlError, NoAnswerError
from tools.laboratory.processes.controlled import Program

CALLERS_MAX = 400
LATE_MAX_S = 5.0
"""How much later than the RPC timeout a caller stops waiting, so that an answer of the last moment is still
received."""
AGAIN_S = 0.5
COURIER_TIMEOUT_S = 5.0
FILL = 0.5
LIFETIME_MAX_S = 60.0


@dataclass(frozen=True)
class Call:
    """One request that has ended. `outcome`: answered, late, overdue, no_reply, or the code of a failure."""

    begun_s: float
    ended_s: float
    scheduler: str
    outcome: str

    @property
    def took_s(self) -> float:
        return self.ended_s - self.begun_s


class Courier:
    """Delivers builds and deletes to one process of agents, and repeats each until it succeeds."""

    def __init__(self, process: Program, placement: Program, stream: Stream) -> None:
        self._process, self._placement, self._stream = process, placement, stream
        self._orders: Queue[tuple[float, str, str, str]] = Queue()
        self._waiting: list[tuple[float, str, str, str]] = []
        threading.Thread(target=self._run, name=f"courier {process.name}", daemon=True).start()

    def order(self, due_s: float, what: str, host: str, consumer: str) -> None:
        self._orders.put((due_s, what, host, consumer))

    def nothing_due(self) -> bool:
        """Whether everything that is due has been delivered."""
        return self._orders.empty() and not any(due_s <= time.monotonic() for due_s, *_ in list(self._waiting))

    def _run(self) -> None:
        while True:
            wait_s = max(0.001, self._waiting[0][0] - time.monotonic()) if self._waiting else 1.0
            try:
                heapq.heappush(self._waiting, self._orders.get(timeout=wait_s))
                continue
            except Empty:
                pass
            if self._waiting and self._waiting[0][0] <= time.monotonic():
                self._carry_out(*self._waiting[0][1:])

    def _carry_out(self, what: str, host: str, consumer: str) -> None:
        """An order stays the first until it has succeeded."""
        try:
            self._process.ask(what, COURIER_TIMEOUT_S, host=host, consumer=consumer, usage=asdict(USAGE))
            if what == "delete":
                self._placement.ask("free", COURIER_TIMEOUT_S, consumer=consumer)
                self._stream.gone(consumer)
        except ControlError:
            time.sleep(AGAIN_S)
            return
        heapq.heappop(self._waiting)


class Stream:
    """`live`: consumer -> node of each server that was answered and is not deleted."""

    def __init__(self, environment: Environment, say: Callable[[str], None]) -> None:
        sizes = environment.sizes
        self._environment, self._say = environment, say
        self._rate_per_s = sizes.rate_per_s
        self._lifetime_s = min(LIFETIME_MAX_S, FILL * SERVERS_PER_HOST * sizes.agents / sizes.rate_per_s)
        self._rng = random.Random(0)
        self._pool = ThreadPoolExecutor(CALLERS_MAX, "caller")
        self._couriers = {
            number: courier
            for process in environment.agents
            for courier in [Courier(process, environment.placement, self)]
            for number in process.hosts
        }
        self._lock = threading.Lock()
        self._number = 0
        self._in_flight = 0
        self._flowing = threading.Event()
        self._ended = threading.Event()
        self.calls: list[Call] = []
        self.live: dict[str, str] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self.overcommitted: Counter[str] = Counter()
        threading.Thread(target=self._run, name="stream", daemon=True).start()

    def flow(self) -> None:
        self._flowing.set()

    def pause(self) -> None:
        """Stop new requests; returns when all are answered."""
        self._flowing.clear()
        end_s = time.monotonic() + self._environment.pace.rpc_s + 2 * LATE_MAX_S
        while self._in_flight and time.monotonic() < end_s:
            time.sleep(0.05)

    def end(self) -> None:
        self._ended.set()
        self._flowing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def delivered(self) -> bool:
        """Whether every order that is due has been delivered."""
        return all(courier.nothing_due() for courier in set(self._couriers.values()))

    def _run(self) -> None:
        while not self._ended.is_set():
            self._flowing.wait()
            if self._in_flight < CALLERS_MAX and not self._ended.is_set():
                with self._lock:
                    self._number += 1
                    self._in_flight += 1
                self._pool.submit(self._call, self._number)
            time.sleep(self._rng.expovariate(self._rate_per_s))

    def _call(self, number: int) -> None:
        scheduler = self._environment.schedulers[number % len(self._environment.schedulers)]
        begun_s = time.monotonic()
        try:
            outcome = self._ask(scheduler, number, begun_s)
        finally:
            with self._lock:
                self._in_flight -= 1
        with self._lock:
            self.calls.append(Call(begun_s, time.monotonic(), scheduler.name, outcome))

    def _ask(self, scheduler: Program, number: int, begun_s: float) -> str:
        rpc_s = self._environment.pace.rpc_s
        try:
            answer = scheduler.ask("decide", rpc_s + LATE_MAX_S, number=number, until_s=begun_s + rpc_s)
        except NoAnswerError:
            self._delete_unborn(number)
            return "no_reply"
        except ControlError as error:
            self._say(str(error))
            return "error"
        if answer["outcome"] == "answered":
            self._promised(answer["consumer"], answer["node"], answer["host"])
        return str(answer["outcome"])

    def _delete_unborn(self, number: int) -> None:
        """The user deletes a server whose request got no answer: nova-api deletes its allocation."""
        self._environment.placement.ask("free", consumer=f"server-{number}")

    def _promised(self, consumer: str, node: str, host: str) -> None:
        with self._lock:
            self.live[consumer] = node
            self._on[node].add(consumer)
            if len(self._on[node]) > SERVERS_PER_HOST:
                self.overcommitted[node] += 1
        courier = self._couriers[number_of(host)]
        now = time.monotonic()
        courier.order(now, "build", host, consumer)
        courier.order(now + self._lifetime_s, "delete", host, consumer)

    def gone(self, consumer: str) -> None:
        with self._lock:
            self._on[self.live.pop(consumer)].discard(consumer)
