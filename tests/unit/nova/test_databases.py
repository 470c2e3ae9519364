# SPDX-License-Identifier: Apache-2.0
"""The bulk reads over Nova's own engines."""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Any

import pytest
from nova import context, objects
from nova.db.main import api as main_database
from nova.db.main import models
from oslo_db.exception import CantStartEngineError
from oslo_utils import timeutils

from shared_scheduler.model.compute_node import IMAGE_COUNTS, leaves_from_compute_node
from shared_scheduler.nova.databases import NovaApiDatabase, NovaCellDatabase
from shared_scheduler.nova.instance_images import with_images
from shared_scheduler.nova.placement_transport import ReportClientTransport
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from shared_scheduler.sync import state_sync
from shared_scheduler.sync.databases import Cell, CellDatabase, DatabaseError
from shared_scheduler.sync.read_registry import COUNTERS
from shared_scheduler.sync.server_location import Locator
from shared_scheduler.sync.state_sync import StateSync
from tests.unit.nova.conftest import admin
from tests.unit.nova.test_request_filters import cell1

NODE = "11111111-0000-4000-8000-000000000001"


def test_a_heartbeat_is_old_or_new_by_the_clock_that_nova_writes_it_with(
    databases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a Nova whose clock is set, and a compute that has just been heard of
    heard_at = datetime.datetime(2021, 7, 1)
    monkeypatch.setattr(timeutils, "utcnow", lambda: heard_at)
    with context.target_cell(admin(), cell1()) as target:
        record = objects.Service(target, host="cmp1", binary="nova-compute", topic="compute", report_count=1)
        record.create()
        record.last_seen_up = timeutils.utcnow()
        record.save()
    [cell] = [each for each in NovaApiDatabase().cells() if each.schedulable]
    # then it is up, and is not any more when its time is over
    assert [each.up for each in NovaCellDatabase(cell).services()] == [True]
    monkeypatch.setattr(timeutils, "utcnow", lambda: heard_at + datetime.timedelta(seconds=61))
    assert [each.up for each in NovaCellDatabase(cell).services()] == [False]


def test_a_read_does_not_wait_for_threads_in_another_cell(databases: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a process in which one cell is the current one for all threads, as in Nova's own tests
    switched: list[str] = []
    target_cell = context.target_cell

    def switch(asking: Any, cell: Any) -> Any:
        switched.append(cell.uuid)
        return target_cell(asking, cell)

    monkeypatch.setattr(context, "target_cell", switch)

    assert NovaCellDatabase(schedulable()).node_hosts() == {}

    assert switched == []


def test_images_of_instances_are_read_with_the_nodes_where_a_weigher_counts_them(databases: None, conf: Any) -> None:
    # given a host with two servers of one image, and one that is deleted
    with context.target_cell(admin(), cell1()) as target:
        node = _node(target)
        kept = {"image_os_distro": "debian", "image_hw_qemu_guest_agent": "yes", "image_min_ram": "1"}
        servers = [_server(target, node, kept) for _ in range(3)]
        servers[0].destroy()
    [cell] = [each for each in NovaApiDatabase().cells() if each.schedulable]

    def images() -> dict[str, Any]:
        [row] = NovaCellDatabase(cell).nodes()
        return {name: n for name, n in leaves_from_compute_node(row).items() if name.startswith("image.")}

    # then they are not asked for
    assert images() == {}
    # unless a weigher wants them
    conf.set_override("image_props_weight_multiplier", 1.0, group="filter_scheduler")
    assert images() == {"image.os_distro=debian": 2, "image.hw_qemu_guest_agent=True": 2}


def test_a_server_is_found_on_its_host(databases: None) -> None:
    with context.target_cell(admin(), cell1()) as target:
        server = _server(target, _node(target), {})
    objects.InstanceMapping(admin(), instance_uuid=server.uuid, project_id="p", cell_mapping=cell1()).create()
    found = Locator(NovaApiDatabase(), NovaCellDatabase).locate(server.uuid)
    assert found == ServerLocation(ServerActivity.AT_REST, NODE)


def test_an_image_that_nova_rejects_does_not_prevent_the_read_of_nodes() -> None:
    # given a server whose image has a value of an earlier release
    node = {"host": "cmp1", "hypervisor_hostname": "node1"}
    values = {"1": ("hw_disk_bus", "punched cards"), "2": ("hw_architecture", "x86_64")}
    found = [
        {"host": "cmp1", "node": "node1", "uuid": uuid, "key": f"image_{key}", "value": value}
        for uuid, (key, value) in values.items()
    ]

    [row] = with_images([node], found)

    assert row[IMAGE_COUNTS] == {"image.hw_architecture=x86_64": 1}


def _node(target: Any) -> Any:
    made = objects.ComputeNode(
        target, uuid=NODE, host="cmp1", hypervisor_hostname="node1", vcpus=1, memory_mb=1, local_gb=1,
        vcpus_used=0, memory_mb_used=0, local_gb_used=0, hypervisor_type="fake", hypervisor_version=1,
        cpu_info="{}",
    )  # fmt: skip
    made.create()
    return made


def _server(target: Any, node: Any, system_metadata: dict[str, str]) -> Any:
    made = objects.Instance(
        target, uuid=str(uuid.uuid4()), host="cmp1", node="node1", compute_id=node.id, project_id="p", user_id="u",
        system_metadata=system_metadata,
    )  # fmt: skip
    made.create()
    return made


def schedulable() -> Cell:
    [found] = [each for each in NovaApiDatabase().cells() if each.schedulable]
    return found


def test_a_read_that_began_before_a_cell_moved_does_not_bring_its_old_database_back(
    databases: None, tmp_path: Path
) -> None:
    # given a cell that is read, and then moves, as a reload finds it
    before = NovaCellDatabase(schedulable())
    assert before.node_hosts() == {}
    mapping = cell1()
    mapping.database_connection = f"sqlite:///{tmp_path}/moved.sqlite"
    mapping.save()
    context.CELL_CACHE.clear()
    with context.target_cell(admin(), mapping) as target:
        models.BASE.metadata.create_all(main_database.get_engine(context=target))
        _node(target)
    after = NovaCellDatabase(schedulable())
    before.close()
    context.CELL_CACHE.clear()  # Nova's Service.reset

    # when such a read comes to its next query
    with pytest.raises(DatabaseError, match="cell1"):
        before.node_hosts()

    assert after.node_hosts().keys() == {NODE}


def test_a_cell_that_is_opened_again_is_read_on_new_connections(
    databases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a cell that is read, and counts as hanging
    monkeypatch.setattr(state_sync, "OPENED_AGAIN_AFTER_S", 0.0)
    sync = StateSync(
        NovaApiDatabase(), NovaCellDatabase, PlacementClient(ReportClientTransport()), lambda event: None,
        lambda node: True, nodes_max=0, sweep=lambda: iter(()), log_new=lambda: None,
    )  # fmt: skip
    sync.use((schedulable(),))
    [before] = sync.databases()
    pool = pool_of(before)
    # when it is opened again
    sync.revalidator.read(COUNTERS)
    # then no connection is used that Nova keeps since before
    [after] = sync.databases()
    assert after is not before
    assert pool_of(after) is not pool


def pool_of(database: CellDatabase) -> Any:
    """The connections on which it is read now."""
    assert database.node_hosts() == {}
    with context.target_cell(admin(), cell1()) as target:
        return main_database.get_engine(context=target).pool


def test_a_connection_that_is_not_set_names_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_connection(*_: object) -> None:
        raise CantStartEngineError("No sql_connection parameter is established")

    monkeypatch.setattr(objects.CellMappingList, "get_all", without_connection)
    with pytest.raises(DatabaseError, match=r"\[api_database\] connection"):
        NovaApiDatabase().cells()
