# SPDX-License-Identifier: Apache-2.0
"""A host says of its own node what would concern others if it was believed.  Each message is valid, and of the node
whose keys the host has."""

from __future__ import annotations

import json
from typing import cast

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Hello, Increment, Leaf, Role
from shared_scheduler.service import inspection
from shared_scheduler.service.engine import Engine
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, of_kind, only_claim, request, snapshot
from tests.unit.service.test_metrics import Inspected

EVIL, OTHER = "node-1", "node-2"
DISK_OF_ALL: dict[str, Leaf] = {
    "name": "shared-disk", "parent": None, "generation": 1, "inventories": {"DISK_GB": [10**9, 0, 1, 10**9, 1, 1.0]},
    "traits": ["MISC_SHARES_VIA_AGGREGATE"], "aggregates": ["aggregate"],
}  # fmt: skip
#: what the host says of its node; all of it is stored, and shown to operators
LIES: dict[str, dict[str, Leaf]] = {
    "it has the name of the other host": {"cn__host": "host-2", "cn__hypervisor_hostname": "host-2"},
    "it has the uuid of the other node": {"cn__uuid": OTHER},
    "it shares a disk with all": {"rp__disk": DISK_OF_ALL},
    "its providers are parents of one another": {
        "rp__a": DISK_OF_ALL | {"parent": "b"}, "rp__b": DISK_OF_ALL | {"parent": "a"},
    },
    "its numbers are the largest and the smallest": {
        "cn__free_disk_gb": 2**40 - 1, "cn__vcpus": 2**40 - 1, "cn__vcpus_used": -(2**40) + 1,
        "stats__num_instances": -(2**40) + 1, "stats__io_workload": "-99999999999", "cn__cpu_allocation_ratio": 1e-300,
    },
    "its ratios are absurd": {"cn__cpu_allocation_ratio": 1e12, "cn__ram_allocation_ratio": -1e12},
    "its statistics are those that requests name": {"stats__num_proj_project": 10**12, "stats__arch": "x86_64"},
    "it is not ready, and counts no groups": {"agent__ready": False, "agent__groups": False, "agent__mode": "written"},
}  # fmt: skip


def cloud_with(lie: dict[str, Leaf]) -> SchedulerDriver:
    driver = SchedulerDriver().with_agents(EVIL, OTHER)
    driver.hear(snapshot(EVIL, 2, **lie))
    return driver


def shown(driver: SchedulerDriver, node: str) -> str:
    table = driver.table
    known = [table.describe(node), table.freshness(node).value, table.outstanding(node)]
    return json.dumps(known, default=repr, sort_keys=True)


def chosen(driver: SchedulerDriver, asked: Request) -> list[str]:
    return [claim.node for claim in claims_in(driver.ask(asked))]


@pytest.mark.parametrize("lie", LIES)
def test_the_row_of_the_other_host_is_as_before(lie: str) -> None:
    before = shown(SchedulerDriver().with_agents(EVIL, OTHER), OTHER)

    assert shown(cloud_with(LIES[lie]), OTHER) == before


@pytest.mark.parametrize("lie", LIES)
def test_a_request_for_the_other_host_is_claimed_there(lie: str) -> None:
    assert chosen(cloud_with(LIES[lie]), request(force_hosts=("host-2",))) == [OTHER]


@pytest.mark.parametrize("lie", LIES)
def test_a_server_of_the_other_host_takes_resources_there_only(lie: str) -> None:
    driver = cloud_with(LIES[lie])
    claim = only_claim(driver.ask(request(ignore_hosts=frozenset({"host-1"}))))

    [write] = of_kind(ef.WriteAllocation, driver.accept(claim))

    assert set(write.allocations) == {OTHER}


@pytest.mark.parametrize("lie", LIES)
def test_status_can_be_shown(lie: str) -> None:
    driver = cloud_with(LIES[lie])

    told = inspection.nodes(cast(Engine, Inspected(driver)))

    assert {row["node"]: row["host"] for row in told} == {EVIL: "host-1", OTHER: "host-2"}


def test_hellos_with_another_release_each_time_are_one_release() -> None:
    driver = SchedulerDriver().with_agents(EVIL, OTHER)
    for number in range(100):
        driver.hear(Hello(Role.AGENT, "ssched.agent.host-1", 1, EVIL, "host-1", release=f"1.0.{number}"))
        driver.hear(Increment(EVIL, 1, 2 + number, {"agent.release": f"1.0.{number}"}))

    told = inspection.releases(cast(Engine, Inspected(driver)))["agents"]

    assert sum(told.values()) == 2 and len(told) == 2
