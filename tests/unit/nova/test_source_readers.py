# SPDX-License-Identifier: Apache-2.0
"""The owners of allocations, as in Nova's own ``nova-manage placement audit``, and the sources to read."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from nova import context, objects

from shared_scheduler.daemon.admin import AdminError
from shared_scheduler.nova import source_readers
from tests.unit.nova.conftest import PROJECT, USER, admin
from tests.unit.nova.test_request_filters import cell1


def migration(status: str) -> str:
    """The uuid of a migration with this status."""
    with context.target_cell(admin(), cell1()) as target:
        made = objects.Migration(
            target, uuid=str(uuid.uuid4()), instance_uuid=instance(target), status=status,
            migration_type="migration", source_compute="cmp1", source_node="cmp1",
            dest_compute="cmp2",
        )  # fmt: skip
        made.create()
        return str(made.uuid)


def instance(target: context.RequestContext) -> str:
    made = objects.Instance(target, uuid=str(uuid.uuid4()), project_id=PROJECT, user_id=USER)
    made.create()
    return str(made.uuid)


def test_an_instance_owns_its_allocations_until_it_is_deleted(databases: None) -> None:
    with context.target_cell(admin(), cell1()) as target:
        kept, deleted = instance(target), instance(target)
        objects.Instance.get_by_uuid(target, deleted).destroy()

    assert kept in source_readers.owners()
    assert deleted not in source_readers.owners()


@pytest.mark.parametrize("status", ["pre-migrating", "post-migrating", "finished", "running"])
def test_a_migration_under_way_owns_the_allocations_of_its_source(databases: None, status: str) -> None:
    assert migration(status) in source_readers.owners()


@pytest.mark.parametrize("status", ["confirmed", "reverted", "error", "failed", "completed", "done"])
def test_a_migration_that_is_over_owns_nothing(databases: None, status: str) -> None:
    assert migration(status) not in source_readers.owners()


def test_sockets_that_are_turned_off_are_not_searched_in_the_working_directory(conf: Any) -> None:
    conf.set_override("admin_socket_dir", "", group="shared_scheduler")

    with pytest.raises(AdminError, match="admin_socket_dir is empty"):
        source_readers.admin_socket_dir()
