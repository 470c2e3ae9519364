# SPDX-License-Identifier: Apache-2.0
"""Compares Placement's allocations with Nova's own records; each difference is one sentence.

Every server holds its flavor on its host. A server that waits for the confirmation of its resize holds the new flavor
on its host, and its migration holds the old one on the previous host. There are no other consumers.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.server_actions import cells

Holding = dict[str, dict[str, int]]
"""Host -> resource class -> amount."""


def wrong_allocations(cloud: Cloud) -> list[str]:
    """One sentence for each consumer whose allocations differ from the expected ones."""
    expected, held = expectations(cloud), holdings(cloud)
    return [
        f"{consumer} holds {held.get(consumer) or 'nothing'}, expected {expected.get(consumer) or 'nothing'}"
        for consumer in sorted(expected.keys() | held.keys())
        if expected.get(consumer, {}) != held.get(consumer, {})
    ]


def holdings(cloud: Cloud) -> dict[str, Holding]:
    """All allocations of Placement by consumer; a provider is named by its name, which is its host's name here."""
    found: dict[str, Holding] = {}
    query = (
        "SELECT a.consumer_id, p.name, c.name, CAST(a.used AS SIGNED) FROM allocations a"
        " JOIN resource_providers p ON p.id = a.resource_provider_id"
        " JOIN resource_classes c ON c.id = a.resource_class_id"
    )
    for consumer, host, resource_class, amount in cloud.sql("placement", query):
        found.setdefault(consumer, {}).setdefault(host, {})[resource_class] = int(amount)
    return found


def expectations(cloud: Cloud) -> dict[str, Holding]:
    """The expected allocations of each consumer by Nova's databases."""
    return {
        consumer: holding for cell in cells(cloud) if cell for consumer, holding in _of_cell(cloud, f"nova_cell{cell}")
    }


def _of_cell(cloud: Cloud, database: str) -> Iterator[tuple[str, Holding]]:
    instances = (
        "SELECT i.uuid, i.host, e.flavor FROM instances i JOIN instance_extra e ON e.instance_uuid = i.uuid"
        " WHERE i.deleted = 0 AND i.host IS NOT NULL"
    )
    flavors = {}
    for uuid, host, text in cloud.sql(database, instances):
        flavors[uuid] = json.loads(text)
        yield uuid, {host: amounts(flavors[uuid]["cur"])}
    moved = (
        "SELECT uuid, instance_uuid, source_compute FROM migrations"
        " WHERE status IN ('finished', 'confirming', 'reverting') AND migration_type IN ('resize', 'migration')"
    )
    for migration, server, source in cloud.sql(database, moved):
        if server in flavors:
            yield migration, {source: amounts(flavors[server]["old"] or flavors[server]["cur"])}


def amounts(flavor: Mapping[str, Any]) -> dict[str, int]:
    """The amounts that Placement counts for a flavor (in the form of Nova's databases)."""
    data = flavor["nova_object.data"]
    dedicated = (data.get("extra_specs") or {}).get("hw:cpu_policy") == "dedicated"
    wanted = {"PCPU" if dedicated else "VCPU": data["vcpus"], "MEMORY_MB": data["memory_mb"],
              "DISK_GB": data["root_gb"] + data["ephemeral_gb"]}  # fmt: skip
    return {resource_class: amount for resource_class, amount in wanted.items() if amount}
