# SPDX-License-Identifier: Apache-2.0
"""A host reports NUMA cells and devices that Nova would arrange for hours, while the scheduler decides nothing else.

Nova tries the cells of a host in each order, and copies all devices for each of them, until a guest fits.
"""

from __future__ import annotations

import copy
import uuid
from typing import Any

import pytest
from nova import objects
from nova.pci.stats import PciDeviceStats
from nova.scheduler.filters import numa_topology_filter

from shared_scheduler.core.planner import Approval
from shared_scheduler.model.leaf_validation import find_invalid_leaf
from shared_scheduler.model.topology import bitmap, cpus_of
from shared_scheduler.nova import judge
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.plugins import NovaFilters
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.novalib import topology
from shared_scheduler.protocol.messages import Leaf, Reason
from tests.unit.nova.conftest import NoNodes, conf, databases, nova_ready, request_spec, user_context
from tests.unit.nova.test_judge import Bench, World

__all__ = ["conf", "databases", "nova_ready"]


def cells(count: int) -> dict[str, Leaf]:
    """The leaves of a host with so many NUMA cells of two CPUs."""
    static: list[Leaf] = [
        {
            "id": number, "socket": None, "cpuset": [2 * number, 2 * number + 1], "pcpuset": [], "siblings": [],
            "memory": 4096, "mempages": [[4, 2**20, 0]], "network_metadata": {"physnets": [], "tunneled": False},
        } for number in range(count)
    ]  # fmt: skip
    return {"numa.static": static, **{f"numa.{number}": [0, 0, "0", {}] for number in range(count)}}


def devices(count: int, cell: int = 999) -> dict[str, Leaf]:
    """The leaves of so many pools with one device each, far away from every cell or beside one."""
    found: dict[str, Leaf] = {}
    for number in range(count):
        key = {"vendor_id": "15b3", "product_id": "101e", "numa_node": cell, "dev_type": "type-VF", "n": str(number)}
        found |= {f"pci.static.{number:08x}": dict[str, Leaf](key), f"pci.{number:08x}": 1}
    return found


def guest(count: int, devices_asked: int = 0, last_mb: int = 2**20) -> Any:
    """A request for a server with so many cells, whose last one is too large for each cell of a host."""
    asked = [objects.InstanceNUMACell(id=n, cpuset={n}, pcpuset=set(), memory=128) for n in range(count)]
    asked[-1].memory = last_mb
    device = objects.InstancePCIRequest(
        count=1, alias_name="vf", spec=[{"vendor_id": "15b3"}], request_id=str(uuid.uuid4()), numa_policy="required"
    )
    return request_spec(
        numa_topology=objects.InstanceNUMATopology(cells=asked),
        pci_requests=objects.InstancePCIRequests(requests=[device] * devices_asked),
    )


@pytest.fixture
def asked_of_nova(databases: None, conf: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The hosts that Nova's filter was asked about, which refuses them at once."""
    found: list[Any] = []
    conf.set_override("enabled_filters", ["NUMATopologyFilter"], group="filter_scheduler")
    monkeypatch.setattr(
        numa_topology_filter.NUMATopologyFilter, "filter_all", lambda _self, states, _spec: found.extend(states) or []
    )
    return found


class Host:
    """A host whose agent reports other leaves each time, and the judge of the scheduler."""

    def __init__(self) -> None:
        self.world = World()
        self.bench = Bench(self.world)
        self._own = dict(self.world.table.view(self.world.node.uuid).leaves)
        self._sequence = 0

    def says(self, leaves: dict[str, Leaf]) -> Host:
        self._sequence += 1
        self.world.table.load(self.world.node.uuid, self._own | leaves, {}, {}, epoch=1, sequence=self._sequence)
        return self


#: NUMA cells of the host and of the guest, and pools of devices; what would take hours, and what there is
ENDLESS = ((64, 4, 0), (20, 6, 0), (64, 4, 20))
USUAL = ((2, 2, 500), (8, 8, 0), (8, 8, 50), (8, 4, 50), (16, 2, 400), (64, 3, 0), (64, 1, 1000))


def test_nova_is_not_asked_about_endless_arrangements(asked_of_nova: list[Any]) -> None:
    host = Host()
    for of_host, of_guest, pools in ENDLESS:
        host.says(cells(of_host) | devices(pools))
        found = host.bench.verify(guest(of_guest, devices_asked=min(pools, 1)))

        asked = {"host_cells": of_host, "asked_cells": of_guest}
        assert found == Reason(judge.TOO_MANY_ARRANGEMENTS, dict[str, Leaf](asked))
        assert asked_of_nova == []


def test_nova_is_asked_about_hosts_that_there_are(asked_of_nova: list[Any]) -> None:
    host = Host()
    for of_host, of_guest, pools in USUAL:
        host.says(cells(of_host) | devices(pools))
        found = host.bench.verify(guest(of_guest, devices_asked=min(pools, 1)))

        assert found == Reason(judge.FILTERED, {"filter": "NUMATopologyFilter"})
    assert len(asked_of_nova) == len(USUAL)


@pytest.fixture
def counted(databases: None, conf: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arrangements for which Nova compared devices; its NUMATopologyFilter is the only filter."""
    found: list[Any] = []
    conf.set_override("enabled_filters", ["NUMATopologyFilter"], group="filter_scheduler")
    apply_requests = PciDeviceStats.apply_requests

    def count(self: Any, *given: Any) -> Any:
        found.append(given)
        return apply_requests(self, *given)

    monkeypatch.setattr(PciDeviceStats, "apply_requests", count)
    return found


def test_a_guest_of_many_cells_gets_a_device_that_fits_at_once(counted: list[Any]) -> None:
    host = Host().says(cells(8) | devices(20, cell=3))

    assert isinstance(host.bench.verify(guest(8, devices_asked=1, last_mb=128)), Approval)


def test_nova_gives_up_to_compare_devices_in_endless_arrangements(
    counted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "ARRANGEMENTS_MAX", 50_000)  # a million take seconds
    host = Host().says(cells(8) | devices(20))

    for _ in range(2):
        counted.clear()
        found = host.bench.verify(guest(8, devices_asked=1, last_mb=128))

        assert found == Reason(judge.TOO_MANY_ARRANGEMENTS, {"host_cells": 8, "asked_cells": 8})
        assert 0 < len(counted) * 20 * topology.POOL_COST <= topology.ARRANGEMENTS_MAX


def test_a_host_whose_devices_were_all_compared_is_refused_by_its_filter(counted: list[Any]) -> None:
    host = Host().says(cells(2) | devices(20))

    found = host.bench.verify(guest(2, devices_asked=1, last_mb=128))
    assert found == Reason(judge.FILTERED, {"filter": "NUMATopologyFilter"})


def test_nova_is_not_asked_about_all_hosts_together_either(asked_of_nova: list[Any]) -> None:
    host = Host().says(cells(64))
    view = host.world.table.view(host.world.node.uuid)
    filters = NovaFilters(host.bench.manager, HostStates(host.world.aggregates))
    wanted = make_request(user_context(), guest(4), (str(uuid.uuid4()),), 0, NoNodes())

    assert filters.passing(wanted, 0, [view]) == []
    assert asked_of_nova == []


def test_a_node_has_as_many_cells_and_cpus_as_real_ones() -> None:
    assert find_invalid_leaf(cells(64), dict) == ""
    assert find_invalid_leaf(cells(65), dict) == "numa.static"
    assert find_invalid_leaf({"numa.0": [0, 0, "f" * 2048, {}]}, dict) == ""
    assert find_invalid_leaf({"numa.0": [0, 0, "f" * 2049, {}]}, dict) == "numa.0"


def test_a_copy_for_an_arrangement_has_only_the_pools_of_its_own() -> None:
    stats = topology.pci_stats(cells(2) | devices(3))

    found = copy.deepcopy(stats)
    found.pools[0]["count"] = 0

    assert [pool["count"] for pool in stats.pools] == [1, 1, 1]
    assert found.numa_topology is stats.numa_topology


@pytest.mark.parametrize("cpus", [set(), {0}, {0, 5}, {8191}, set(range(64))], ids=len)
def test_cpus_are_read_from_their_bitmap(cpus: set[int]) -> None:
    assert cpus_of(bitmap(cpus)) == cpus
