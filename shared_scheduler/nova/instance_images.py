# SPDX-License-Identifier: Apache-2.0
"""Image properties of the instances of nodes, from a cell's database.

Agents report them for their nodes (``shared_scheduler/novalib/image_properties.py``).  For nodes without an
agent, the cell's database is queried together with the nodes, if a weigher needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa
from nova import objects, utils

from shared_scheduler.model.compute_node import IMAGE_COUNTS
from shared_scheduler.model.image_properties import Pair, counted
from shared_scheduler.novalib.image_properties import pairs_of

#: names of hosts in one query
HOSTS_MAX = 500

_INSTANCES = sa.table("instances", *map(sa.column, ("uuid", "host", "node", "deleted")))
_METADATA = sa.table("instance_system_metadata", *map(sa.column, ("instance_uuid", "key", "value", "deleted")))

#: service host and hypervisor hostname
NodeName = tuple[str, str]


def queries(hosts: Iterable[str]) -> Iterator[Any]:
    """Queries for the image properties of the instances of these service hosts."""
    instance, metadata, names = _INSTANCES.c, _METADATA.c, sorted(hosts)
    for start in range(0, len(names), HOSTS_MAX):
        yield sa.select(instance.host, instance.node, instance.uuid, metadata.key, metadata.value).where(
            metadata.instance_uuid == instance.uuid,
            metadata.deleted == 0,
            metadata.key.startswith(utils.SM_IMAGE_PROP_PREFIX, autoescape=True),
            instance.deleted == 0,
            instance.host.in_(names[start : start + HOSTS_MAX]),
        )


def with_images(nodes: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records of nodes, each with the counts from the rows of ``queries``."""
    metadata: dict[NodeName, dict[str, dict[str, str]]] = {}
    for row in found:
        of_node = metadata.setdefault((row["host"], row["node"]), {})
        of_node.setdefault(row["uuid"], {})[row["key"]] = row["value"]
    pairs_of = cache(_pairs)  # most instances have one of a few images
    counts = {
        name: counted(pairs_of(frozenset(one.items())) for one in instances.values())
        for name, instances in metadata.items()
    }
    return [{**node, IMAGE_COUNTS: counts.get((node["host"], node["hypervisor_hostname"]), {})} for node in nodes]


def _pairs(metadata: frozenset[tuple[str, str]]) -> frozenset[Pair]:
    """The pairs as Nova's objects have them."""
    image = utils.get_image_from_system_metadata(dict(metadata))
    return pairs_of(lambda: objects.ImageMeta.from_dict(image))
