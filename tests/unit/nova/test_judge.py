# SPDX-License-Identifier: Apache-2.0
"""Nova's own filter objects have the last word on the chosen host."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest
from nova import objects
from nova.scheduler import filters

from shared_scheduler.core.events import Candidate
from shared_scheduler.core.planner import Approval
from shared_scheduler.nova import judge
from shared_scheduler.nova.host_manager import HostManager
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.plugins import NovaFilters
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.novalib import topology
from shared_scheduler.protocol.messages import Reason, Usage
from tests.unit.nova.conftest import NoNodes, flavor, request_spec, user_context
from tests.unit.nova.test_host_state import INSTANCE, World

NIC_A, NIC_B = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.fixture
def world(databases: None) -> World:
    return World()


class Bench:
    def __init__(self, world: World) -> None:
        self.world = world
        self.manager = HostManager(world.aggregates)
        self.judge = judge.NovaJudge(self.manager, HostStates(world.aggregates))

    def verify(
        self,
        spec: Any,
        uuids: tuple[str, ...] = (str(uuid.uuid4()),),
        index: int = 0,
        candidates: tuple[Candidate, ...] | None = None,
        **changes: Any,
    ) -> Approval | Reason:
        request = replace(make_request(user_context(), spec, uuids, 0, NoNodes()), **changes)
        node = self.world.node.uuid
        if candidates is None:
            candidates = (Candidate({node: {"VCPU": 2}}, {"": (node,)}),)
        return self.judge.verify(request, index, self.world.table.view(node), candidates)


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


def test_a_good_host_is_approved_with_its_first_candidate(bench: Bench) -> None:
    verdict = bench.verify(request_spec())

    assert isinstance(verdict, Approval)
    assert verdict.candidate is not None
    assert (verdict.topology, verdict.limits, verdict.take) == ("", {}, None)


def test_the_filter_that_refuses_is_named(bench: Bench) -> None:
    spec = request_spec(flavor=flavor(extra_specs={"capabilities:hypervisor_type": "VMware"}))

    assert bench.verify(spec) == Reason(judge.FILTERED, {"filter": "ComputeCapabilitiesFilter"})


def test_forced_hosts_are_not_filtered_unless_a_check_is_wanted(bench: Bench) -> None:
    def forced(**hints: Any) -> Any:
        return request_spec(
            flavor=flavor(extra_specs={"capabilities:hypervisor_type": "VMware"}),
            scheduler_hints=hints,
        )

    assert isinstance(bench.verify(forced(), force_hosts=("cmp1",)), Approval)
    verdict = bench.verify(forced(_nova_check_type=["rebuild"]), force_hosts=("cmp1",), candidates=())
    assert isinstance(verdict, Approval)  # rebuild: only filters that run on rebuild
    refused = bench.verify(forced(_nova_check_type=["other"]), force_hosts=("cmp1",), check_type="other")
    assert isinstance(refused, Reason)


def test_group_members_of_the_same_request_count(bench: Bench) -> None:
    # the first server of the request is on this host already, the second must not follow
    second = str(uuid.uuid4())
    spec = request_spec(
        instance_group=objects.InstanceGroup(uuid=str(uuid.uuid4()), policy="anti-affinity", members=[], hosts=[])
    )
    group = replace(
        make_request(user_context(), spec, [INSTANCE, second], 0, NoNodes()).group,  # type: ignore[type-var]
        members=frozenset({INSTANCE}),
        hosts=frozenset({"cmp1"}),
    )

    assert bench.verify(spec, (INSTANCE, second), 1, group=group) == Reason(
        judge.FILTERED, {"filter": "ServerGroupAntiAffinityFilter"}
    )
    # the server itself may stay where it is (resize to the same host)
    assert isinstance(bench.verify(spec, (INSTANCE, second), 0, group=group), Approval)


def test_a_plugin_that_breaks_refuses_the_host_not_the_request(bench: Bench) -> None:
    class Breaks(filters.BaseHostFilter):
        def host_passes(self, host_state: Any, spec: Any) -> bool:
            raise AttributeError("no such thing")

    bench.manager.enabled_filters = [Breaks()]

    verdict = bench.verify(request_spec())

    assert isinstance(verdict, Reason)
    assert verdict.code == judge.FILTER_FAILED
    assert verdict.detail["filter"] == "Breaks"


def test_a_host_on_which_a_filter_always_breaks_does_not_flood_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A compromised host that looks best is tried by every request."""

    class Breaks(filters.BaseHostFilter):
        def host_passes(self, host_state: Any, spec: Any) -> bool:
            raise AttributeError("no such thing")

    bench.manager.enabled_filters = [Breaks()]

    with caplog.at_level("ERROR"):
        for _ in range(20):
            bench.verify(request_spec())

    (record,) = caplog.records
    assert "Breaks failed on host" in record.getMessage() and record.exc_info


def test_a_filter_that_stops_the_filtering_is_a_refusal(bench: Bench) -> None:
    class Stops(filters.BaseHostFilter):
        def filter_all(self, hosts: Any, spec: Any) -> None:
            return None

    bench.manager.enabled_filters = [Stops()]

    assert bench.verify(request_spec()) == Reason(judge.FILTERED, {"filter": "Stops"})


class TestNuma:
    @pytest.fixture(autouse=True)
    def with_numa(self, conf: Any) -> None:
        conf.set_override("enabled_filters", ["NUMATopologyFilter"], group="filter_scheduler")

    @staticmethod
    def pinned(cpus: int) -> Any:
        cell = objects.InstanceNUMACell(
            id=0, cpuset=set(), pcpuset=set(range(cpus)), memory=1024, cpu_policy="dedicated"
        )
        return request_spec(
            flavor=flavor(vcpus=cpus, extra_specs={"hw:cpu_policy": "dedicated"}),
            numa_topology=objects.InstanceNUMATopology(cells=[cell]),
        )

    def test_a_fit_pins_cpus_in_our_row_and_in_the_claim(self, world: World) -> None:
        bench = Bench(world)

        verdict = bench.verify(self.pinned(2))

        assert isinstance(verdict, Approval)
        assert verdict.limits["numa_topology"].cpu_allocation_ratio == 4.0
        assert verdict.take is not None
        [(cell, take)] = verdict.take.cells.items()
        assert (cell, take.pinned.bit_count()) == ("numa.0", 2)
        asked = topology.parse(verdict.topology)
        assert asked.numa.cells[0].pcpuset == {0, 1}
        assert json.loads(verdict.topology)["limits"] is not None

    def test_the_fit_subtracts_our_other_claims(self, world: World) -> None:
        bench = Bench(world)
        first = bench.verify(self.pinned(2))
        assert isinstance(first, Approval)
        world.table.assume(world.node.uuid, "claim-1", str(uuid.uuid4()), {}, Usage(), first.take)

        assert bench.verify(self.pinned(2)) == Reason(judge.FILTERED, {"filter": "NUMATopologyFilter"})
        assert isinstance(bench.verify(self.pinned(1)), Approval)


class TestPci:
    @pytest.fixture(autouse=True)
    def with_pci(self, conf: Any) -> None:
        conf.set_override("enabled_filters", ["PciPassthroughFilter"], group="filter_scheduler")

    @staticmethod
    def asking(count: int) -> Any:
        asked = objects.InstancePCIRequest(
            count=count,
            request_id=str(uuid.uuid4()),
            alias_name="vf",
            spec=[{"vendor_id": "8086", "product_id": "1515"}],
        )
        return request_spec(pci_requests=objects.InstancePCIRequests(requests=[asked]))

    def test_devices_that_are_there_are_taken(self, world: World) -> None:
        verdict = Bench(world).verify(self.asking(2))

        assert isinstance(verdict, Approval)
        assert verdict.take is not None
        assert sorted(verdict.take.devices.values()) == [2]

    def test_leaves_that_cannot_be_read_refuse_the_host_not_the_request(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def odd(*_: Any) -> None:
            raise AttributeError("'int' object has no attribute 'keys'")

        monkeypatch.setattr(judge, "take_of", odd)

        verdict = Bench(world).verify(self.asking(2))

        assert isinstance(verdict, Reason)
        assert verdict.code == judge.UNREADABLE

    def test_too_many_devices_are_refused(self, world: World) -> None:
        assert Bench(world).verify(self.asking(4)) == Reason(judge.FILTERED, {"filter": "PciPassthroughFilter"})

    def test_candidates_that_do_not_fit_are_passed_over(self, world: World, bench: Bench) -> None:
        class OnlyB(filters.BaseHostFilter, filters.CandidateFilterMixin):
            def host_passes(self, host_state: Any, spec: Any) -> bool:
                return bool(self.filter_candidates(host_state, lambda candidate: NIC_B in candidate["allocations"]))

        bench.manager.enabled_filters = [OnlyB()]
        good = Candidate({NIC_B: {"VF": 1}}, {"1": (NIC_B,)})
        bad = Candidate({NIC_A: {"VF": 1}}, {"1": (NIC_A,)})

        verdict = bench.verify(request_spec(), candidates=(bad, good))

        assert isinstance(verdict, Approval)
        assert verdict.candidate is good
        assert bench.verify(request_spec(), candidates=(bad,)) == Reason(judge.FILTERED, {"filter": "OnlyB"})


class TestSeveralAtOnce:
    """``NovaFilters``: nova-scheduler's way, for the few hosts that are left."""

    @staticmethod
    def passing(world: World, spec: Any) -> int:
        request = make_request(user_context(), spec, [str(uuid.uuid4())], 0, NoNodes())
        states = HostStates(world.aggregates)
        views = [world.table.view(world.node.uuid)]
        return len(NovaFilters(HostManager(world.aggregates), states).passing(request, 0, views))

    def test_the_hosts_that_pass_are_left(self, world: World) -> None:
        refused = request_spec(flavor=flavor(extra_specs={"capabilities:hypervisor_type": "VMware"}))
        assert self.passing(world, request_spec()) == 1
        assert self.passing(world, refused) == 0

    def test_cells_are_fitted(self, world: World, conf: Any) -> None:
        conf.set_override("enabled_filters", ["NUMATopologyFilter"], group="filter_scheduler")
        assert self.passing(world, TestNuma.pinned(2)) == 1
        assert self.passing(world, TestNuma.pinned(40)) == 0

    def test_a_filter_that_breaks_leaves_it_to_the_judge(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        def breaks(*_: Any) -> bool:
            raise RuntimeError("the rack service is away")

        monkeypatch.setattr("nova.scheduler.filters.compute_filter.ComputeFilter.host_passes", breaks)
        assert self.passing(world, request_spec()) == 1
