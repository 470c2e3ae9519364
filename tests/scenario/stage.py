# SPDX-License-Identifier: Apache-2.0
"""The common part of both languages: a wire that holds everything until the script delivers it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

STEP_S = 0.05  # how often a kind world delivers


@dataclass
class Flight:
    """A message or a call on the wire.  ``cargo`` is bytes, so that no object is shared by mistake, or a call.

    ``lost``: what its sender notices when it does not arrive: nothing, except for calls.
    """

    sender: str
    receiver: str
    text: str
    cargo: Any
    lost: Callable[[], None] = field(default=lambda: None)

    @property
    def label(self) -> str:
        return f"{self.sender} to {self.receiver}: {self.text}"


class Stage(ABC):
    """Carries out commands; ``out`` collects the output of one command."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wire: list[Flight] = []
        self.out: list[str] = []

    def run(self, line: str) -> list[str]:
        """Carry out one command; returns what it prints."""
        name, *words = line.split()
        command: Callable[..., None] = getattr(self, f"do_{name}")
        self.out = []
        command(*words)
        self.validate()
        return self.out

    @abstractmethod
    def validate(self) -> None:
        """Raise AssertionError where something is in a state that it cannot be in."""

    @abstractmethod
    def arrive(self, flight: Flight) -> None:
        """It reaches its receiver."""

    @abstractmethod
    def next_deadline(self) -> float:
        """When ``tick`` has something to do."""

    @abstractmethod
    def tick(self) -> None:
        """Let every machine see what time it is."""

    # --- the network -----------------------------------------------------------------------------

    def do_wire(self) -> None:
        self.out += [flight.label for flight in self.wire]

    def chosen(self, words: tuple[str, ...]) -> list[Flight]:
        most = len(self.wire)
        if words and words[0].isdigit():
            most, words = int(words[0]), words[1:]
        fitting = [f for f in self.wire if set(words) <= set(f.label.replace(":", "").split())]
        assert fitting, f"nothing on the wire fits {words}"
        return fitting[:most]

    def do_deliver(self, *words: str) -> None:
        for flight in self.chosen(words):
            self.wire.remove(flight)
            self.arrive(flight)

    def do_double(self, *words: str) -> None:
        for flight in self.chosen(words):
            self.arrive(flight)

    def do_lose(self, *words: str) -> None:
        for flight in self.chosen(words):
            self.wire.remove(flight)
            self.out.append(f"lost: {flight.label}")
            flight.lost()

    # --- time ------------------------------------------------------------------------------------

    def do_wait(self, seconds: str) -> None:
        end = self.now + float(seconds)
        while (due := self.next_deadline()) <= end:
            self.now = max(self.now, due)
            self.tick()
        self.now = end

    def do_flow(self, seconds: str) -> None:
        end = self.now + float(seconds)
        while self.now < end:
            self.empty_the_wire()
            self.do_wait(str(min(STEP_S, end - self.now)))
        self.empty_the_wire()

    def empty_the_wire(self) -> None:
        while self.wire:
            self.arrive(self.wire.pop(0))
