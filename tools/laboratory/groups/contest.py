# SPDX-License-Identifier: Apache-2.0
"""Batches of pairs with our schedulers, then with nova-scheduler."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.errors import LabError
from tools.laboratory.groups.moves import MOVES, moved
from tools.laboratory.groups.pairs import NOVA_OPTIONS, Batch, Pairs

BUILD = "build"
OPERATIONS = (BUILD, *MOVES)
#: servers that the hosts have room for, for each member of a batch; the first host is the best one
ROOM = (3, 2, 1.5, 1.2, 1.2)


@dataclass(frozen=True)
class Plan:
    """How many pairs of each policy, and with which operations."""

    policies: Sequence[str]
    operations: Sequence[str]
    pairs: int
    stock: int
    batch: int
    schedulers: int

    def cases(self) -> Iterable[tuple[str, str]]:
        """Operation and policy."""
        return product(self.operations, self.policies)

    def batches(self, total: int) -> list[int]:
        """Pairs of each batch."""
        full, rest = divmod(total, self.batch)
        return [self.batch] * full + [rest] * bool(rest)


def contest(cloud: Cloud, plan: Plan, keep: Callable[[list[Batch]], None]) -> list[Batch]:
    """All batches with ours, then with nova-scheduler; `keep` gets the results after each."""
    played: list[Batch] = []
    for scheduler, total in (("shared", plan.pairs), ("nova", plan.stock)):
        if total:
            use(cloud, plan, scheduler)
        for operation, policy in plan.cases():
            for count in plan.batches(total):
                played.append(play(cloud, scheduler, operation, policy, count))
                keep(played)
    return played


def use(cloud: Cloud, plan: Plan, scheduler: str) -> None:
    """A cloud of uneven hosts, each of which has room for all servers of a batch, under this scheduler."""
    slots = tuple(int(2 * plan.batch * room) for room in ROOM)
    cloud.up(scheduler=scheduler, schedulers=plan.schedulers, computes=len(ROOM), agents="all", compute_slots=slots,
             nova_options=NOVA_OPTIONS, service_down_time_s=120)  # fmt: skip


def play(cloud: Cloud, scheduler: str, operation: str, policy: str, count: int) -> Batch:
    """One batch, in an empty cloud."""
    cloud.reset()
    with Pairs(cloud, policy, count) as pairs:
        if operation == BUILD:
            pairs.boot_at_once()
            return pairs.built(scheduler)
        return moved(cloud, scheduler, pairs, operation)


def table(played: Iterable[Batch]) -> list[dict[str, Any]]:
    """One row for each scheduler, operation and policy."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for batch in played:
        key = (batch.scheduler, batch.operation, batch.policy)
        row = rows.setdefault(key, dict(zip(("scheduler", "operation", "policy"), key, strict=True)))
        for name in ("pairs", "violations", "failed", "reschedules"):
            row[name] = row.get(name, 0) + getattr(batch, name)
    return list(rows.values())


def results(plan: Plan, played: Sequence[Batch]) -> dict[str, Any]:
    """Everything, for a file."""
    return {"schedulers": plan.schedulers, "batch": plan.batch, "late check": "off",
            "batches": [asdict(batch) for batch in played], "table": table(played)}  # fmt: skip


def load(path: Path) -> list[Batch]:
    """The batches of a saved run.

    :raises LabError: when the file is not one
    """
    try:
        return [Batch(**batch) for batch in json.loads(path.read_text())["batches"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path}: no saved run of groups ({error})") from None
