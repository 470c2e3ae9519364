# SPDX-License-Identifier: Apache-2.0
"""CPU time of Placement and MariaDB for each new consumer, on a real Placement.

``python -m tests.functional.placement_cost`` prints milliseconds (user and system time of all their processes) for
``PUT`` of one consumer and ``POST`` of several, with the write path and without it.  Each consumer takes VCPU,
MEMORY_MB and DISK_GB of a provider.  There is no Keystone.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests

from tests.functional.placement_races import NEWEST, TIMEOUT_S
from tests.functional.private_placement import SETTINGS, PrivatePlacement

PROVIDERS = 200
INVENTORIES = {"VCPU": {"total": 10_000}, "MEMORY_MB": {"total": 10_000_000}, "DISK_GB": {"total": 1_000_000}}
RESOURCES = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
TICKS_A_SECOND = 100
WARM_UP = 40


class Meter:
    """CPU time of the processes of a Placement."""

    def __init__(self, placement: PrivatePlacement) -> None:
        self._mark = str(placement.layout.data)

    def read_ms(self) -> dict[str, float]:
        """Milliseconds since each of them started, summed by program."""
        found = {"placement": 0.0, "mariadb": 0.0}
        for process in Path("/proc").iterdir():
            program = self._program(process)
            if program is not None:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                found[program] += (int(fields[11]) + int(fields[12])) * 1000 / TICKS_A_SECOND
        return found

    def _program(self, process: Path) -> str | None:
        try:
            command = (process / "cmdline").read_bytes().decode()
        except OSError:
            return None
        if self._mark not in command:
            return None
        return "mariadb" if "mariadbd" in command else "placement" if "uwsgi" in command else None


class Writer:
    """Writes new consumers, one request after the other."""

    def __init__(self, placement: PrivatePlacement) -> None:
        self._url = placement.layout.url("placement")
        self._session = requests.Session()
        self._session.headers.update({"x-auth-token": "admin", "openstack-api-version": f"placement {NEWEST}"})
        self._providers = self._round_robin([placement.provider(inventories=INVENTORIES) for _ in range(PROVIDERS)])

    @staticmethod
    def _round_robin(names: list[str]) -> Iterator[str]:
        while True:
            yield from names

    def _body(self) -> dict[str, Any]:
        allocations = {next(self._providers): {"resources": RESOURCES}}
        return {"allocations": allocations, "consumer_generation": None, "project_id": "p", "user_id": "u"}

    def write(self, consumers: int) -> None:
        """One request with so many."""
        if consumers == 1:
            answer = self._session.put(f"{self._url}/allocations/{uuid.uuid4()}", json=self._body(), timeout=TIMEOUT_S)
        else:
            body = {str(uuid.uuid4()): self._body() for _ in range(consumers)}
            answer = self._session.post(f"{self._url}/allocations", json=body, timeout=TIMEOUT_S)
        assert answer.status_code == 204, answer.text


def measure(with_write_path: bool, requests_each: int) -> Iterator[tuple[int, dict[str, float]]]:
    """For each batch size: milliseconds a consumer, by program."""
    with PrivatePlacement.running(replace(SETTINGS, placement_app=with_write_path)) as placement:
        writer, meter = Writer(placement), Meter(placement)
        for consumers in (1, 2, 4, 16):
            for _ in range(WARM_UP):
                writer.write(consumers)
            before = meter.read_ms()
            for _ in range(requests_each):
                writer.write(consumers)
            after = meter.read_ms()
            yield consumers, {name: (after[name] - before[name]) / requests_each / consumers for name in after}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=400, help="of each kind")
    arguments = parser.parse_args()
    print(f"{'':16}{'consumers':>10}{'Placement':>11}{'MariaDB':>9}{'together':>10}   ms of CPU a consumer")
    for name, with_write_path in (("stock", False), ("write path", True)):
        for consumers, cost in measure(with_write_path, arguments.requests):
            placement, mariadb = cost["placement"], cost["mariadb"]
            print(f"{name:16}{consumers:10}{placement:11.2f}{mariadb:9.2f}{placement + mariadb:10.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
