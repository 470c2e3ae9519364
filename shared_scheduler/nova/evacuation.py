# SPDX-License-Identifier: Apache-2.0
"""Is it an evacuation that asks?  ``select_destinations`` is not told, and the consumer's rule differs.

The conductor names hosts to avoid in moves only.  Of the moves, an evacuation alone leaves the source's
allocations with the instance; a migration has put them under its own uuid before it asks
(nova/conductor/tasks/migrate.py, ``replace_allocation_with_migration``), and allocations that the
instance holds then are a conflict.  Nova's record of the move tells the two apart.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from nova import context as nova_context
from nova import exception, objects
from nova.objects import fields
from oslo_db import exception as db_exception

LOG = logging.getLogger(__name__)

#: The status of an evacuation's record from the API until nova-compute begins with it.
SCHEDULED = "accepted"


def is_evacuation(context: Any, spec: Any, instance_uuids: Sequence[str] | None) -> bool:
    """Whether the one instance is evacuated from a host that the spec avoids.

    Yes also where the record cannot be read: as Nova, which never asks and always merges.
    """
    avoided = (spec.ignore_hosts if "ignore_hosts" in spec else None) or ()
    if not avoided or instance_uuids is None or len(instance_uuids) != 1:
        return False
    cell = _cell(spec)
    if cell is None:
        return True
    try:
        records = _evacuations(context, cell, instance_uuids[0])
    except (db_exception.DBError, exception.NovaException) as error:
        LOG.warning("Cannot learn whether %s is evacuated: %s", instance_uuids[0], error)
        return True
    return any(one.source_compute in avoided for one in records)


def _cell(spec: Any) -> Any:
    """The conductor keeps every move to a cell, or names the cell to prefer."""
    wanted = spec.requested_destination if "requested_destination" in spec else None
    return wanted.cell if wanted is not None and "cell" in wanted else None


def _evacuations(context: Any, cell: Any, instance: str) -> list[Any]:
    wanted = {
        "instance_uuid": instance,
        "migration_type": fields.MigrationType.EVACUATION,
        "status": SCHEDULED,
    }
    with nova_context.target_cell(context.elevated(), cell) as target:
        return list(objects.MigrationList.get_by_filters(target, wanted))
