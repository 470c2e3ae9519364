# SPDX-License-Identifier: Apache-2.0
"""The SQL of the write path, over Placement's own tables.

The tables bring their defaults with them: ``created_at`` and ``updated_at`` are set as Placement's own writes set them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from placement.db.sqlalchemy import models

PROVIDERS = models.ResourceProvider.__table__
CLASSES = models.ResourceClass.__table__
INVENTORIES = models.Inventory.__table__
ALLOCATIONS = models.Allocation.__table__
CONSUMERS = models.Consumer.__table__

#: Statements of each kind that are kept, by the lengths of their lists.
KEPT_MAX = 64


def one_of(name: str, values: Iterable[Any]) -> dict[str, Any]:
    """The parameters of a list."""
    return {f"{name}{number}": value for number, value in enumerate(values)}


def _parameters(name: str, count: int) -> list[sa.BindParameter[Any]]:
    """A list of known length is compiled once, and not at each execution."""
    return [sa.bindparam(parameter) for parameter in one_of(name, range(count))]


@lru_cache(KEPT_MAX)
def lock_providers(count: int) -> sa.Select[Any]:
    """Locks the providers ``uuid...``.  All writers take them in one order, so that they wait and do not deadlock."""
    return (
        sa.select(PROVIDERS.c.id, PROVIDERS.c.uuid, PROVIDERS.c.generation)
        .where(PROVIDERS.c.uuid.in_(_parameters("uuid", count)))
        .order_by(PROVIDERS.c.uuid)
        .with_for_update()
    )


_USED = (
    sa.select(sa.func.sum(ALLOCATIONS.c.used))
    .where(
        ALLOCATIONS.c.resource_provider_id == INVENTORIES.c.resource_provider_id,
        ALLOCATIONS.c.resource_class_id == INVENTORIES.c.resource_class_id,
    )
    .correlate(INVENTORIES)
    .scalar_subquery()
)


@lru_cache(KEPT_MAX)
def read_inventories(providers: int, classes: int) -> sa.Select[Any]:
    """Inventories of the resource classes ``name...`` of the providers ``id...``, with what is allocated of them."""
    return (
        sa.select(
            INVENTORIES.c.resource_provider_id, CLASSES.c.name, INVENTORIES.c.resource_class_id,
            INVENTORIES.c.total, INVENTORIES.c.reserved, INVENTORIES.c.min_unit, INVENTORIES.c.max_unit,
            INVENTORIES.c.step_size, INVENTORIES.c.allocation_ratio, _USED.label("used"),
        )
        .select_from(sa.join(INVENTORIES, CLASSES, INVENTORIES.c.resource_class_id == CLASSES.c.id))
        .where(
            INVENTORIES.c.resource_provider_id.in_(_parameters("id", providers)),
            CLASSES.c.name.in_(_parameters("name", classes)),
        )
    )  # fmt: skip


#: Executed with one row for each consumer; the driver sends them in one statement.
INSERT_CONSUMERS = CONSUMERS.insert()

#: Executed with one row for each allocation; the driver sends them in one statement.
INSERT_ALLOCATIONS = ALLOCATIONS.insert()


@lru_cache(KEPT_MAX)
def increment_generations(count: int) -> sa.Update:
    """Increments the generations of the providers ``id...`` that are still ``generation...``, as they were read."""
    ids, generations = _parameters("id", count), _parameters("generation", count)
    update: sa.Update = (
        PROVIDERS.update()
        .where(
            PROVIDERS.c.id.in_(ids),
            sa.tuple_(PROVIDERS.c.id, PROVIDERS.c.generation).in_(map(sa.tuple_, ids, generations)),
        )
        .values(generation=PROVIDERS.c.generation + 1)
    )
    return update
