# SPDX-License-Identifier: Apache-2.0
"""Real Nova objects on real SQLite databases; one set of databases a test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nova.conf
import pytest
from nova import config, context, objects
from nova.db.api import api as api_database
from nova.db.main import api as main_database

from shared_scheduler.conf import opts
from tests.support.empty_databases import api_database as api_database_file
from tests.support.empty_databases import cell_database as cell_database_file

CONF = nova.conf.CONF

PROJECT = "6f70656e737461636b206e6f76612066"
USER = "fake-user-0001"


@pytest.fixture(scope="session", autouse=True)
def nova_ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration file that CONF was read from."""
    objects.register_all()
    CONF.clear()  # other tests may have parsed a command line, after which no option could be added
    opts.register(CONF)
    file = tmp_path_factory.mktemp("etc") / "nova.conf"
    file.write_text("[DEFAULT]\ntransport_url = fake:/\nhost = sched1\n")
    config.parse_args(["nova-scheduler"], default_config_files=[str(file)], configure_db=False)
    return file


@pytest.fixture(autouse=True)
def conf() -> Iterator[Any]:
    """CONF, put back after each test."""
    yield CONF
    for group in ("database", "api_database"):
        CONF.clear_override("connection", group=group)
        CONF.clear_override("sqlite_synchronous", group=group)
    for group in ("scheduler", "filter_scheduler", "shared_scheduler", "workarounds"):
        for name in CONF[group]:
            CONF.clear_override(name, group=group)
    for name in ("default_availability_zone", "host", "service_down_time"):
        CONF.clear_override(name)


@pytest.fixture
def databases(tmp_path: Path, conf: Any) -> None:
    """Empty API and cell databases that Nova's objects use, and one cell mapping beside cell0."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.sqlite" for name in ("api", "cell0", "cell1")}
    for name in urls:
        empty = api_database_file() if name == "api" else cell_database_file()
        (tmp_path / f"{name}.sqlite").write_bytes(empty)
    conf.set_override("connection", urls["api"], group="api_database")
    conf.set_override("connection", urls["cell0"], group="database")
    for group in ("api_database", "database"):  # no test survives the end of the machine
        conf.set_override("sqlite_synchronous", False, group=group)
    for manager in (api_database.context_manager, main_database.context_manager):
        manager._factory._started = False
        manager._factory._writer_engine = None
    context.CELL_CACHE.clear()
    context.CELLS = []
    api_database.configure(conf)
    main_database.configure(conf)
    add_cell("cell0", objects.CellMapping.CELL0_UUID, urls["cell0"])
    add_cell("cell1", str(uuid.uuid4()), urls["cell1"])


def admin() -> Any:
    return context.get_admin_context()


def add_cell(name: str, cell_uuid: str, url: str) -> Any:
    cell = objects.CellMapping(
        admin(),
        name=name,
        uuid=cell_uuid,
        transport_url="none:///",
        database_connection=url,
        disabled=False,
    )
    cell.create()
    return cell


def user_context() -> Any:
    return context.RequestContext(USER, PROJECT, request_id="req-7d3c", global_request_id="req-global")


def flavor(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "id": 1,
        "name": "m1.small",
        "flavorid": "1",
        "vcpus": 2,
        "memory_mb": 2048,
        "root_gb": 20,
        "ephemeral_gb": 0,
        "swap": 0,
        "extra_specs": {},
        "rxtx_factor": 1.0,
        "vcpu_weight": 0,
        "disabled": False,
        "is_public": True,
        "description": None,
    }
    return objects.Flavor(**{**values, **changes})


def request_spec(**changes: Any) -> Any:
    """A plain boot as the conductor sends it."""
    values: dict[str, Any] = {
        "project_id": PROJECT,
        "user_id": USER,
        "flavor": flavor(),
        "num_instances": 1,
        "image": objects.ImageMeta(id="155d900f-4e14-4e4c-a73d-069cbf4541e6", properties=objects.ImageMetaProps()),
        "numa_topology": None,
        "pci_requests": objects.InstancePCIRequests(requests=[]),
        "availability_zone": None,
        "ignore_hosts": None,
        "force_hosts": None,
        "force_nodes": None,
        "requested_destination": None,
        "retry": None,
        "limits": objects.SchedulerLimits(),
        "instance_group": None,
        "scheduler_hints": {},
        "is_bfv": False,
        "instance_uuid": str(uuid.uuid4()),
        "security_groups": objects.SecurityGroupList(objects=[]),
        "requested_resources": [],
        "request_level_params": objects.RequestLevelParams(),
        "requested_networks": objects.NetworkRequestList(objects=[]),
    }
    return objects.RequestSpec(**{**values, **changes})


class NoNodes:
    """Finds no compute node by name."""

    def get_compute_nodes_by_host_or_node(self, _context: Any, _host: Any, _node: Any, cell: Any = None) -> list[Any]:
        return []
