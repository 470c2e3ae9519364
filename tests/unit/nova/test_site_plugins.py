# SPDX-License-Identifier: Apache-2.0
"""A site's own filters and weighers may fail: the caller gets the name of the class, and no other request fails."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nova.scheduler.weights import ram

from shared_scheduler.core import effects as ef
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.pipeline import Decider, weighers_of
from shared_scheduler.decision.weighers.base import NativeWeigher
from shared_scheduler.nova.host_manager import HostManager
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.plugins import SiteFilter, SiteWeigher, site_weighers, weigher_names
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only, only_claim, request


class States:
    """Makes a host state that plug-ins of this test need."""

    def make(self, view: Any) -> Any:
        return SimpleNamespace(host=view.host)


class RackFilter:
    run_filter_once_per_request = False

    def filter_all(self, states: list[Any], spec: Any) -> list[Any]:
        return [state for state in states if state.rack]


class RackWeigher:
    minval = maxval = None

    def weight_multiplier(self, state: Any) -> float:
        return 1.0

    def weigh_objects(self, hosts: list[Any], spec: Any) -> list[float]:
        return [0.0 for _ in hosts[1:]]


class RackMultiplier(RackWeigher):
    def weigh_objects(self, hosts: list[Any], spec: Any) -> list[float]:
        return [0.0 for _ in hosts]

    def weight_multiplier(self, state: Any) -> float:
        raise KeyError("rack")


STATES = cast(HostStates, States())


def asked() -> Any:
    return request(spec=SimpleNamespace(instance_uuid="", obj_reset_changes=lambda names: None))


def driver_with(*plugins: Any) -> SchedulerDriver:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    decider: Decider = driver.core.planner._decider
    filters = {each.name: each for each in plugins if isinstance(each, SiteFilter)}
    weighers = {each.name: each for each in plugins if isinstance(each, SiteWeigher)}
    settings = DecisionSettings(enabled_filters=tuple(filters), weighers=tuple(weighers))
    decider.configure(settings, filters, weighers)
    return driver


@pytest.mark.parametrize(
    ("plugin", "name"),
    [
        (SiteFilter(RackFilter(), STATES), "RackFilter"),
        (SiteWeigher(RackWeigher(), STATES), "RackWeigher"),
        (SiteWeigher(RackMultiplier(), STATES), "RackMultiplier"),
    ],
)
def test_a_broken_plugin_fails_the_request_and_is_named(plugin: Any, name: str) -> None:
    fail = only(ef.Fail, driver_with(plugin).ask(asked()))
    assert name in fail.text


def test_a_plugin_that_breaks_only_for_alternates_costs_only_them() -> None:
    plugin = RackFilter()
    calls: list[int] = []

    def once(states: list[Any], spec: Any) -> list[Any]:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("the rack service is away")
        return states

    plugin.filter_all = once  # type: ignore[method-assign]
    driver = driver_with(SiteFilter(plugin, STATES))
    claim = only_claim(driver.ask(replace(asked(), num_alternates=1)))
    (write,) = of_kind(ef.WriteAllocation, driver.accept(claim) + driver.wait(0.1))
    answer = only(ef.Answer, driver.written(write))
    assert len(answer.choices[0]) == 1
    assert len(calls) == 2


def test_the_error_is_one_that_the_core_knows() -> None:
    driver = driver_with(SiteFilter(RackFilter(), STATES))
    with pytest.raises(DecisionError, match=r"RackFilter.*rack"):
        driver.core.planner._decider.decide(asked())


class RAMWeigher(RackWeigher):
    """A site's own, called as Nova's is."""


def test_a_site_weigher_that_is_called_as_novas_counts_beside_it_and_not_twice() -> None:
    manager = cast(HostManager, SimpleNamespace(weighers=[ram.RAMWeigher(), RAMWeigher(), RackWeigher()]))
    names, site = weigher_names(manager), site_weighers(manager, STATES)

    found = weighers_of(names, site)

    assert isinstance(found[0], NativeWeigher) and found[0].name == "RAMWeigher"
    assert [type(each) for each in found[1:]] == [SiteWeigher, SiteWeigher]
    assert [each.name for each in found[1:]] == ["RAMWeigher", "RackWeigher"]
