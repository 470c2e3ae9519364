# SPDX-License-Identifier: Apache-2.0
"""Faults during a run: schedulers are killed, hosts are disabled, computes are lost with all their servers.

A scheduler may be killed at any time. A compute is lost only between two operations of every user, because what Nova
does with a build or move whose own compute is lost is not tested here, and needs an operator.
"""

import contextlib
import random
import threading
import time
from collections.abc import Iterator

from tools.laboratory.chaos.history import History
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.host_tables import wait_followed

SCHEDULER_DOWN_S = (2.0, 8.0)
DISABLED_S = (3.0, 12.0)
LOST_S = (15.0, 30.0)
PAUSE_S = (4.0, 10.0)
SHARES = {"kill a scheduler": 5, "disable a host": 3, "lose a compute": 2}


class FaultInjector:
    """Injects one fault after the other until it is stopped; each is repaired before the next."""

    def __init__(self, cloud: Cloud, history: History, seed: int) -> None:
        self._cloud = cloud
        self._history = history
        self._random = random.Random(f"{seed}/disorder")
        self._changed = threading.Condition()
        self._busy = 0
        self._closed = False
        self._stopped = threading.Event()
        self.lost: frozenset[str] = frozenset()

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Inside this context no compute is lost, and none returns."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def _between_operations(self) -> Iterator[None]:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._busy)
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        """The thread's body."""
        faults = {
            "kill a scheduler": self.kill_scheduler, "disable a host": self.disable_host,
            "lose a compute": self.lose_compute,
        }  # fmt: skip
        while not self._wait(PAUSE_S):
            [name] = self._random.choices(list(SHARES), list(SHARES.values()))
            faults[name]()

    def kill_scheduler(self) -> None:
        name = self._random.choice(self._cloud.names("scheduler-shared"))
        began_at = time.monotonic()
        self._cloud.kill(name)
        self._wait(SCHEDULER_DOWN_S)
        self._cloud.start(name)
        self._history.record_fault("scheduler killed", name, began_at)

    def disable_host(self) -> None:
        host = self._random.choice(self._cloud.hosts())
        began_at = time.monotonic()
        self._cloud.disable(host)
        self._wait(DISABLED_S)
        self._cloud.enable(host)
        self._history.record_fault("host disabled", host, began_at)

    def lose_compute(self) -> None:
        """Kill a compute, with its agent or without, and force it down, as an operator does before an evacuation."""
        host = self._random.choice(self._cloud.hosts())
        victims = [host, f"agent-{host}"] if self._random.random() < 0.5 else [host]
        began_at = time.monotonic()
        with self._between_operations():
            for name in victims:
                self._cloud.kill(name)
            self._cloud.force_down(host)
            self.lost = frozenset({host})
        self._wait(LOST_S)
        with self._between_operations():
            self._cloud.start(*victims)
            self._cloud.force_down(host, down=False)
            self._cloud.wait_services_up()
            wait_followed(self._cloud)
            self.lost = frozenset()
        self._history.record_fault("compute lost", host, began_at)

    def _wait(self, between_s: tuple[float, float]) -> bool:
        return self._stopped.wait(self._random.uniform(*between_s))
