# SPDX-License-Identifier: Apache-2.0
"""Hosts that exist in the databases only: the rows that idle nova-computes would have written."""

import threading
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from tools.laboratory.cloud.layout import Layout, cell_database
from tools.laboratory.cloud.probes import database
from tools.laboratory.fleet.hosts import FIRST_GENERATION, NAMESPACE, TRAITS, Host, compute_node, hosts, inventories

SERVICE_VERSION = 74
"""With nova-computes older than 73, nova-scheduler would not require the trait OWNER_NOVA."""
BATCH_ROWS = 1000
HEARTBEAT_S = 25.0
"""Less than half of Nova's `service_down_time`."""


def settle(layout: Layout, count: int) -> None:
    """Create exactly `count` hosts, all empty and up. Placement must have been started once, to create its traits."""
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
    times = _times()
    services = (
        {
            **times, "last_seen_up": times["created_at"], "id": host.number, "host": host.name,
            "binary": "nova-compute", "topic": "compute", "report_count": 1,
            "uuid": str(uuid.uuid5(NAMESPACE, f"service {host.name}")),
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
    # Placement cannot list a provider without a time, and every read of the list would fail
    insert(cursor, "placement.resource_providers", (
        {
            **_times(), "id": host.number, "uuid": host.node, "name": host.name, "generation": FIRST_GENERATION,
            "root_provider_id": host.number,
        }
        for host in fleet
    ))  # fmt: skip
    cursor.execute("SELECT name, id FROM placement.resource_classes")
    classes = dict(cursor.fetchall())
    columns = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
    insert(cursor, "placement.inventories", (
        {"resource_provider_id": host.number, "resource_class_id": classes[name],
         **dict(zip(columns, row.to_leaf(), strict=True))}
        for host in fleet for name, row in inventories(host).items()
    ))  # fmt: skip
    marks = ", ".join(["%s"] * len(TRAITS))
    cursor.execute(
        "INSERT INTO placement.resource_provider_traits (trait_id, resource_provider_id)"
        f" SELECT t.id, p.id FROM placement.resource_providers p, placement.traits t WHERE t.name IN ({marks})",
        TRAITS,
    )


def insert(cursor: Any, table: str, rows: Iterator[dict[str, Any]]) -> None:
    """Insert rows with the same columns, many in one statement."""
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
    """Delete all allocations and restore the values that claims have changed: every host is empty again."""
    with database(layout) as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM placement.allocations")
        cursor.execute("DELETE FROM placement.consumers")
        cursor.execute("UPDATE placement.resource_providers SET generation = %s", (FIRST_GENERATION,))


class Heartbeat:
    """Keeps all nova-compute records up with one statement for all, as their reports would."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self.heartbeat()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def heartbeat(self) -> None:
        with database(self._layout, cell_database(1)) as connection, connection.cursor() as cursor:
            cursor.execute(
                "UPDATE services SET last_seen_up = utc_timestamp(), updated_at = utc_timestamp(),"
                " report_count = report_count + 1 WHERE `binary` = 'nova-compute'"
            )

    def _run(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            self.heartbeat()


def _times() -> dict[str, datetime]:
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    return {"created_at": now, "updated_at": now}
