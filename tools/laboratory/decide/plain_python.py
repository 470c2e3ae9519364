# SPDX-License-Identifier: Apache-2.0
"""A plain loop over objects: Nova's design of filter and weigher objects, without the rest of Nova.

One small object for each host, one method call for each host and plug-in, lists and sort; no versioned objects, no
debug output, no multipliers from aggregates.  It shows what a rewrite without columns could reach.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

MIB_PER_GIB = 1024


@dataclass(slots=True)
class Host:
    """A host's facts."""

    up: bool
    traits: frozenset[str]
    supported: tuple[str, ...]
    instances: dict[str, None]
    free: tuple[int, int, int]
    most: tuple[int, int, int]
    free_vcpus: float
    free_ram_mb: int
    free_disk_mb: int
    num_io_ops: int
    num_instances: int
    failed_builds: int
    hypervisor_version: int
    pci_devices: int


@dataclass(slots=True)
class Asked:
    """A request."""

    amounts: tuple[int, int, int]
    trait: str
    architecture: str
    extra_specs: dict[str, str]
    group: frozenset[str]


class Filter(ABC):
    """As Nova's BaseFilter."""

    def filter_all(self, hosts: list[Host], asked: Asked) -> list[Host]:
        """The hosts that pass."""
        return [host for host in hosts if self.passes(host, asked)]

    @abstractmethod
    def passes(self, host: Host, asked: Asked) -> bool:
        """Whether one host passes."""


class Up(Filter):
    def passes(self, host: Host, asked: Asked) -> bool:
        return host.up


class Traits(Filter):
    def passes(self, host: Host, asked: Asked) -> bool:
        return asked.trait in host.traits


class Room(Filter):
    def passes(self, host: Host, asked: Asked) -> bool:
        for amount, free, most in zip(asked.amounts, host.free, host.most, strict=True):
            if amount > free or amount > most:
                return False
        return True


class Capabilities(Filter):
    def passes(self, host: Host, asked: Asked) -> bool:
        return not asked.extra_specs


class Image(Filter):
    def passes(self, host: Host, asked: Asked) -> bool:
        return asked.architecture in host.supported


class Apart(Filter):
    def passes(self, host: Host, asked: Asked) -> bool:
        return not any(uuid in host.instances for uuid in asked.group)


#: (attribute, multiplier, normalised from 0): the weighers of Nova that read one number
WEIGHERS = (
    ("num_instances", 0.0, False),
    ("free_vcpus", 1.0, True),
    ("failed_builds", -1_000_000.0, False),
    ("free_ram_mb", 1.0, True),
    ("free_disk_mb", 1.0, True),
    ("pci_devices", -1.0, False),
    ("num_io_ops", -1.0, True),
    ("hypervisor_version", 1.0, False),
)


class Weigher:
    """As Nova's BaseWeigher."""

    def __init__(self, name: str, multiplier: float, from_zero: bool) -> None:
        self.name, self.multiplier, self.from_zero = name, multiplier, from_zero

    def weigh(self, host: Host) -> float:
        """The raw weight."""
        value: float = getattr(host, self.name)
        return max(value, 0) if self.from_zero else value

    def add(self, hosts: list[Host], weights: list[float]) -> None:
        """Normalise and add."""
        raw = [self.weigh(host) for host in hosts]
        low, high = 0.0 if self.from_zero else float(min(raw)), float(max(raw))
        if low != high:
            for position, value in enumerate(raw):
                weights[position] += self.multiplier * ((value - low) / (high - low))


FILTERS = [Up(), Traits(), Room(), Capabilities(), Image(), Apart()]
ALL_WEIGHERS = [Weigher(*one) for one in WEIGHERS]


def hosts_of(rows: list[dict[str, Any]], traits: list[str]) -> list[Host]:
    """From the same rows."""
    shared = frozenset(traits)
    return [_host(row, shared) for row in rows]


def _host(row: dict[str, Any], traits: frozenset[str]) -> Host:
    return Host(
        up=True,
        traits=traits,
        supported=("x86_64", "kvm", "hvm"),
        instances={},
        free=(row["vcpus"] * 4, row["free_ram_mb"], row["free_disk_gb"]),
        most=(row["vcpus"], row["memory_mb"], row["local_gb"]),
        free_vcpus=row["vcpus"] * 4.0 - row["vcpus_used"],
        free_ram_mb=row["free_ram_mb"],
        free_disk_mb=row["free_disk_gb"] * MIB_PER_GIB,
        num_io_ops=row["id"] % 3,
        num_instances=10,
        failed_builds=0,
        hypervisor_version=row["hypervisor_version"],
        pci_devices=0,
    )


def decide(hosts: list[Host], asked: Asked) -> Host | None:
    """The best host that passes."""
    for one in FILTERS:
        hosts = one.filter_all(hosts, asked)
    if not hosts:
        return None
    weights = [0.0] * len(hosts)
    for weigher in ALL_WEIGHERS:
        weigher.add(hosts, weights)
    order = sorted(range(len(hosts)), key=weights.__getitem__, reverse=True)
    return hosts[order[0]]
