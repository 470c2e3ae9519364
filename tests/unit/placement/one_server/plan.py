# SPDX-License-Identifier: Apache-2.0
"""What a world is like: drawn once, from its seed.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from shared_scheduler.model.moves import Move
from shared_scheduler.protocol.limits import MAPPED_WITHIN_S
from tests.unit.placement.one_server.faults import Faults, drawn_faults

SERVER, OTHER = "server-1", "server-2"
#: where the server is before it moves, and where another one is
SOURCE, ELSEWHERE = "source", "elsewhere"
BEGIN_S = 100.0


class Kind(StrEnum):
    """What is asked for.  The allocations of a server that moves are in the name of its migration."""

    BUILD = "build"
    EVACUATION = "evacuation"
    MOVE = "move"

    @property
    def facts(self) -> dict[str, Any]:
        """What its request says."""
        return {
            "merge_with_existing": self is Kind.EVACUATION,
            "move": Move.LIVE_MIGRATION if self is Kind.MOVE else None,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """``arrivals_s``: when the broker delivers a request, the first or a copy, or a caller asks on its own.

    ``other``: some requests are for another server too, for which there is no place.  ``unheard``: the part of the
    answers that cannot be sent.  ``deleted_s``: when the user deletes the server, if it has been built by then.
    """

    kind: Kind
    nodes: tuple[str, ...]
    vcpus: int
    agents: bool
    other: bool
    settings: dict[str, Any]
    faults: Faults
    patience_s: float
    unheard: float
    arrivals_s: tuple[float, ...]
    deleted_s: float | None

    @property
    def quiet_s(self) -> float:
        """From then on, nothing goes wrong."""
        return self.arrivals_s[-1] + self.patience_s + 80

    @property
    def end_s(self) -> float:
        """By then, everything must have ended."""
        return self.arrivals_s[-1] + self.patience_s + 420


def drawn(rng: Random, kind: Kind) -> Plan:
    """The plan of one world."""
    patience_s, begin_s = rng.choice((3.0, 5.0, 60.0)), BEGIN_S + rng.random()
    return Plan(
        kind=kind,
        nodes=rng.choice((("node-1",), ("node-1",), ("node-1", "node-2"))),
        vcpus=rng.choice((1, 4, 4, 4)),
        agents=rng.random() < 0.4,
        other=kind is Kind.BUILD and rng.random() < 0.25,
        settings=rng.choice(({}, {"write_timeout_s": 5.0}, {"write_timeout_s": 30.0})),
        faults=drawn_faults(rng),
        patience_s=patience_s,
        unheard=rng.choice((0.0, 0.3, 0.6, 1.0)),
        arrivals_s=tuple(_arrivals_s(rng, begin_s, patience_s)),
        deleted_s=begin_s + rng.choice((1.0, 5.0, 12.0, 40.0)) if rng.random() < 0.3 else None,
    )


def _arrivals_s(rng: Random, begin_s: float, patience_s: float) -> Iterator[float]:
    """Many are at once, or on either side of an edge of time."""
    edges_s = (patience_s - 0.5, patience_s, patience_s + MAPPED_WITHIN_S - 1, patience_s + MAPPED_WITHIN_S)
    at_s = begin_s
    for number in range(rng.choice((1, 2, 2, 2, 3, 3))):
        at_s += rng.choice((0.0, 0.001, 0.01, 0.1, 1.0, *edges_s, 30.0, 60.0)) if number else 0.0
        yield at_s
