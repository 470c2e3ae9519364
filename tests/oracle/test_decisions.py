# SPDX-License-Identifier: Apache-2.0
"""Nova's real filters and weighers, and ours, on the same random clouds and requests.

``ORACLE_EXAMPLES`` sets the number of clouds; each is asked ten times.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nova import exception

from shared_scheduler.decision.errors import DecisionError
from tests.oracle import asks, clouds, nova_side, our_side
from tests.oracle.asks import Ask

EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "1000"))
ASKS = 10
CHECKED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
REFUSED = "the request is refused as a whole"


@st.composite
def cases(draw: Any) -> tuple[clouds.Cloud, list[Ask], dict[str, Any]]:
    """A cloud, ten requests for it, and options."""
    cloud = draw(clouds.clouds())
    nodes = [(node.host, node.nodename) for node in cloud.nodes]
    its = draw(st.lists(asks.asks(nodes), min_size=ASKS, max_size=ASKS))
    return cloud, its, draw(asks.options())


def novas_answer(scheduler: Any, states: list[Any], ask: Ask) -> Any:
    """[(node, weight)] best first, or REFUSED."""
    try:
        found = nova_side.decided(scheduler, states, nova_side.request_spec(ask))
    except exception.ComputeHostMetricNotFound:
        return REFUSED
    return [(one.obj.nodename, one.weight) for one in found]


def our_answer(decider: Any, cloud: clouds.Cloud, ask: Ask) -> Any:
    """The same of ours."""
    try:
        decision = decider.decide(our_side.request(nova_side.request_spec(ask), cloud))
    except DecisionError:
        return REFUSED
    names = {node.uuid: node.nodename for node in cloud.nodes}
    weights = decision.weights()
    assert decision.hosts == decision.survivors + sum(decision.reasons.values())
    return [(names[node], weights[node]) for node in decision.nodes()]


def is_exact(ask: Ask, enabled: list[str]) -> bool:
    """Whether columns decide it alone: no devices together with cells."""
    topology = {"NUMATopologyFilter", "PciPassthroughFilter"} & set(enabled)
    return not topology or not (ask.pci and ask.numa)


@st.composite
def cases_of_images(draw: Any) -> tuple[clouds.Cloud, list[Ask], dict[str, Any]]:
    """Hosts that all pass, and requests that differ in their images only."""
    cloud = draw(clouds.clouds())
    wanted = draw(st.lists(clouds.IMAGE_PROPERTIES, min_size=ASKS, max_size=ASKS))
    options = draw(asks.options()) | {
        "enabled_filters": ["NumInstancesFilter"],
        "max_instances_per_host": 10_000,
        "image_props_weight_multiplier": draw(clouds.pick(1.0, -2.0)),
    }
    return cloud, [Ask(clouds.INSTANCES[-1], image=image) for image in wanted], options


def compare(cloud: clouds.Cloud, its: list[Ask], options: dict[str, Any]) -> None:
    """Every request, answered by Nova and by us."""
    enabled = options["enabled_filters"]
    with nova_side.configured(options):
        scheduler = nova_side.Scheduler(enabled)
        table = our_side.host_table(cloud)
        decider = our_side.decider(table, enabled)
        states = nova_side.host_states(cloud)
        for ask in its:
            novas, ours = novas_answer(scheduler, states, ask), our_answer(decider, cloud, ask)
            if is_exact(ask, enabled) or novas is REFUSED:
                assert ours == novas, ask
            else:
                assert {node for node, _ in novas} <= {node for node, _ in ours}, ask


@pytest.mark.timeout(3600)
@CHECKED
@given(cases())
def test_survivors_weights_and_order_are_novas(case):
    compare(*case)


@pytest.mark.timeout(3600)
@settings(CHECKED, max_examples=max(1, EXAMPLES // 10))
@given(cases_of_images())
def test_hosts_with_servers_of_like_images_weigh_what_they_weigh_to_nova(case):
    compare(*case)


@pytest.mark.parametrize("name", sorted(nova_side.FILTERS))
def test_every_filter_of_nova_is_known(name):
    assert name in asks.EXACT + asks.SCREENS


def test_every_weigher_of_nova_is_known():
    from shared_scheduler.decision.weighers import NATIVE_WEIGHERS

    assert {weigher.__name__ for weigher in nova_side.WEIGHERS} == set(NATIVE_WEIGHERS)
