# SPDX-License-Identifier: Apache-2.0
"""With ``exact_hosts_max`` above the number of hosts, requests for cells and devices together are decided as
Nova decides them, to the bit: its own fit runs on all that have room, before they are weighed."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import PlacementForm
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.host_manager import HostManager
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.plugins import NovaFilters
from tests.oracle import asks, clouds, nova_side, our_side
from tests.oracle.asks import Ask, NumaCell
from tests.oracle.clouds import Cloud, Service
from tests.oracle.test_decisions import novas_answer

EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "1000")) // 20
ASKS = 5
FILTERS = ["ComputeFilter", "NUMATopologyFilter", "PciPassthroughFilter"]


@st.composite
def cells_and_devices(draw: Any) -> Ask:
    """Both at once, which columns only screen."""
    policy = draw(clouds.pick(None, "shared", "dedicated"))
    cells = [
        NumaCell(policy, draw(clouds.pick(1, 2)), draw(clouds.pick(256, 512)), draw(clouds.pick(None, 4)))
        for _ in range(draw(st.integers(1, 2)))
    ]
    return Ask(clouds.INSTANCES[-1], numa=cells, pci=draw(clouds.pick((1, "1520"), (3, "1520"), (1, "1521"))))


@st.composite
def cases(draw: Any) -> tuple[Cloud, list[Ask], dict[str, Any]]:
    """Clouds of two hosts and more: one that is alone is not weighed, and left to the judge."""
    cloud = draw(clouds.clouds().filter(lambda cloud: len(cloud.nodes) > 1))
    cloud.services, cloud.aggregates = {host: Service() for host in cloud.services}, []
    its = draw(st.lists(cells_and_devices(), min_size=ASKS, max_size=ASKS))
    without = {"metrics": {"weight_setting": []}, "image_props_weight_multiplier": 0.0}
    return cloud, its, draw(asks.options()) | {"enabled_filters": FILTERS} | without


def exact_decider(cloud: Cloud) -> Decider:
    """As the service puts it together, with the option set."""
    aggregates = AggregateCache()
    exact = NovaFilters(HostManager(aggregates), HostStates(aggregates))
    decider = our_side.decider(our_side.host_table(cloud), FILTERS)
    decider.configure(replace(our_side.settings(FILTERS), exact_hosts_max=100), exact=exact)
    return decider


def our_answer(decider: Decider, cloud: Cloud, ask: Ask) -> list[tuple[str, float]]:
    request = our_side.request(nova_side.request_spec(ask), cloud)
    decision = decider.decide(replace(request, root_only=True, forms=(PlacementForm({}),)))
    names = {node.uuid: node.nodename for node in cloud.nodes}
    weights = decision.weights()
    return [(names[node], weights[node]) for node in decision.nodes()]


@pytest.mark.timeout(1800)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cases())
def test_cells_and_devices_together_are_novas_to_the_bit(case: tuple[Cloud, list[Ask], dict[str, Any]]) -> None:
    cloud, its, options = case
    with nova_side.configured(options):
        scheduler, decider = nova_side.Scheduler(FILTERS), exact_decider(cloud)
        states = nova_side.host_states(cloud)
        for ask in its:
            assert our_answer(decider, cloud, ask) == novas_answer(scheduler, states, ask), ask
