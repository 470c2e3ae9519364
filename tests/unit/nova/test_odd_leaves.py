# SPDX-License-Identifier: Apache-2.0
"""Whatever a leaf of one host holds, all of Nova's filters run, and each request gets the other host or this one."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from nova import objects
from oslo_utils import timeutils

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.filters import NATIVE_FILTERS
from shared_scheduler.decision.request import Request
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.host_manager import HostManager
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.judge import NovaJudge
from shared_scheduler.nova.plugins import configure_decider
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.protocol.messages import Increment
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, host_of
from tests.unit.model.test_odd_leaves import CELL as NUMA_CELL
from tests.unit.model.test_odd_leaves import LEAVES, odd_leaves
from tests.unit.nova.conftest import NoNodes, flavor, request_spec, user_context

ODD, OTHER = "node-1", "node-2"


@pytest.fixture
def all_filters(databases: None, conf: Any) -> HostManager:
    conf.set_override("enabled_filters", list(NATIVE_FILTERS), group="filter_scheduler")
    return HostManager(AggregateCache())


def driver(manager: HostManager) -> SchedulerDriver:
    """Two equal hosts, judged by all filters of Nova."""
    states = HostStates(AggregateCache())
    made = SchedulerDriver(NovaJudge(manager, states))
    configure_decider(made.core.planner._decider, manager, states)
    leaves = {name.replace(".", "__"): value for name, value in LEAVES.items() if not name.startswith("rp.")}
    made.with_agents(ODD, OTHER, **leaves)
    record = {"disabled": False, "forced_down": False, "last_seen_up": timeutils.utcnow(with_timezone=True)}
    facts = tuple(ServiceFacts(host_of(node), record=record) for node in (ODD, OTHER))
    made.give(ev.ServicesRead(CELL, facts, True))
    return made


def requests() -> list[Request]:
    """Between them they look at every leaf."""
    cell = objects.InstanceNUMACell(id=0, cpuset=set(), pcpuset={0}, memory=512, cpu_policy="dedicated")
    cells = objects.InstanceNUMATopology(cells=[cell])
    device = objects.InstancePCIRequest(
        count=1, request_id=str(uuid.uuid4()), alias_name="vf", spec=[{"vendor_id": "8086"}]
    )
    devices = objects.InstancePCIRequests(requests=[device])
    image = objects.ImageMeta(id=str(uuid.uuid4()), properties=objects.ImageMetaProps(hw_architecture="x86_64"))
    cores = flavor(extra_specs={"capabilities:cpu_info:topology:cores": ">= 1"})
    specs = [
        request_spec(image=image),
        request_spec(flavor=cores),
        request_spec(scheduler_hints={"query": ['[">=", "$free_ram_mb", 1]']}),
        request_spec(numa_topology=cells),
        request_spec(pci_requests=devices),
        request_spec(numa_topology=cells, pci_requests=devices),
    ]
    made = (make_request(user_context(), spec, [str(uuid.uuid4())], 0, NoNodes()) for spec in specs)
    return [replace(one, claim=False) for one in made]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(odd_leaves())
@example({"pci.static.p1": 7})
@example({"pci.static.p1": {"vendor_id": ["8086"], "numa_node": "x"}})
@example({"pci.order": 7})
@example({"numa.static": [NUMA_CELL | {"socket": "x"}]})
@example({"numa.static": [NUMA_CELL | {"network_metadata": 7}]})
@example({"cn.metrics": "7"})
def test_no_request_fails(all_filters: HostManager, leaves: dict[str, Any]) -> None:
    at = driver(all_filters)
    at.hear(Increment(ODD, 1, 2, leaves))

    for asked in requests():
        [answer] = at.ask(asked)
        assert isinstance(answer, ef.Answer)
