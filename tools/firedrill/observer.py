# SPDX-License-Identifier: Apache-2.0
"""Watches every scheduler, and the agents, from outside: when was a fault seen, when was it over?"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from .control import ControlError
from .ground import Ground, Process

STATUS_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Sight:
    """What one scheduler said of itself. `whole`: connected, all nodes fresh, all peers heard of."""

    at_s: float
    whole: bool
    gaps: int


class Observer:
    """One thread a process that is watched."""

    def __init__(self, ground: Ground, interval_s: float) -> None:
        self._ground, self._interval_s = ground, interval_s
        self._sights: dict[str, Sight] = {}
        self._agents_connected: dict[str, tuple[float, int]] = {}
        self._first_sign_s: float | None = None
        self._gaps_before: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        for process in ground.schedulers:
            threading.Thread(target=self._watch, args=(process, self._look_at_scheduler), daemon=True).start()
        for process in ground.agents:
            threading.Thread(target=self._watch, args=(process, self._look_at_agents), daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def expect_trouble(self) -> None:
        """From now on the first sign of a fault is noted."""
        with self._lock:
            self._first_sign_s = None
            self._gaps_before = {name: sight.gaps for name, sight in self._sights.items()}

    @property
    def first_sign_s(self) -> float | None:
        """When a scheduler or an agent first showed that something was wrong."""
        return self._first_sign_s

    def whole_since(self, since_s: float) -> bool:
        """Has every process, asked after this moment, said that all is well?"""
        with self._lock:
            schedulers = [self._sights.get(each.name) for each in self._ground.schedulers]
            agents = [self._agents_connected.get(each.name, (0.0, 0)) for each in self._ground.agents]
        expected = [len(each.hosts) for each in self._ground.agents]
        return all(sight is not None and sight.at_s > since_s and sight.whole for sight in schedulers) and all(
            at_s > since_s and connected == count for (at_s, connected), count in zip(agents, expected, strict=True)
        )

    def _watch(self, process: Process, look: object) -> None:
        while not self._ended.wait(self._interval_s):
            asked_s = time.monotonic()
            try:
                said = process.ask("glance", STATUS_TIMEOUT_S)
            except ControlError:
                continue  # dead or frozen; others will notice
            look(process, asked_s, said)  # type: ignore[operator]

    def _look_at_scheduler(self, process: Process, at_s: float, said: dict[str, int]) -> None:
        sizes = self._ground.sizes
        whole = bool(said["connected"]) and said["fresh"] >= sizes.agents and said["live"] == sizes.schedulers
        with self._lock:
            self._sights[process.name] = Sight(at_s, whole, said["gaps"])
            if not whole or said["gaps"] > self._gaps_before.get(process.name, 0):
                self._note_sign()

    def _look_at_agents(self, process: Process, at_s: float, said: dict[str, int]) -> None:
        with self._lock:
            self._agents_connected[process.name] = (at_s, said["connected"])
            if said["connected"] < len(process.hosts):
                self._note_sign()

    def _note_sign(self) -> None:
        if self._first_sign_s is None:
            self._first_sign_s = time.monotonic()
