# SPDX-License-Identifier: Apache-2.0
"""Writers that race for the last units of two providers, on a real Placement.

``python -m tests.functional.placement_races --rounds 1000`` prints how often they over-commit one, with the write path
and, with ``--stock``, without it, on MariaDB or with ``--database postgresql`` on PostgreSQL.  In each round 8 writers
ask at the same moment for a unit of each provider, where there are 1 to 6.  In every second round all of them are new
consumers; in the others some of them are written by Placement's own handler: consumers that exist already, and an old
microversion.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Barrier
from typing import Any

import requests

from tests.functional.private_placement import PLACEMENTS, SETTINGS, PrivatePlacement

WRITERS = 8
CAPACITIES = (1, 3, 6)
NEWEST, OLD = "1.36", "1.12"
TIMEOUT_S = 60.0


@dataclass
class Outcome:
    """The results of all rounds."""

    rounds: int = 0
    over_committed: int = 0
    units_too_much_at_most: int = 0
    unfilled: int = 0  # a unit was left, although there were more writers than units
    untold: int = 0  # what is held is not what was answered
    written: int = 0
    refused: int = 0
    conflicts: int = 0  # 409 concurrent_update: the client has to try again
    errors: int = 0

    def add_round(self, capacity: int, held: list[int], answers: list[requests.Response]) -> None:
        written = sum(answer.status_code == 204 for answer in answers)
        conflicts = sum("placement.concurrent_update" in answer.text for answer in answers)
        errors = sum(answer.status_code not in (204, 409) for answer in answers)
        self.rounds += 1
        self.over_committed += max(held) > capacity
        self.units_too_much_at_most = max(self.units_too_much_at_most, max(held) - capacity)
        self.unfilled += min(held) < capacity
        self.untold += set(held) != {written}
        self.written += written
        self.conflicts += conflicts
        self.errors += errors
        self.refused += len(answers) - written - conflicts - errors


class Racer:
    """One writer with a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()

    def put(self, consumer: str, providers: list[str], generation: int | None, version: str = NEWEST) -> Any:
        """Ask for a unit of each of these providers."""
        body = {"project_id": "project", "user_id": "user", "consumer_generation": generation}
        if version == OLD:
            del body["consumer_generation"]
        allocations = {name: {"resources": {"VCPU": 1}} for name in providers}
        headers = {"x-auth-token": "admin", "openstack-api-version": f"placement {version}"}
        return self._session.put(
            f"{self._url}/allocations/{consumer}", json={**body, "allocations": allocations}, headers=headers,
            timeout=TIMEOUT_S,
        )  # fmt: skip


class Race:
    """All writers."""

    def __init__(self, placement: PrivatePlacement) -> None:
        self._placement = placement
        self._racers = [Racer(placement.layout.url("placement")) for _ in range(WRITERS)]
        self._barrier = Barrier(WRITERS)

    def run(self, rounds: int, seed: int = 1) -> Outcome:
        """So many rounds."""
        chance, outcome = random.Random(seed), Outcome()
        with ThreadPoolExecutor(WRITERS) as pool:
            for number in range(rounds):
                capacity = chance.choice(CAPACITIES)
                providers = [self._placement.provider(vcpus=capacity) for _ in range(2)]
                kinds = [chance.choice(("new", "exists", "old")) if number % 2 else "new" for _ in self._racers]
                orders = [chance.sample(providers, 2) for _ in self._racers]
                answers = list(pool.map(self._write, self._racers, kinds, orders))
                outcome.add_round(capacity, [self._placement.used(name) for name in providers], answers)
        return outcome

    def _write(self, racer: Racer, kind: str, providers: list[str]) -> requests.Response:
        consumer, generation = str(uuid.uuid4()), None
        if kind == "exists":
            self._placement.take(consumer, {self._placement.provider(): {"VCPU": 1}})
            generation = 1
        self._barrier.wait()
        return racer.put(consumer, providers, generation, OLD if kind == "old" else NEWEST)  # type: ignore[no-any-return]


def race(rounds: int, with_write_path: bool, seed: int = 1, database: str = "mariadb") -> Outcome:
    """Start a Placement of its own on this database (of ``PLACEMENTS``), and run the rounds."""
    with PLACEMENTS[database].running(replace(SETTINGS, placement_app=with_write_path)) as placement:
        return Race(placement).run(rounds, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--stock", action="store_true", help="Placement as it is, without the write path")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=PLACEMENTS, default="mariadb")
    arguments = parser.parse_args()
    outcome = race(arguments.rounds, not arguments.stock, arguments.seed, arguments.database)
    print(json.dumps(dataclasses.asdict(outcome)))
    return 1 if outcome.over_committed else 0


if __name__ == "__main__":
    sys.exit(main())
