# SPDX-License-Identifier: Apache-2.0
"""Nova's own schema, created from its models in sqlite, with the rows that a test needs."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from nova import utils
from nova.db.api import models as api_models
from nova.db.main import models as main_models
from nova.objects import flavor, instance, instance_group, request_spec
from oslo_serialization import jsonutils

from shared_scheduler.sync.databases import CELL0, ApiDatabase, Cell, CellDatabase
from tests.support import empty_databases
from tests.support.plain_databases import api_database, cell_database

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def of_image(properties: dict[str, str]) -> dict[str, str]:
    """What Nova keeps of an image with these properties."""
    named = {name.replace("__", ":"): text for name, text in properties.items()}
    return dict(utils.get_system_metadata_from_image({"properties": {"os_type": "linux", **named}}))


class NovaDatabases:
    """An API database with one cell."""

    def __init__(self, directory: Path) -> None:
        (directory / "api.db").write_bytes(empty_databases.api_database())
        (directory / "cell1.db").write_bytes(empty_databases.cell_database())
        self.api_url = f"sqlite:///{directory / 'api.db'}"
        self.cell_url = f"sqlite:///{directory / 'cell1.db'}"
        self.api_engine = sa.create_engine(self.api_url)
        self.cell_engine = sa.create_engine(self.cell_url)
        self.cell_uuid = str(uuid.uuid4())
        self.now = NOW
        self.map_cell(CELL0, "cell0", "sqlite://", "none:///")
        self.map_cell(self.cell_uuid, "cell1", self.cell_url, "rabbit://mq/cell1")

    # -- what the product opens

    def api(self) -> ApiDatabase:
        return api_database(self.api_url, lambda: self.now)

    def cell(self) -> CellDatabase:
        return self.open_cell(Cell(self.cell_uuid, "cell1", self.cell_url, ""))

    def open_cell(self, cell: Cell) -> CellDatabase:
        return cell_database(cell, lambda: self.now)

    # -- what Nova writes

    def api_row(self, model: Any, **values: Any) -> int:
        with self.api_engine.begin() as connection:
            key = connection.execute(sa.insert(model).values(**values)).inserted_primary_key
        assert key is not None
        return int(key[0])

    def cell_row(self, model: Any, **values: Any) -> None:
        with self.cell_engine.begin() as connection:
            connection.execute(sa.insert(model).values(**values))

    def move_node(self, node: str, host: str) -> None:
        """Another nova-compute takes over this node (ironic)."""
        with self.cell_engine.begin() as connection:
            own = main_models.ComputeNode
            connection.execute(sa.update(own).where(own.uuid == node).values(host=host))

    def change(self, model: Any, host: str, **values: Any) -> None:
        with self.cell_engine.begin() as connection:
            connection.execute(sa.update(model).where(model.host == host).values(**values))

    def map_cell(self, own: str, name: str, database: str, transport: str, **more: Any) -> int:
        return self.api_row(api_models.CellMapping, uuid=own, name=name, database_connection=database,
                            transport_url=transport, **more)  # fmt: skip

    def map_server(self, cell: str | None, server: str = "") -> str:
        """A server that was mapped just now to the cell of this name; None: to none yet."""
        own = server or str(uuid.uuid4())
        number = None if cell is None else self._cell_number(cell)
        self.api_row(api_models.InstanceMapping, instance_uuid=own, cell_id=number, project_id="p",
                     updated_at=naive(self.now))  # fmt: skip
        return own

    def request_spec(
        self,
        server: str,
        extra_specs: dict[str, str] | None = None,
        hints: dict[str, list[str]] | None = None,
        group: str = "",
    ) -> None:
        """What nova-api stores of a request, as Nova's own objects write it."""
        spec = request_spec.RequestSpec(
            flavor=flavor.Flavor(name="small", extra_specs=extra_specs or {}),
            scheduler_hints=hints or {},
            instance_group=instance_group.InstanceGroup(uuid=group) if group else None,
        )
        text = jsonutils.dumps(spec.obj_to_primitive())
        self.api_row(api_models.RequestSpec, instance_uuid=server, spec=text)

    def build_request(self, server: str, project_id: str = "p", **image: str) -> None:
        """What nova-api stores of a new server, whose image has these properties (``__`` stands for ``:``)."""
        made = instance.Instance(uuid=server, project_id=project_id, system_metadata=of_image(image))
        text = jsonutils.dumps(made.obj_to_primitive())
        self.api_row(api_models.BuildRequest, instance_uuid=server, project_id=project_id, instance=text)

    def conductor_has_built(self, server: str, cell: str = "cell1") -> None:
        """The conductor has mapped a server to its cell and then deleted its build request."""
        mapping, build = api_models.InstanceMapping, api_models.BuildRequest
        mapped = sa.update(mapping).where(mapping.instance_uuid == server).values(cell_id=self._cell_number(cell))
        with self.api_engine.begin() as connection:
            connection.execute(mapped)
            connection.execute(sa.delete(build).where(build.instance_uuid == server))

    def built(self, server: str, project_id: str = "p", deleted: int = 0, **image: str) -> str:
        """The record of a server in the cell, with the properties of its image."""
        self.instance("cmp-1", deleted, server, project_id=project_id)
        for key, value in of_image(image).items():
            self.cell_row(main_models.InstanceSystemMetadata, instance_uuid=server, key=key, value=value,
                          deleted=deleted)  # fmt: skip
        return server

    def group(self, *servers: str) -> str:
        """A server group of these."""
        own = str(uuid.uuid4())
        number = self.api_row(api_models.InstanceGroup, uuid=own, name="group", project_id="p", user_id="u")
        for server in servers:
            self.api_row(api_models.InstanceGroupMember, instance_uuid=server, group_id=number)
        return own

    def delete_server(self, own: str) -> None:
        """What nova-api notes when a server is deleted; its mapping stays until it is purged."""
        model = api_models.InstanceMapping
        changed = sa.update(model).where(model.instance_uuid == own)
        with self.api_engine.begin() as connection:
            connection.execute(changed.values(queued_for_delete=True, updated_at=naive(self.now)))

    def _cell_number(self, name: str) -> int:
        mapping = api_models.CellMapping
        with self.api_engine.connect() as connection:
            found = connection.execute(sa.select(mapping.id).where(mapping.name == name))
            return int(found.scalar_one())

    def service(self, host: str, **values: Any) -> None:
        given = {
            "uuid": str(uuid.uuid4()), "host": host, "binary": "nova-compute", "topic": "compute",
            "report_count": 7, "disabled": False, "forced_down": False, "version": 70, "deleted": 0,
            "created_at": naive(self.now), "last_seen_up": naive(self.now),
        }  # fmt: skip
        self.cell_row(main_models.Service, **(given | values))

    def node(self, host: str, own: str = "", **values: Any) -> str:
        own = own or str(uuid.uuid4())
        given = {
            "uuid": own, "host": host, "hypervisor_hostname": f"{host}.example.org", "vcpus": 8,
            "memory_mb": 4096, "local_gb": 100, "vcpus_used": 1, "memory_mb_used": 512,
            "local_gb_used": 1, "hypervisor_type": "fake", "hypervisor_version": 1, "free_ram_mb": 3584,
            "free_disk_gb": 99, "cpu_info": "{}", "stats": '{"num_instances": "1"}',
            "updated_at": naive(self.now), "deleted": 0, "host_ip": "192.0.2.1",
        }  # fmt: skip
        self.cell_row(main_models.ComputeNode, **(given | values))
        return own

    def compute(self, host: str, own: str = "") -> str:
        """A service and its node."""
        self.service(host)
        return self.node(host, own)

    def instance(self, host: str | None, deleted: int = 0, own: str = "", **values: Any) -> str:
        own = own or str(uuid.uuid4())
        self.cell_row(main_models.Instance, uuid=own, host=host, deleted=deleted, **values)
        return own

    def change_instance(self, own: str, **values: Any) -> None:
        """Nova writes something of a server, now."""
        model = main_models.Instance
        with self.cell_engine.begin() as connection:
            changed = sa.update(model).where(model.uuid == own)
            connection.execute(changed.values(updated_at=naive(self.now), **values))

    def aggregate(self, name: str, hosts: tuple[str, ...], **metadata: str) -> str:
        own = str(uuid.uuid4())
        number = self.api_row(api_models.Aggregate, uuid=own, name=name)
        for host in hosts:
            self.api_row(api_models.AggregateHost, aggregate_id=number, host=host)
        for key, value in metadata.items():
            self.api_row(api_models.AggregateMetadata, aggregate_id=number, key=key, value=value)
        return own
