# SPDX-License-Identifier: Apache-2.0
"""Whole machines for jobs, by two schedulers that share one inventory; without Nova.

    python -m tools.examples.bare_metal [--machines 200] [--seed 1]

An inventory (here in memory, elsewhere a database) has one row per machine, with a version that each change raises.
It accepts a reservation only from a caller who names the version that it has read, as Ironic and many databases do.
Each scheduler has a table of its own, which it reads again now and then, so both may select the same machine; the
inventory refuses the second, and that scheduler takes the next machine within the same call.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from shared_scheduler.independent import Ask, Claim, IndependentScheduler, Inventory, Node, NodeState, NoNodeError

#: requests between two reads of the inventory
READ_EVERY = 10
KINDS = {"small": 64, "large": 512}  # GB of memory
RACKS = 8


@dataclass(frozen=True, slots=True)
class Machine:
    """A row of the inventory."""

    uuid: str
    kind: str
    rack: str
    broken: bool = False
    job: str = ""
    version: int = 1


class Machines:
    """The inventory."""

    def __init__(self, count: int, rng: Random) -> None:
        self._rows = {
            f"machine-{number}": Machine(
                f"machine-{number}", rng.choice(list(KINDS)), f"rack-{number % RACKS}", rng.random() < 0.05
            )
            for number in range(count)
        }

    def rows(self) -> list[Machine]:
        """All machines."""
        return list(self._rows.values())

    def change(self, uuid: str, version: int, job: str) -> str:
        """Reserve or free a machine; returns why not if it has changed since ``version``."""
        row = self._rows[uuid]
        if row.version != version:
            return f"version {row.version} is newer than {version}"
        if job and row.job:
            return f"has job {row.job}"
        self._rows[uuid] = replace(row, job=job, version=version + 1)
        return ""


class Shop:
    """One scheduler of machines: the authority of its own table."""

    def __init__(self, machines: Machines, rng: Random) -> None:
        self.refused = 0
        self._machines = machines
        self._versions: dict[str, int] = {}
        self.scheduler = IndependentScheduler(least_memory, self, rng)

    def read(self) -> None:
        """Feed the table from the inventory."""
        for row in self._machines.rows():
            self._versions[row.uuid] = row.version
            self.scheduler.put(_node(row))

    def commit(self, claim: Claim) -> str:
        """Reserve the machine."""
        version = self._versions[claim.node]
        why = self._machines.change(claim.node, version, claim.consumer)
        self.refused += bool(why)
        self._versions[claim.node] = version if why else version + 1
        return why

    def undo(self, claim: Claim) -> None:
        """Free the machine again."""
        self._machines.change(claim.node, self._versions[claim.node], "")
        self._versions[claim.node] += 1


def _node(row: Machine) -> Node:
    machine = {machine_class(row.kind): 1}
    return Node(
        uuid=row.uuid,
        name=row.uuid,
        inventories={rc: Inventory(total, max_unit=1) for rc, total in machine.items()},
        traits=frozenset({f"CUSTOM_MEMORY_GB_{KINDS[row.kind]}"}),
        aggregates=frozenset({row.rack}),
        consumers={row.job: machine} if row.job else {},
        in_service=not row.broken,
    )


def machine_class(kind: str) -> str:
    """The resource class of a kind of machine."""
    return f"CUSTOM_BAREMETAL_{kind.upper()}"


def least_memory(ask: Ask, node: NodeState) -> float:
    """Prefer small machines, and racks by their number."""
    [rack] = node.aggregates
    return -KINDS["large" if machine_class("large") in node.capacity else "small"] - int(rack.rpartition("-")[2]) / 100


def jobs(rng: Random) -> Iterator[Ask]:
    """Requests for one machine with two alternates, and gangs of two to four machines in one rack."""
    number = 0
    while True:
        number += 1
        resources = {machine_class(rng.choice(list(KINDS))): 1}
        if rng.random() < 0.2:
            gang = tuple(f"job-{number}.{part}" for part in range(rng.randint(2, 4)))
            rack = frozenset({f"rack-{rng.randrange(RACKS)}"})
            yield Ask(consumers=gang, resources=resources, member_of=(rack,))
        else:
            yield Ask(consumers=(f"job-{number}",), resources=resources, alternates=2)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened until no machine was free, or nobody could be served any more."""

    served: int
    machines: int
    failed: int
    refused: int
    taken: int
    explanation: str


def run(count: int, seed: int) -> Outcome:
    """Serve requests by two schedulers in turn, until the inventory is used up."""
    rng = Random(seed)
    machines = Machines(count, rng)
    shops = [Shop(machines, Random(seed + 1 + number)) for number in range(2)]
    served, given, failed, last = 0, 0, 0, ""
    for number, ask in enumerate(jobs(rng)):
        if number % READ_EVERY == 0:
            for shop in shops:
                shop.read()
            if number > 2 * count:
                break
        shop = shops[number % 2]
        try:
            given += len(shop.scheduler.claim(ask).claims)
            served += 1
        except NoNodeError as error:
            failed += 1
            last = str(error)
    taken = sum(1 for row in machines.rows() if row.job)
    return Outcome(served, given, failed, sum(shop.refused for shop in shops), taken, last)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the outcome."""
    parser = argparse.ArgumentParser(prog="python -m tools.examples.bare_metal")
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    found = run(args.machines, args.seed)
    print(f"{found.served} requests were served, {found.failed} found no machine; {found.taken} machines are taken")
    print(f"{found.refused} times the inventory refused, because the other scheduler had the machine")
    print(f"the last one without a machine: {found.explanation}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
