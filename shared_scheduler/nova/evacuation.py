# SPDX-License-Identifier: Apache-2.0
"""Whether a request is an evacuation.  ``select_destinations`` is not told, and the consumer's rule differs.

The conductor names hosts to avoid only in moves.  Evacuation is the only move that leaves the source's
allocations with the instance.  A migration moves them to its own uuid before it asks for a host
(nova/conductor/tasks/migrate.py, ``replace_allocation_with_migration``), so allocations of the instance
are a conflict then.  Nova's migration record distinguishes the two.
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

#: The status of an evacuation's record from the API call until nova-compute starts the evacuation.
SCHEDULED = "accepted"


def is_evacuation(context: Any, spec: Any, instance_uuids: Sequence[str] | None) -> bool | None:
    """Whether the instance is evacuated from a host that the spec avoids; None if the record cannot be read."""
    avoided = (spec.ignore_hosts if "ignore_hosts" in spec else None) or ()
    if not avoided or instance_uuids is None or len(instance_uuids) != 1:
        return False
    cell = _cell(spec)
    if cell is None:
        return None
    try:
        records = _evacuations(context, cell, instance_uuids[0])
    except (db_exception.DBError, exception.NovaException) as error:
        LOG.warning("Cannot read whether %s is being evacuated; assuming that it is: %s", instance_uuids[0], error)
        return None
    return any(one.source_compute in avoided for one in records)


def _cell(spec: Any) -> Any:
    """The cell of a move: the one that it is restricted to, or the preferred one."""
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
