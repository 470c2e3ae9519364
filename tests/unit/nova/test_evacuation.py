# SPDX-License-Identifier: Apache-2.0
"""Only an evacuation may find allocations of its own server; any other move that does must fail."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from nova import context as nova_context
from nova import objects

from shared_scheduler.nova import request_spec as conversion
from tests.unit.nova.conftest import NoNodes, admin, request_spec, user_context

SOURCE = "cmp1"
INSTANCE = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def cell(databases: None) -> Any:
    found = objects.CellMappingList.get_all(admin())
    return next(one for one in found if one.name == "cell1")


def merges(cell: Any, instance: str = INSTANCE) -> bool:
    """Whether a move of ``instance`` away from the source goes over what it holds."""
    spec = request_spec(ignore_hosts=[SOURCE], requested_destination=objects.Destination(cell=cell))
    request = conversion.make_request(user_context(), spec, [instance], 0, NoNodes())
    return request.merge_with_existing


def record(cell: Any, kind: str, **changes: Any) -> None:
    """What Nova's API or conductor writes down of a move."""
    values: dict[str, Any] = {
        "source_compute": SOURCE,
        "source_node": SOURCE,
        "instance_uuid": INSTANCE,
        "status": "accepted",
        "migration_type": kind,
        "uuid": str(uuid.uuid4()),
    }
    with nova_context.target_cell(admin(), cell) as target:
        objects.Migration(target, **{**values, **changes}).create()


def test_an_evacuation_merges_with_the_allocations_of_its_server(cell: Any) -> None:
    record(cell, "evacuation")
    assert merges(cell)


@pytest.mark.parametrize("kind", ["migration", "resize", "live-migration"])
def test_a_migration_does_not(cell: Any, kind: str) -> None:
    record(cell, kind)
    assert not merges(cell)


@pytest.mark.parametrize(
    "changes",
    [{"status": "done"}, {"source_compute": "cmp7"}, {"instance_uuid": str(uuid.uuid4())}],
    ids=["over", "from another host", "of another server"],
)
def test_a_migration_after_an_evacuation_does_not(cell: Any, changes: dict[str, str]) -> None:
    record(cell, "evacuation", **changes)
    record(cell, "live-migration")
    assert not merges(cell)


def test_where_the_record_cannot_be_read_it_is_merged_as_nova_does(cell: Any, tmp_path: Any) -> None:
    cell.database_connection = f"sqlite:///{tmp_path}/no/such/directory/cell1.sqlite"
    cell.uuid = str(uuid.uuid4())
    assert merges(cell)
