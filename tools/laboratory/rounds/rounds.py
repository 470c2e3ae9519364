# SPDX-License-Identifier: Apache-2.0
"""Requests for pinned CPUs, huge pages and PCI devices that just fit, round after round: how many are rescheduled?

In each round as many servers as the computes have room for are built at the same moment. Placement counts the
dedicated CPUs and the memory, of which there are more than enough; what binds is what only nova-compute knows: the CPUs
of one NUMA cell, the pages of one cell, PCI devices. A scheduler that does not know them chooses nodes that refuse the
build.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shared_scheduler.model.leaves import PCI, PCI_STATIC
from tools.laboratory.cloud.bursts import BurstReport, burst
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.host_tables import rows, wait_idle
from tools.laboratory.cloud.provisioning import Flavor

EMPTY_TIMEOUT_S = 240.0
PINNED = {"hw:cpu_policy": "dedicated"}
MB_2_PAGES = {"hw:mem_page_size": "2048"}

HARDWARE: dict[str, Any] = {
    "compute_ram_mb": (8000,), "numa_cells": 2, "cpus_per_cell": 2, "pcpus_per_cell": 5,
    "pages": {"2048": 200}, "gpus": 2, "vfs": 2,
}  # fmt: skip
"""Of each compute; the kinds below say what of it binds."""


@dataclass(frozen=True)
class Kind:
    """One kind of request, and how many of it an empty compute takes."""

    flavor: Flavor
    per_compute: int
    binds: str


KINDS = (
    Kind(Flavor("round-gpu", extra={**PINNED, "pci_passthrough:alias": "gpu:1"}), 2,
         "2 GPUs; Placement has 10 dedicated CPUs"),
    Kind(Flavor("round-cell", vcpus=3, extra=PINNED), 2,
         "5 dedicated CPUs in a cell, 3 for each server; Placement has room for 3 servers"),
    Kind(Flavor("round-pages-vf", extra={**PINNED, **MB_2_PAGES, "pci_passthrough:alias": "vf:1"}), 2,
         "200 pages in each of two cells, 200 for each server, and 2 virtual functions"),
)  # fmt: skip


@dataclass(frozen=True)
class Round:
    """What one round came to."""

    scheduler: str
    kind: str
    asked: int
    active: int
    reschedules: int
    no_valid_host: int
    failed: int
    conflicts: int
    active_median_s: float


def begin(cloud: Cloud, schedulers: int, computes: int = 3) -> None:
    """A cloud of this hardware, without servers."""
    cloud.up(scheduler="shared", schedulers=schedulers, computes=computes, agents="all", hardware_of={},
             service_down_time_s=60, **HARDWARE)  # fmt: skip
    cloud.reset()
    for kind in KINDS:
        cloud.add_flavor(kind.flavor)


def play(cloud: Cloud, scheduler: str, rounds: int, first: int = 0) -> list[Round]:
    """So many rounds under one scheduler, each kind in its turn from that of round number `first` on."""
    use(cloud, scheduler)
    return [play_one(cloud, scheduler, KINDS[number % len(KINDS)]) for number in range(first, first + rounds)]


def wait_empty(cloud: Cloud, scheduler: str) -> None:
    """Until nova-compute counts nothing any more, and Placement, and our tables.

    A server that is deleted in the middle of nova-compute's audit leaves a device taken until the next audit; that is
    Nova's, and would be counted against whoever comes next.
    """
    cloud.wait(lambda: not cloud.usages(), "Placement to be empty", EMPTY_TIMEOUT_S)
    cloud.wait(lambda: free_devices(cloud) == devices(cloud), "nova-compute to free every device", EMPTY_TIMEOUT_S)
    if scheduler == "shared":
        wait_idle(cloud)
        cloud.wait(lambda: table_devices(cloud) == {devices(cloud)}, "our tables to have every device",
                   EMPTY_TIMEOUT_S)  # fmt: skip


def devices(cloud: Cloud) -> int:
    """PCI devices of all computes."""
    hardware = cloud.settings.hardware
    return cloud.settings.computes * (hardware.gpus + hardware.vfs)


def free_devices(cloud: Cloud) -> int:
    """Those that nova-compute's records show as free."""
    found = cloud.sql("nova_cell1", "SELECT pci_stats FROM compute_nodes WHERE deleted = 0")
    pools = [pool for (text,) in found if text for pool in json.loads(text)["nova_object.data"]["objects"]]
    return sum(pool["nova_object.data"]["count"] for pool in pools)


def table_devices(cloud: Cloud) -> set[int]:
    """Those that each of our schedulers' tables shows as free."""
    return {sum(free_in(row["leaves"]) for row in table) for table in rows(cloud, "tables")}


def free_in(leaves: Mapping[str, Any]) -> int:
    counts = [count for name, count in leaves.items() if name.startswith(PCI) and not name.startswith(PCI_STATIC)]
    return sum(count for count in counts if isinstance(count, int))


def use(cloud: Cloud, scheduler: str) -> None:
    """Let this scheduler serve; agents stay, which changes nothing for the stock one."""
    if cloud.settings.scheduler != scheduler:
        cloud.up(scheduler=scheduler, agents="all")


def play_one(cloud: Cloud, scheduler: str, kind: Kind) -> Round:
    """Fill the empty cloud at once, count, and empty it again."""
    wait_empty(cloud, scheduler)
    count = kind.per_compute * cloud.settings.computes
    return summed(scheduler, kind, burst(cloud, count, count, flavor=kind.flavor.name, freeze_conductor=True))


def summed(scheduler: str, kind: Kind, report: BurstReport) -> Round:
    active = report.states.get("ACTIVE", 0)
    return Round(scheduler, kind.flavor.name, report.count, active, report.reschedules, report.no_valid_host,
                 report.count - active, report.puts_409, report.active_median_s)  # fmt: skip


def contest(cloud: Cloud, rounds: int, stock: int, block: int, keep: Callable[[list[Round]], None]) -> list[Round]:
    """`rounds` under ours and `stock` under nova-scheduler, in turns; `block` of ours are one turn.

    `keep` gets all that were played after each round.
    """
    played: list[Round] = []
    turns = max(1, math.ceil(rounds / block))
    for turn in range(turns):
        for scheduler, total in (("shared", rounds), ("nova", stock)):
            first, end = total * turn // turns, total * (turn + 1) // turns
            for number in range(first, end):
                played += play(cloud, scheduler, 1, number)
                keep(played)
    return played


def table(played: Iterable[Round]) -> list[dict[str, Any]]:
    """One row for each kind of request and scheduler, then one for each scheduler over all."""
    played = list(played)
    schedulers = sorted({each.scheduler for each in played}, reverse=True)
    lines = [
        _row(kind.flavor.name, scheduler, [r for r in played if (r.kind, r.scheduler) == (kind.flavor.name, scheduler)])
        for kind in KINDS
        for scheduler in schedulers
    ]
    totals = [_row("all", scheduler, [r for r in played if r.scheduler == scheduler]) for scheduler in schedulers]
    return [row for row in [*lines, *totals] if row["rounds"]]


def _row(kind: str, scheduler: str, played: list[Round]) -> dict[str, Any]:
    return {
        "kind": kind, "scheduler": scheduler, "rounds": len(played),
        "rounds with a reschedule": sum(each.reschedules > 0 for each in played),
        "servers": sum(each.asked for each in played),
        "active": sum(each.active for each in played),
        "reschedules": sum(each.reschedules for each in played),
        "failed": sum(each.failed for each in played),
        "median s to ACTIVE": round(statistics.median(each.active_median_s for each in played), 2) if played else None,
    }  # fmt: skip


def results(cloud: Cloud, played: Iterable[Round]) -> dict[str, Any]:
    """Everything, for a file."""
    played = list(played)
    return {
        "hardware": HARDWARE, "computes": cloud.settings.computes, "schedulers": cloud.settings.schedulers,
        "kinds": [asdict(kind) for kind in KINDS],
        "rounds": [asdict(each) for each in played], "table": table(played),
    }  # fmt: skip


def is_wrong(one: Round) -> bool:
    """Ours may not reschedule, and must build everything that fits."""
    return one.scheduler == "shared" and bool(one.reschedules or one.failed)
