# SPDX-License-Identifier: Apache-2.0
"""Whatever a leaf holds: its message is taken or dropped, and requests are decided all the same."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_scheduler.core import effects as ef
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.filters import NATIVE_FILTERS
from shared_scheduler.decision.request import Flavor, Request
from shared_scheduler.protocol.messages import Increment
from tests.support.examples import examples
from tests.unit.core.scheduler_driver import SMALL, SchedulerDriver, node_leaves, node_read, of_kind, request

CPUS = list(range(8))
CELL = {
    "id": 0, "socket": 0, "cpuset": CPUS[4:], "pcpuset": CPUS[:4], "siblings": [[cpu] for cpu in CPUS],
    "memory": 4096, "mempages": [[4, 1048576, 0], [2048, 8, 0]],
    "network_metadata": {"physnets": [], "tunneled": False},
}  # fmt: skip
LEAVES: dict[str, Any] = {
    **node_leaves("node-1", vcpus=4, free_mb=8192),
    "cn.cpu_info": json.dumps({"maxphysaddr": {"bits": 46}, "topology": {"cores": 4}}),
    "cn.metrics": json.dumps([{"name": "cpu.percent", "value": 0.5}]),
    "cn.supported_hv_specs": [["x86_64", "kvm", "hvm"]],
    "cn.host_ip": "192.0.2.1",
    "stats.failed_builds": "1",
    "image.os_distro=debian": 1,
    "numa.static": [CELL],
    "numa.0": [1, 512, "3", {"4": 131072, "2048": 1}],
    "pci.static.p1": {"vendor_id": "8086", "product_id": "1572", "numa_node": 0},
    "pci.p1": 2,
}
TOPOLOGY = json.dumps(
    {
        "numa": {"cells": [{"id": 0, "pcpuset": [0], "memory": 512, "pagesize": -3, "cpu_policy": "dedicated"}]},
        "pci": [{"count": 1, "spec": [{"vendor_id": "8086"}]}],
    }
)
ALL = DecisionSettings(
    enabled_filters=tuple(NATIVE_FILTERS),
    metrics_weight_setting=(("cpu.percent", 1.5),),
    metrics_required=False,
    image_props_weight_multiplier=1.0,
)
IMAGE = {
    "hw_architecture": "x86_64", "img_hv_requested_version": ">=0.0.1", "hw_maxphysaddr_bits": 40,
    "os_distro": "debian",
}  # fmt: skip
SPECS = {
    "capabilities:cpu_info:topology:cores": ">= 1",
    "capabilities:free_ram_mb": ">= 1",
    "hw:maxphysaddr_bits": "40",
    "hw:cpu_policy": "dedicated",
    "hw:cpu_thread_policy": "require",
}
HINTS = {"query": ('["and", [">=", "$free_ram_mb", 1], ["not", ["=", "$hypervisor_type", "x"]]]',)}


def requests() -> list[Request]:
    """Between them they look at every leaf."""
    plain = request(claim=False)
    return [
        plain,
        replace(plain, image_properties=IMAGE),
        replace(plain, flavor=replace(SMALL, extra_specs=SPECS)),
        replace(plain, hints=HINTS, flavor=Flavor()),
        replace(plain, has_numa=True, has_pci=True, topology=TOPOLOGY),
    ]


def driver() -> SchedulerDriver:
    return SchedulerDriver(decision=ALL).with_agents("node-1", "node-2", **{
        name.replace(".", "__"): value for name, value in LEAVES.items() if not name.startswith("rp.")
    })  # fmt: skip


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-1, 0, 1, 2**39, 0.5, -0.5, "", "x", "-1", "1e999", "[1]", '[{"value": 1e999}]']),
    st.floats(),
    st.text(max_size=3),
)
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["4", "id", "x"]), inner),
    max_leaves=5,
)


@st.composite
def odd(draw: Any, leaf: Any) -> Any:
    """The value of a leaf with one part of it replaced, perhaps all."""
    made = deepcopy(leaf)
    if isinstance(made, list | dict) and made and draw(st.integers(0, 5)):
        places = list(range(len(made))) if isinstance(made, list) else sorted(made)
        place: Any = draw(st.sampled_from(places))
        made[place] = draw(odd(made[place]))
        return made
    return draw(ANYTHING)


@st.composite
def odd_leaves(draw: Any) -> dict[str, Any]:
    name = draw(st.sampled_from(sorted(LEAVES)))
    return {name: draw(odd(LEAVES[name]))}


def decide_all(at: SchedulerDriver) -> None:
    """No step fails, and each request has its end."""
    for asked in requests():
        effects = at.ask(asked)
        assert len(of_kind(ef.Answer, effects)) + len(of_kind(ef.Fail, effects)) == 1
    at.idle()


@settings(max_examples=examples(100))
@given(odd_leaves())
def test_an_agent_may_say_anything(leaves: dict[str, Any]) -> None:
    at = driver()
    at.hear(Increment("node-1", 1, 2, leaves))
    decide_all(at)


@settings(max_examples=examples(50))
@given(odd_leaves())
def test_a_database_may_hold_anything(leaves: dict[str, Any]) -> None:
    at = driver().without_agents("node-3")
    read = node_read("node-3")
    at.give(replace(read, leaves={**read.leaves, **leaves}))
    decide_all(at)


@pytest.mark.parametrize(
    "leaves",
    [
        {"cn.hypervisor_version": -1},
        {"cn.supported_hv_specs": [[1, 2, 3]]},
        {"cn.supported_hv_specs": 7},
        {"cn.cpu_info": '{"maxphysaddr": {"bits": "many"}}'},
        {"cn.metrics": '[{"name": "cpu.percent", "value": 1e999}]'},
        {"numa.static": [CELL | {"pcpuset": [-1]}]},
        {"numa.static": [CELL | {"cpuset": [0.5]}]},
        {"numa.static": [CELL | {"mempages": [[0, 8, 0]]}]},
    ],
)
def test_odd_leaves_fail_no_request(leaves: dict[str, Any]) -> None:
    at = driver()
    at.hear(Increment("node-1", 1, 2, leaves))
    decide_all(at)
    assert of_kind(ef.Answer, at.ask(request(claim=False))) != []
