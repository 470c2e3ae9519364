# SPDX-License-Identifier: Apache-2.0
"""The SQL of the write path, over Placement's own tables.

The tables bring their defaults with them: ``created_at`` and ``updated_at`` are set as Placement's own writes set them.
"""

from __future__ import annotations

import sqlalchemy as sa
from placement.db.sqlalchemy import models

PROVIDERS = models.ResourceProvider.__table__
CLASSES = models.ResourceClass.__table__
INVENTORIES = models.Inventory.__table__
ALLOCATIONS = models.Allocation.__table__
CONSUMERS = models.Consumer.__table__

#: Locks the providers ``uuids``.  All writers take them in the same order, so that they wait and do not deadlock.
LOCK_PROVIDERS = (
    sa.select(PROVIDERS.c.id, PROVIDERS.c.uuid, PROVIDERS.c.generation)
    .where(PROVIDERS.c.uuid.in_(sa.bindparam("uuids", expanding=True)))
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

#: Inventories of the resource classes ``names`` of the providers ``ids``, with what is allocated of them.
READ_INVENTORIES = (
    sa.select(
        INVENTORIES.c.resource_provider_id, CLASSES.c.name, INVENTORIES.c.resource_class_id,
        INVENTORIES.c.total, INVENTORIES.c.reserved, INVENTORIES.c.min_unit, INVENTORIES.c.max_unit,
        INVENTORIES.c.step_size, INVENTORIES.c.allocation_ratio, _USED.label("used"),
    )
    .select_from(sa.join(INVENTORIES, CLASSES, INVENTORIES.c.resource_class_id == CLASSES.c.id))
    .where(
        INVENTORIES.c.resource_provider_id.in_(sa.bindparam("ids", expanding=True)),
        CLASSES.c.name.in_(sa.bindparam("names", expanding=True)),
    )
)  # fmt: skip

#: Executed with one row for each consumer; the driver sends them in one statement.
INSERT_CONSUMERS = CONSUMERS.insert()

#: Executed with one row for each allocation; the driver sends them in one statement.
INSERT_ALLOCATIONS = ALLOCATIONS.insert()

#: Increments the generations of the providers ``ids`` that are still as read: ``(id, generation)`` in ``read``.
INCREMENT_GENERATIONS = (
    PROVIDERS.update()
    .where(
        PROVIDERS.c.id.in_(sa.bindparam("ids", expanding=True)),
        sa.tuple_(PROVIDERS.c.id, PROVIDERS.c.generation).in_(sa.bindparam("read", expanding=True)),
    )
    .values(generation=PROVIDERS.c.generation + 1)
)
