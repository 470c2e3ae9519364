# SPDX-License-Identifier: Apache-2.0
"""The attributes that Nova's code and site plug-ins read at ``manager.host_manager``, and the discovery of hosts."""

from __future__ import annotations

from typing import Any

import pytest
from nova import exception, objects
from nova.objects import host_mapping
from nova.scheduler.filters import compute_filter, image_props_filter

from shared_scheduler.nova import discovery
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.host_manager import HostManager, as_list
from tests.unit.nova.conftest import admin
from tests.unit.nova.test_selection import aggregate


class TestHostManager:
    def test_filters_are_those_of_the_options_in_their_order(self, conf: Any) -> None:
        conf.set_override("enabled_filters", ["ImagePropertiesFilter", "ComputeFilter"], group="filter_scheduler")

        manager = HostManager(AggregateCache())

        assert [type(each) for each in manager.enabled_filters] == [
            image_props_filter.ImagePropertiesFilter,
            compute_filter.ComputeFilter,
        ]
        assert "NUMATopologyFilter" in manager.filter_cls_map
        assert len(manager.weighers) == 13

    def test_an_unknown_filter_is_named(self, conf: Any) -> None:
        conf.set_override("enabled_filters", ["NoSuchFilter"], group="filter_scheduler")

        with pytest.raises(exception.SchedulerHostFilterNotFound, match="NoSuchFilter"):
            HostManager(AggregateCache())

    def test_a_reload_with_an_unknown_filter_keeps_the_configuration(self, conf: Any) -> None:
        manager = HostManager(AggregateCache())
        before = manager.enabled_filters, manager.filter_cls_map
        conf.set_override("enabled_filters", ["NoSuchFilter"], group="filter_scheduler")

        with pytest.raises(exception.SchedulerHostFilterNotFound):
            manager.load_plugins()

        assert (manager.enabled_filters, manager.filter_cls_map) == before

    def test_cells_are_read_on_first_access(self, databases: None) -> None:
        manager = HostManager(AggregateCache())

        assert [cell.name for cell in manager.enabled_cells] == ["cell1"]
        assert [cell.name for cell in manager.cells.values()] == ["cell1"]

    def test_a_disabled_cell_is_removed_at_the_next_refresh(self, databases: None) -> None:
        manager = HostManager(AggregateCache())
        [cell] = manager.enabled_cells
        cell.disabled = True
        cell.save()

        manager.refresh_cells_caches()

        assert manager.enabled_cells == []
        assert list(manager.cells) == [cell.uuid]


class TestAggregateCache:
    def test_a_cast_moves_a_host(self) -> None:
        cache = AggregateCache()
        cache.update([aggregate(1, ["cmp1", "cmp2"]), aggregate(2, ["cmp1"])])

        cache.update([aggregate(1, ["cmp2"])])

        assert [each.id for each in cache.of_host("cmp1")] == [2]
        assert [each.id for each in cache.of_host("cmp2")] == [1]

    def test_a_deleted_aggregate_holds_no_host(self) -> None:
        cache = AggregateCache()
        cache.update([aggregate(1, ["cmp1"])])

        cache.delete(1)
        cache.delete(99)

        assert cache.of_host("cmp1") == []
        assert cache.facts() == ()

    def test_a_read_replaces_everything(self, databases: None) -> None:
        cache = AggregateCache()
        cache.update([aggregate(7, ["gone"])])
        made = objects.Aggregate(admin(), name="real")
        made.create()
        made.add_host("cmp1")

        [facts] = cache.read(admin())

        assert (facts.uuid, facts.hosts) == (made.uuid, frozenset({"cmp1"}))
        assert cache.of_host("gone") == []

    def test_a_cast_during_a_read_is_not_undone_by_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # given a host that moves out of an aggregate, which the read under way has already seen
        cache, answers = AggregateCache(), [[aggregate(1, ["cmp1"])], [aggregate(1, [])]]

        def read(_context: Any) -> list[Any]:
            found = answers.pop(0)
            if answers:
                cache.update([aggregate(1, [])])
            return found

        monkeypatch.setattr(objects.AggregateList, "get_all", read)
        # then the database is read again
        assert [one.hosts for one in cache.read(None)] == [frozenset()]
        assert cache.of_host("cmp1") == []

    def test_casts_carry_one_or_many(self) -> None:
        one, two = aggregate(1, []), aggregate(2, [])

        assert as_list(one) == [one]
        assert as_list([one, two]) == [one, two]
        assert as_list(objects.AggregateList(objects=[one, two])) == [one, two]


class Group:
    """Returns which services are up, by host."""

    def __init__(self, *up: str) -> None:
        self.up = up

    def service_is_up(self, service: Any) -> bool:
        return service.host in self.up


class TestHostDiscovery:
    @pytest.fixture(autouse=True)
    def schedulers(self, databases: None) -> None:
        for host in ("sched1", "sched2"):
            objects.Service(admin(), host=host, binary="nova-scheduler", topic="scheduler", report_count=0).create()

    @pytest.fixture
    def discovered(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        runs: list[str] = []

        def discover(context: Any) -> list[Any]:
            runs.append("once")
            return []

        monkeypatch.setattr(host_mapping, "discover_hosts", discover)
        return runs

    @pytest.mark.parametrize(
        ("me", "up", "runs"),
        [
            ("sched1", ("sched1", "sched2"), 1),
            ("sched2", ("sched1", "sched2"), 0),
            ("sched2", ("sched2",), 1),
            ("sched1", (), 0),
        ],
        ids=["first", "not first", "the first is down", "none is up yet"],
    )
    def test_the_first_that_is_up_leads(
        self, conf: Any, discovered: list[str], me: str, up: tuple[str, ...], runs: int
    ) -> None:
        conf.set_override("host", me)

        discovery.HostDiscovery(Group(*up)).discover(admin())

        assert len(discovered) == runs

    def test_another_mapping_process_is_logged_once(
        self, conf: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def discover(context: Any) -> list[Any]:
            raise exception.HostMappingExists(name="cmp1")

        monkeypatch.setattr(host_mapping, "discover_hosts", discover)
        conf.set_override("host", "sched1")
        finder = discovery.HostDiscovery(Group("sched1"))

        finder.discover(admin())
        finder.discover(admin())

        warnings = [r for r in caplog.records if r.levelname == "WARNING"]
        assert len([r for r in warnings if "discover_hosts_in_cells_interval" in r.message]) == 1
