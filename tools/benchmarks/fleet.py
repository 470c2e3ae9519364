# SPDX-License-Identifier: Apache-2.0
"""Hosts that exist in the databases only: what so many idle nova-computes would have written.

Every row follows from the host's number, so that a process can know the fleet without reading it.
"""

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..realcloud.layout import Layout, cell_database
from ..realcloud.probes import database

NAMESPACE = uuid.UUID("6f2d3c1e-9d0c-4c55-9f0b-0d3f6a1f7a11")
VCPUS, CPU_RATIO, DISK_GB = 64, 4.0, 2000
MEMORY_SIZES_MB = (131072, 262144, 393216)
RESERVED_MB = 512
SERVICE_VERSION = 74
"""A fleet older than 73 would keep nova-scheduler from asking for the trait OWNER_NOVA."""

TRAITS = (
    "COMPUTE_ACCELERATORS", "COMPUTE_ADDRESS_SPACE_EMULATED", "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
    "COMPUTE_DEVICE_TAGGING", "COMPUTE_IMAGE_TYPE_RAW", "COMPUTE_MEM_BACKING_FILE", "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", "COMPUTE_NODE", "COMPUTE_SECURITY_STATELESS_FIRMWARE",
    "COMPUTE_STORAGE_VIRTIO_FS", "COMPUTE_TRUSTED_CERTS", "COMPUTE_VOLUME_ATTACH_WITH_TAG", "COMPUTE_VOLUME_EXTEND",
    "COMPUTE_VOLUME_MULTI_ATTACH", "OWNER_NOVA",
)  # fmt: skip
"""What nova-compute 34 reports with the fake driver."""

CPU_INFO = json.dumps({
    "arch": "x86_64", "model": "Nehalem", "vendor": "Intel", "features": ["pge", "clflush"],
    "topology": {"cores": 1, "threads": 1, "sockets": 4},
})  # fmt: skip
NO_PCI = json.dumps({
    "nova_object.name": "PciDevicePoolList", "nova_object.namespace": "nova", "nova_object.version": "1.1",
    "nova_object.data": {"objects": []}, "nova_object.changes": ["objects"],
})  # fmt: skip
BATCH_ROWS = 1000
HEARTBEAT_S = 25.0
"""Less than half of Nova's `service_down_time`."""


@dataclass(frozen=True)
class Host:
    """One compute host with its one node; `number` counts from 1 and is its id in every table."""

    number: int

    @property
    def name(self) -> str:
        return f"bench-{self.number:05d}"

    @property
    def node(self) -> str:
        """UUID of the compute node, and of its resource provider."""
        return str(uuid.uuid5(NAMESPACE, self.name))

    @property
    def memory_mb(self) -> int:
        return MEMORY_SIZES_MB[self.number % len(MEMORY_SIZES_MB)]


def hosts(count: int) -> list[Host]:
    return [Host(number) for number in range(1, count + 1)]


def compute_node(host: Host) -> dict[str, Any]:
    """Its row of `compute_nodes`, without the times."""
    return {
        "id": host.number, "service_id": host.number, "uuid": host.node, "host": host.name,
        "hypervisor_hostname": host.name, "hypervisor_type": "fake", "hypervisor_version": 1000, "host_ip": "127.0.0.1",
        "vcpus": VCPUS, "vcpus_used": 0, "memory_mb": host.memory_mb, "memory_mb_used": RESERVED_MB,
        "free_ram_mb": host.memory_mb - RESERVED_MB, "local_gb": DISK_GB, "local_gb_used": 0, "free_disk_gb": DISK_GB,
        "disk_available_least": 0, "current_workload": 0, "running_vms": 0, "cpu_info": CPU_INFO, "pci_stats": NO_PCI,
        "supported_instances": '[["x86_64", "fake", "hvm"]]', "metrics": "[]", "stats": '{"failed_builds": "0"}',
        "cpu_allocation_ratio": CPU_RATIO, "ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0,
        "mapped": 1, "deleted": 0,
    }  # fmt: skip


def inventories(host: Host) -> dict[str, tuple[int, int, int, int, int, float]]:
    """Resource class to (total, reserved, min_unit, max_unit, step_size, allocation_ratio)."""
    return {
        "VCPU": (VCPUS, 0, 1, VCPUS, 1, CPU_RATIO),
        "MEMORY_MB": (host.memory_mb, RESERVED_MB, 1, host.memory_mb, 1, 1.0),
        "DISK_GB": (DISK_GB, 0, 1, DISK_GB, 1, 1.0),
    }


def settle(layout: Layout, count: int) -> None:
    """Have exactly `count` hosts, all empty and up. Placement must have started once: it fills its traits."""
    with database(layout) as connection, connection.cursor() as cursor:
        _clear(cursor)
        _settle_nova(cursor, hosts(count))
        _settle_placement(cursor, hosts(count))
        cursor.execute(
            f"ANALYZE TABLE {cell_database(1)}.compute_nodes, {cell_database(1)}.services, nova_api.host_mappings,"
            " placement.inventories, placement.resource_provider_traits, placement.resource_providers"
        )


def _clear(cursor: Any) -> None:
    cursor.execute("SET FOREIGN_KEY_CHECKS = 0")
    for table in ("allocations", "consumers", "resource_provider_traits", "inventories", "resource_providers"):
        cursor.execute(f"DELETE FROM placement.{table}")
    for table in ("compute_nodes", "services"):
        cursor.execute(f"DELETE FROM {cell_database(1)}.{table}")
    cursor.execute("DELETE FROM nova_api.host_mappings")


def _settle_nova(cursor: Any, fleet: Sequence[Host]) -> None:
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    times = {"created_at": now, "updated_at": now}
    services = (
        {
            **times, "last_seen_up": now, "id": host.number, "host": host.name, "binary": "nova-compute",
            "topic": "compute", "uuid": str(uuid.uuid5(NAMESPACE, f"service {host.name}")), "report_count": 1,
            "disabled": 0, "deleted": 0, "forced_down": 0, "version": SERVICE_VERSION,
        }
        for host in fleet
    )  # fmt: skip
    insert(cursor, f"{cell_database(1)}.services", services)
    insert(cursor, f"{cell_database(1)}.compute_nodes", ({**times, **compute_node(host)} for host in fleet))
    cursor.execute("SELECT id FROM nova_api.cell_mappings WHERE name = 'cell1'")
    cell = cursor.fetchone()[0]
    insert(cursor, "nova_api.host_mappings", ({**times, "cell_id": cell, "host": host.name} for host in fleet))


def _settle_placement(cursor: Any, fleet: Sequence[Host]) -> None:
    insert(cursor, "placement.resource_providers", (
        {"id": host.number, "uuid": host.node, "name": host.name, "generation": 1, "root_provider_id": host.number}
        for host in fleet
    ))  # fmt: skip
    cursor.execute("SELECT name, id FROM placement.resource_classes")
    classes = dict(cursor.fetchall())
    columns = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
    insert(cursor, "placement.inventories", (
        {"resource_provider_id": host.number, "resource_class_id": classes[name], **dict(zip(columns, of, strict=True))}
        for host in fleet for name, of in inventories(host).items()
    ))  # fmt: skip
    marks = ", ".join(["%s"] * len(TRAITS))
    cursor.execute(
        "INSERT INTO placement.resource_provider_traits (trait_id, resource_provider_id)"
        f" SELECT t.id, p.id FROM placement.resource_providers p, placement.traits t WHERE t.name IN ({marks})",
        TRAITS,
    )


def insert(cursor: Any, table: str, rows: Iterator[dict[str, Any]]) -> None:
    """Insert rows of one shape, many to a statement."""
    batch: list[tuple[Any, ...]] = []
    sql = ""
    for row in rows:
        if not sql:
            names = ", ".join(f"`{name}`" for name in row)
            sql = f"INSERT INTO {table} ({names}) VALUES ({', '.join(['%s'] * len(row))})"
        batch.append(tuple(row.values()))
        if len(batch) == BATCH_ROWS:
            cursor.executemany(sql, batch)
            batch.clear()
    if batch:
        cursor.executemany(sql, batch)


def vacate(layout: Layout) -> None:
    """Take all allocations back and put what a claim moved as it was: every host is empty again."""
    with database(layout) as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM placement.allocations")
        cursor.execute("DELETE FROM placement.consumers")


class Heartbeat:
    """Keeps all nova-compute records up, as their reports would. One statement each time, for all."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def beat(self) -> None:
        with database(self._layout, cell_database(1)) as connection, connection.cursor() as cursor:
            cursor.execute(
                "UPDATE services SET last_seen_up = utc_timestamp(), updated_at = utc_timestamp(),"
                " report_count = report_count + 1 WHERE `binary` = 'nova-compute'"
            )

    def _run(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            self.beat()
