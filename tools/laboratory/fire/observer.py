# SPDX-License-Identifier: Apache-2.0
"""Reads the state of schedulers and agents: when a fault is first detected, and when all have recovered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tools.laboratory.fire.environment import Environment
from tools.laboratory.processes.control import ControlError, Line
from tools.laboratory.processes.controlled import Program

STATUS_TIMEOUT_S = 5.0
Note = Callable[[Program, float, dict[str, int]], None]


@dataclass(frozen=True)
class Sample:
    """The report of one scheduler. `whole`: connected, all nodes fresh, all peers alive."""

    at_s: float
    whole: bool
    gaps: int


class Observer:
    """One thread for each process that is observed."""

    def __init__(self, environment: Environment, interval_s: float) -> None:
        self._environment, self._interval_s = environment, interval_s
        self._samples: dict[str, Sample] = {}
        self._agents_connected: dict[str, tuple[float, int]] = {}
        self._first_noticed_s: float | None = None
        self._gaps_before: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ended, self._asking = threading.Event(), threading.Event()
        self._asking.set()
        for process in environment.schedulers:
            threading.Thread(target=self._watch, args=(process, self._note_scheduler), daemon=True).start()
        for process in environment.agents:
            threading.Thread(target=self._watch, args=(process, self._note_agents), daemon=True).start()

    def end(self) -> None:
        self._ended.set()
        self._asking.set()

    def pause(self, paused: bool) -> None:
        """Ask nothing for a while, because the answers cost CPU time."""
        if paused:
            self._asking.clear()
        else:
            self._asking.set()

    def expect_trouble(self) -> None:
        """From now on, record when a fault is noticed first."""
        with self._lock:
            self._first_noticed_s = None
            self._gaps_before = {name: sample.gaps for name, sample in self._samples.items()}

    @property
    def first_noticed_s(self) -> float | None:
        """When a scheduler or an agent reported the first problem."""
        return self._first_noticed_s

    def whole_since(self, since_s: float) -> bool:
        """Whether every process has reported after this time that it is whole."""
        with self._lock:
            schedulers = [self._samples.get(each.name) for each in self._environment.schedulers]
            agents = [self._agents_connected.get(each.name, (0.0, 0)) for each in self._environment.agents]
        expected = [len(each.hosts) for each in self._environment.agents]
        return all(sample is not None and sample.at_s > since_s and sample.whole for sample in schedulers) and all(
            at_s > since_s and connected == count for (at_s, connected), count in zip(agents, expected, strict=True)
        )

    def _watch(self, process: Program, note: Note) -> None:
        line = Line(process.socket)
        while not self._ended.wait(self._interval_s):
            self._asking.wait()
            asked_s = time.monotonic()
            try:
                said = line.ask("glance", STATUS_TIMEOUT_S)
            except ControlError:
                continue  # killed or frozen; others report it
            note(process, asked_s, said)
        line.close()

    def _note_scheduler(self, process: Program, at_s: float, said: dict[str, int]) -> None:
        sizes = self._environment.sizes
        complete = said["nodes"] >= sizes.agents and said["fresh"]
        whole = bool(said["connected"] and complete and said["live"] == sizes.schedulers)
        with self._lock:
            self._samples[process.name] = Sample(at_s, whole, said["gaps"])
            if not whole or said["gaps"] > self._gaps_before.get(process.name, 0):
                self._note_trouble()

    def _note_agents(self, process: Program, at_s: float, said: dict[str, int]) -> None:
        with self._lock:
            self._agents_connected[process.name] = (at_s, said["connected"])
            if said["connected"] < len(process.hosts):
                self._note_trouble()

    def _note_trouble(self) -> None:
        if self._first_noticed_s is None:
            self._first_noticed_s = time.monotonic()
