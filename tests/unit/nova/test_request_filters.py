# SPDX-License-Identifier: Apache-2.0
"""Our four replacements change a RequestSpec as Nova's do, on the same databases."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from nova import context, exception, objects
from nova.db.main import api as database
from nova.scheduler import request_filter

from shared_scheduler.nova import versions as versions_module
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.request_filters import RequestFilters
from shared_scheduler.nova.versions import YES_KEPT_S, MinimumComputeVersion
from tests.unit.nova.conftest import PROJECT, admin, flavor, request_spec, user_context


def add_aggregate(name: str, *hosts: str, **metadata: str) -> Any:
    made = objects.Aggregate(admin(), name=name)
    made.create()
    if metadata:
        made.update_metadata({key.replace("__", ":"): value for key, value in metadata.items()})
    for host in hosts:
        made.add_host(host)
    return objects.Aggregate.get_by_id(admin(), made.id)


def add_compute(host: str, version: int) -> int:
    """The id of a new nova-compute service record."""
    with context.target_cell(admin(), cell1()) as target:
        record = objects.Service(target, host=host, binary="nova-compute", topic="compute", report_count=0)
        record.create()
    set_version(record.id, version)
    return int(record.id)


def set_version(record: int, version: int) -> None:
    with context.target_cell(admin(), cell1()) as target:
        database.service_update(target, record, {"version": version})


def cell1() -> Any:
    [cell] = [c for c in objects.CellMappingList.get_all(admin()) if c.name == "cell1"]
    return cell


@pytest.fixture
def cache(databases: None) -> AggregateCache:
    return AggregateCache()


@pytest.fixture
def learned() -> list[Any]:
    return []


@pytest.fixture
def run(cache: AggregateCache, learned: list[Any]) -> Callable[[Any], Any]:
    filters = RequestFilters(cache, MinimumComputeVersion(), learned.extend)

    def apply(spec: Any) -> Any:
        filters(user_context(), spec)
        return spec

    return apply


def by_nova(spec: Any) -> Any:
    request_filter.process_reqspec(user_context(), spec)
    return spec


def effect(spec: Any) -> dict[str, Any]:
    """What filters change in a spec, order of ORed aggregates aside."""
    wanted = spec.requested_destination
    return {
        "aggregates": sorted(sorted(ored.split(",")) for ored in (wanted.aggregates if wanted else None) or []),
        "forbidden": set((wanted.forbidden_aggregates if wanted else None) or ()),
        "root_required": set(spec.root_required),
        "root_forbidden": set(spec.root_forbidden),
    }


def test_a_plain_boot(run: Callable[[Any], Any]) -> None:
    add_compute("cmp1", 74)

    assert effect(run(request_spec())) == effect(by_nova(request_spec()))
    assert effect(run(request_spec()))["root_required"] == {"OWNER_NOVA"}


@pytest.mark.parametrize("zone", ["zone-a", "nova", "nosuch", None])
def test_availability_zones(cache: AggregateCache, run: Callable[[Any], Any], zone: str | None) -> None:
    add_aggregate("a1", "cmp1", availability_zone="zone-a")
    add_aggregate("a2", "cmp2", availability_zone="zone-a")
    add_aggregate("b", "cmp3", availability_zone="zone-b")
    cache.read(admin())

    ours = effect(run(request_spec(availability_zone=zone)))

    assert ours == effect(by_nova(request_spec(availability_zone=zone)))
    assert len(ours["aggregates"]) == (1 if zone == "zone-a" else 0)


def test_a_zone_whose_cast_was_lost_is_learned_of(
    cache: AggregateCache, run: Callable[[Any], Any], learned: list[Any]
) -> None:
    cache.read(admin())
    made = add_aggregate("late", "cmp9", availability_zone="late-zone", trait__HW="required")

    ours = effect(run(request_spec(availability_zone="late-zone")))

    assert ours["aggregates"] == [[made.uuid]]
    assert learned[0].metadata == made.metadata
    assert cache.of_host("cmp9")[0].id == made.id


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("key", ["filter_tenant_id", "filter_tenant_id_7", "other"])
def test_tenant_isolation(
    conf: Any, cache: AggregateCache, run: Callable[[Any], Any], key: str, required: bool
) -> None:
    conf.set_override("limit_tenants_to_placement_aggregate", True, group="scheduler")
    conf.set_override("placement_aggregate_required_for_tenants", required, group="scheduler")
    add_aggregate("tenant", "cmp1", **{key: PROJECT})
    cache.read(admin())

    if required and key == "other":
        with pytest.raises(exception.NoValidHost, match="No hosts available for tenant"):
            run(request_spec())
        with pytest.raises(exception.RequestFilterFailed):
            by_nova(request_spec())
    else:
        assert effect(run(request_spec())) == effect(by_nova(request_spec()))


@pytest.mark.parametrize("traits", [(), ("HW_CPU_X86_MMX",), ("HW_CPU_X86_MMX", "HW_CPU_X86_SGX")])
def test_isolated_aggregates(
    conf: Any, cache: AggregateCache, run: Callable[[Any], Any], traits: tuple[str, ...]
) -> None:
    conf.set_override("enable_isolated_aggregate_filtering", True, group="scheduler")
    mmx = add_aggregate("mmx", "cmp1", trait__HW_CPU_X86_MMX="required")
    both = add_aggregate("both", "cmp2", trait__HW_CPU_X86_MMX="required", trait__HW_CPU_X86_SGX="required")
    add_aggregate("free", "cmp3", ssd="required")
    cache.read(admin())

    spec = request_spec(flavor=flavor(extra_specs={f"trait:{t}": "required" for t in traits}))

    expected = {0: {mmx.uuid, both.uuid}, 1: {both.uuid}, 2: set()}[len(traits)]
    assert effect(run(spec))["forbidden"] == expected


@pytest.mark.parametrize("versions", [(), (74,), (74, 72)])
def test_the_owner_trait_waits_for_the_oldest_compute(run: Callable[[Any], Any], versions: tuple[int, ...]) -> None:
    for version in versions:
        add_compute(f"cmp{version}", version)

    assert effect(run(request_spec())) == effect(by_nova(request_spec()))


def test_the_owner_trait_is_asked_of_pci_groups_too(run: Callable[[Any], Any]) -> None:
    add_compute("cmp1", 74)
    request_id = str(uuid.uuid4())

    def with_pci() -> Any:
        group = objects.RequestGroup(requester_id=f"{request_id}-0", resources={"CUSTOM_PCI_8086_1520": 1})
        group.obj_set_defaults()
        pci = objects.InstancePCIRequest(request_id=request_id, count=1, spec=[{}], alias_name="nic")
        return request_spec(
            requested_resources=[group],
            pci_requests=objects.InstancePCIRequests(requests=[pci]),
        )

    ours, novas = run(with_pci()), by_nova(with_pci())

    assert ours.requested_resources[0].required_traits == {"OWNER_NOVA"}
    assert novas.requested_resources[0].required_traits == {"OWNER_NOVA"}


class TestMinimumComputeVersion:
    def test_a_yes_is_kept_for_a_while_and_a_no_never(self, databases: None) -> None:
        now = [0.0]
        versions = MinimumComputeVersion(clock=lambda: now[0])
        upgrading = add_compute("cmp1", 72)
        assert not versions.reached(73)

        set_version(upgrading, 74)
        assert versions.reached(73)

        add_compute("old", 70)
        assert versions.reached(73)
        now[0] = YES_KEPT_S
        assert not versions.reached(73)

    def test_an_answer_that_a_cell_is_missing_from_is_not_kept(self, databases: None) -> None:
        add_compute("cmp1", 74)
        broken = objects.CellMapping(
            admin(),
            name="broken",
            uuid=str(uuid.uuid4()),
            transport_url="none:///",
            database_connection="sqlite:////nosuch/dir/x.sqlite",
            disabled=False,
        )
        broken.create()
        versions = MinimumComputeVersion(clock=lambda: 0.0)

        assert versions.reached(73)  # by those that answer, as Nova does
        add_compute("old", 70)
        assert not versions.reached(73)


WAIT_S = 60.0
REQUESTS = 4


class HangingCell:
    """One of several cells, which begins to hang: whoever asks all of them waits until Nova gives it up."""

    def __init__(self) -> None:
        self.hangs = False
        self.asked: list[bool] = []
        self.is_asked = threading.Event()
        self.is_given_up = threading.Event()

    def minimum(self, _context: Any, require_all: bool) -> int:
        if self.hangs:
            self.asked.append(require_all)
            self.is_asked.set()
            assert self.is_given_up.wait(WAIT_S)
            if require_all:
                raise exception.CellTimeout
        return 74


class TestVersionsWhileACellHangs:
    @pytest.fixture
    def cell(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingCell]:
        cell = HangingCell()
        monkeypatch.setattr(versions_module, "_minimum", cell.minimum)
        monkeypatch.setattr(versions_module, "LATE_S", 0.0)
        yield cell
        cell.is_given_up.set()

    def test_a_yes_that_was_heard_is_used_until_the_cell_is_given_up(self, cell: HangingCell) -> None:
        # given a scheduler that has heard that all computes are new enough, and then a cell that hangs
        now = [0.0]
        versions = MinimumComputeVersion(clock=lambda: now[0])
        assert versions.reached(73)
        cell.hangs, now[0] = True, YES_KEPT_S

        # when a request comes, then it does not wait for the cell
        with ThreadPoolExecutor(1) as threads:
            try:
                assert threads.submit(versions.reached, 73).result(WAIT_S / 2)
            finally:
                cell.is_given_up.set()

    def test_requests_wait_together_for_a_cell_and_not_one_after_the_other(self, cell: HangingCell) -> None:
        # given a scheduler that has just started beside a cell that hangs
        cell.hangs = True
        versions = MinimumComputeVersion(clock=lambda: 0.0)
        begun = threading.Barrier(REQUESTS)

        def request() -> bool:
            begun.wait(WAIT_S)
            return versions.reached(73)

        # when several requests come before it is given up
        with ThreadPoolExecutor(REQUESTS) as threads:
            requests = [threads.submit(request) for _ in range(REQUESTS)]
            assert cell.is_asked.wait(WAIT_S)
            cell.is_given_up.set()

            # then all of them are decided by the other cells, and not each one after a question of its own
            assert all(each.result(WAIT_S) for each in requests)
        assert cell.asked.count(True) < REQUESTS  # a thread that came late may have asked again
