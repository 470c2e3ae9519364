# SPDX-License-Identifier: Apache-2.0
"""The settings of the cloud. They are stored in `cloud.json`; a later `up` keeps the values that it does not change."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.laboratory.cloud.brokers import chosen
from tools.laboratory.errors import LabError

SLOT_MB = 400
"""Memory of one `m400` server: a compute with K slots has exactly K times this."""

MAX_CELLS = 4
"""Each cell has a virtual host in the broker; they are declared once, when the broker first starts."""

SCHEDULER_KINDS = ("shared", "nova", "both")
BACKENDS = ("threading", "eventlet")
AGENTS = ("all", "none", "embedded")


@dataclass(frozen=True)
class Hardware:
    """The resources of one fake hypervisor. Without NUMA cells the two `*_per_cell` and `pages` have no effect."""

    vcpus: int = 64
    memory_mb: int = 3 * SLOT_MB
    local_gb: int = 1000
    numa_cells: int = 0
    cpus_per_cell: int = 4
    """Shared CPUs; they make the VCPU inventory of a NUMA compute."""
    pcpus_per_cell: int = 4
    """Dedicated CPUs; they make the PCPU inventory."""
    pages: dict[str, int] = field(default_factory=dict)
    """Huge pages per cell: size in KiB (a string, as in JSON) -> count."""
    gpus: int = 0
    vfs: int = 0
    """Virtual functions, all of one physical function."""
    refuses_builds: str = ""
    """The reason for which its hypervisor refuses every spawn; empty: it does not."""


@dataclass(frozen=True)
class CloudSettings:
    """All settings of `up`. Times are in seconds."""

    scheduler: str = "shared"
    schedulers: int = 1
    scheduler_workers: int = 1
    computes: int = 3
    agents: str = "auto"
    """`all`, `none`, or K: the first K computes. `auto`: all with our scheduler, none with stock alone.
    `embedded`: each nova-compute runs its agent itself."""
    cells: int = 1
    conductors: int = 1
    compute_slots: tuple[int, ...] = (3,)
    """The number of servers of 400 MB that fit: one number per compute in order, the last one for all others."""
    compute_ram_mb: tuple[int, ...] = ()
    """The same in MB; replaces slots."""
    hardware: Hardware = field(default_factory=Hardware)
    hardware_of: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Different settings of single computes: `{"c2": {"numa_cells": 2}}`."""
    backend: str = "threading"
    """Concurrency backend of the schedulers."""
    forked: bool = False
    """Fork our schedulers and agents from a process that has imported Nova, like computes. Off: start programs."""
    report_interval_s: int = 5
    service_down_time_s: int = 60
    """Nova's default. On a busy machine a report of a restarted nova-compute was more than 30 s late."""
    update_resources_interval_s: int = 0
    """nova-compute's audit: 0 is Nova's default of 60 s."""
    allocation_conflict_retry_count: int = 0
    """Placement's own retry; 0 leaves Placement's default."""
    placement_processes: int = 2
    placement_app: bool = False
    """Run Placement with the write path of `shared_scheduler.placement_app`."""
    durable: bool = False
    """Each commit of MariaDB waits for the disk, as by default. Off: its log is written once a second."""
    rabbitmq: str = field(default_factory=chosen)
    """Directory that the broker was unpacked into; empty: the installed one."""
    rabbitmq_options: dict[str, str] = field(default_factory=dict)
    """Additional options for rabbitmq.conf."""
    debug: bool = False
    premap: bool = True
    """Map compute hosts to their cell before they start. Off: the scheduler discovers them."""
    nova_options: dict[str, dict[str, str]] = field(default_factory=dict)
    """Additional options for nova.conf by group, for schedulers and computes."""

    def agent_count(self) -> int:
        """The number of computes with an agent (the first ones), beside them or embedded."""
        if self.agents == "auto":
            return 0 if self.scheduler == "nova" else self.computes
        if self.agents in AGENTS:
            return 0 if self.agents == "none" else self.computes
        return min(int(self.agents), self.computes)

    def embeds(self) -> bool:
        """Whether agents are embedded in nova-compute."""
        return self.agents == "embedded"

    def forks_services(self) -> bool:
        """Whether our schedulers and agents are forked: not under eventlet, and not if they start workers."""
        return self.forked and self.backend == "threading" and self.scheduler_workers == 1

    def scheduler_kind(self, index: int) -> str:
        """`shared` or `nova` for scheduler number `index`, from 1; with `both`, ours are first."""
        if self.scheduler != "both":
            return self.scheduler
        return "shared" if index <= self.schedulers else "nova"

    def scheduler_total(self) -> int:
        return self.schedulers * (2 if self.scheduler == "both" else 1)

    def cell_of(self, compute: int) -> int:
        """Number of the cell, from 1, of compute number `compute`, from 1: assigned round robin."""
        return (compute - 1) % self.cells + 1

    def hardware_for(self, compute: int) -> Hardware:
        """The resources of compute number `compute` (from 1)."""
        if self.compute_ram_mb:
            memory_mb = _pick(self.compute_ram_mb, compute)
        else:
            memory_mb = SLOT_MB * _pick(self.compute_slots, compute)
        hardware = dataclasses.replace(self.hardware, memory_mb=memory_mb)
        return dataclasses.replace(hardware, **self.hardware_of.get(f"c{compute}", {}))


def _pick(values: tuple[int, ...], number: int) -> int:
    return values[min(number, len(values)) - 1]


def check(settings: CloudSettings) -> CloudSettings:
    """`settings` if they are valid, otherwise a `LabError` that names the option."""
    _check_choice("scheduler", settings.scheduler, SCHEDULER_KINDS)
    _check_choice("backend", settings.backend, BACKENDS)
    for name, low, high in (
        ("schedulers", 0, 32), ("scheduler_workers", 1, 16), ("computes", 0, 500), ("cells", 1, MAX_CELLS),
        ("conductors", 1, 8), ("report_interval_s", 1, 60), ("service_down_time_s", 2, 600),
        ("placement_processes", 1, 16),
    ):  # fmt: skip
        value = getattr(settings, name)
        if not low <= value <= high:
            raise LabError(f"--{name.replace('_', '-')} {value}: must be between {low} and {high}")
    if settings.agents not in ("auto", *AGENTS) and not settings.agents.isdigit():
        raise LabError(f"--agents {settings.agents}: give {', '.join(AGENTS)} or a number of computes")
    if not settings.compute_slots or min(settings.compute_slots + settings.compute_ram_mb) < 1:
        raise LabError("--compute-slots, --compute-ram-mb: every number must be at least 1")
    _check_hardware(settings)
    return settings


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise LabError(f"--{name} {value}: choose one of {', '.join(allowed)}")


def _check_hardware(settings: CloudSettings) -> None:
    known = {f.name for f in dataclasses.fields(Hardware)}
    for host, difference in settings.hardware_of.items():
        unknown = sorted(set(difference) - known)
        if unknown:
            raise LabError(f"hardware of {host}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}")


def changed(settings: CloudSettings, changes: dict[str, Any]) -> CloudSettings:
    """`settings` with `changes`; a change with the name of a field of `Hardware` changes that field."""
    own = {f.name for f in dataclasses.fields(CloudSettings)}
    hardware = {f.name for f in dataclasses.fields(Hardware)} - {"memory_mb"}
    unknown = sorted(set(changes) - own - hardware)
    if unknown:
        raise LabError(f"unknown setting {', '.join(unknown)}; known: {', '.join(sorted(own | hardware))}")
    fit = {name: value for name, value in changes.items() if name in hardware}
    top = {name: value for name, value in changes.items() if name in own}
    if fit:
        top["hardware"] = dataclasses.replace(top.get("hardware", settings.hardware), **fit)
    return check(dataclasses.replace(settings, **top))


def load(path: Path) -> CloudSettings:
    """The settings of the last `up` in this data directory, or the defaults."""
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        return CloudSettings()
    except ValueError as error:
        raise LabError(f"{path}: not JSON ({error}); remove the file or the whole data directory") from None
    raw["hardware"] = Hardware(**raw["hardware"])
    for name in ("compute_slots", "compute_ram_mb"):
        raw[name] = tuple(raw[name])
    return check(CloudSettings(**raw))


def save(path: Path, settings: CloudSettings) -> None:
    path.write_text(json.dumps(dataclasses.asdict(settings), indent=2, sort_keys=True) + "\n")
