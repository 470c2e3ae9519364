# SPDX-License-Identifier: Apache-2.0
"""The database schemas that the write path knows.

An unknown migration may have changed the meaning of a table, and an unknown column may need a value: in both cases the
write path is not used.
"""

from __future__ import annotations

import sqlalchemy as sa
from placement.db.sqlalchemy import migration

#: Migrations of Placement (``placement/db/sqlalchemy/alembic/versions``): the last two differ in indexes only.
#: None: a database that was created from the models, without migrations, as Placement's tests do it.
REVISIONS = frozenset({"422ece571366", "a082b8bb98d0", None})

_ROW = frozenset({"created_at", "updated_at", "id"})
#: All columns of the tables that the write path uses.
COLUMNS = {
    "resource_providers": _ROW | {"uuid", "name", "generation", "root_provider_id", "parent_provider_id"},
    "resource_classes": _ROW | {"name"},
    "inventories": _ROW | {
        "resource_provider_id", "resource_class_id", "total", "reserved", "min_unit", "max_unit", "step_size",
        "allocation_ratio",
    },
    "allocations": _ROW | {"resource_provider_id", "consumer_id", "resource_class_id", "used"},
    "consumers": _ROW | {"uuid", "project_id", "user_id", "generation", "consumer_type_id"},
}  # fmt: skip


def difference(engine: sa.Engine) -> str | None:
    """What is unknown about the schema of this database; nothing if all is known."""
    revision = migration.version(engine=engine)
    if revision not in REVISIONS:
        return f"migration {revision}"
    inspector = sa.inspect(engine)
    for table, known in COLUMNS.items():
        found = {column["name"] for column in inspector.get_columns(table)}
        if found != known:
            return f"columns of {table}: {', '.join(sorted(found ^ known))}"
    return None
