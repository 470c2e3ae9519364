# SPDX-License-Identifier: Apache-2.0
"""NUMA cells and PCI pools: the answers of our filters without Nova's objects."""

from __future__ import annotations

import json

import pytest

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.topology_request import topology_ask
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.table.host_table import HostTable
from tests.unit.decision.small_clouds import add_host, small_request


def host_cell(number: int, pinnable: int = 4, memory: int = 4096, pages: tuple = ()) -> dict:
    cpus = list(range(number * 8, number * 8 + 8))
    return {
        "id": number,
        "socket": 0,
        "cpuset": cpus[pinnable:],
        "pcpuset": cpus[:pinnable],
        "siblings": [[cpu] for cpu in cpus],
        "memory": memory,
        "mempages": [list(page) for page in pages],
        "network_metadata": {"physnets": [], "tunneled": False},
    }


def numa(*cells: dict, **dynamic: list) -> dict:
    return {"numa.static": list(cells), **{f"numa.{key[1:]}": v for key, v in dynamic.items()}}


def ask(*cells: tuple, pci: tuple = ()) -> str:
    """cells: (pinned CPUs, shared CPUs, memory, page size)."""
    made = [
        {
            "id": number,
            "cpuset": list(range(shared)),
            "pcpuset": list(range(pinned)),
            "memory": memory,
            "pagesize": page or None,
            "cpu_policy": "dedicated" if pinned and not shared else None,
        }
        for number, (pinned, shared, memory, page) in enumerate(cells)
    ]
    wrapped = {"nova_object.data": {"cells": [{"nova_object.data": cell} for cell in made]}}
    requests = [{"nova_object.data": {"count": n, "spec": [spec]}} for n, spec in pci]
    return json.dumps({"numa": wrapped if cells else None, "pci": requests})


def passes(text: str, **leaves) -> bool:
    table = HostTable()
    add_host(table, "host", **leaves)
    filters = ("NUMATopologyFilter", "PciPassthroughFilter")
    asked = topology_ask(text)
    request = small_request(forms=(), has_numa=bool(asked.cells), has_pci=bool(asked.devices), topology=text)
    decider = Decider(table, DecisionSettings(enabled_filters=filters))
    return bool(list(decider.decide(request).nodes()))


@pytest.mark.parametrize(
    ("cells", "fits"),
    [
        ([(4, 0, 1024, 0)], True),
        ([(5, 0, 1024, 0)], False),
        ([(4, 0, 1024, 0), (4, 0, 1024, 0)], True),
        ([(4, 0, 1024, 0), (4, 0, 1024, 0), (1, 0, 16, 0)], False),
        ([(0, 4, 1024, 0)], True),
        ([(0, 5, 1024, 0)], False),
        ([(1, 0, 4097, 0)], False),
    ],
)
def test_each_cell_needs_a_host_cell_of_its_own(cells, fits):
    assert passes(ask(*cells), **numa(host_cell(0), host_cell(1))) is fits


def test_pinned_cpus_that_are_taken_are_not_there():
    taken = numa(host_cell(0), n0=[4, 0, "f", {}])
    assert not passes(ask((1, 0, 16, 0)), **taken)
    half = numa(host_cell(0), n0=[2, 0, "3", {}])
    assert passes(ask((2, 0, 16, 0)), **half)
    assert not passes(ask((3, 0, 16, 0)), **half)


def test_a_host_without_cells_rejects_a_request_with_cells():
    assert not passes(ask((1, 0, 16, 0)))


@pytest.mark.parametrize(
    ("page", "memory", "fits"),
    [(2048, 512, True), (2048, 514, False), (2048, 511, False), (1048576, 1024, False),
     (-2, 512, True), (-1, 2048, True), (-3, 2048, True)],
)  # fmt: skip
def test_pages_of_the_size_that_is_asked(page, memory, fits):
    cell = host_cell(0, pages=((4, 1048576, 0), (2048, 512, 0)))
    free_256 = numa(cell, n0=[0, 0, "0", {"2048": 256}])
    assert passes(ask((0, 1, memory, page)), **free_256) is fits


def test_devices_are_counted_by_pool():
    pools = {
        "pci.static.a": {"vendor_id": "8086", "product_id": "1520"},
        "pci.a": 2,
        "pci.static.b": {"vendor_id": "10de", "product_id": "1eb8"},
        "pci.b": 8,
    }
    nic = {"vendor_id": "8086", "product_id": "1520"}
    assert passes(ask(pci=((2, nic),)), **pools)
    assert not passes(ask(pci=((3, nic),)), **pools)
    assert not passes(ask(pci=((1, {"vendor_id": "8086", "product_id": "9999"}),)), **pools)


def test_the_next_decision_subtracts_the_topology_of_a_claim():
    table = HostTable()
    add_host(table, "host", **numa(host_cell(0), n0=[0, 0, "0", {}]))
    text = ask((4, 0, 1024, 0))
    request = small_request(forms=(), has_numa=True, topology=text)
    decider = Decider(table, DecisionSettings(enabled_filters=("NUMATopologyFilter",)))
    assert list(decider.decide(request).nodes()) == ["host"]
    take = TopologyUsage.between(table.view("host").leaves, {"numa.0": [4, 1024, "f", {}]})
    table.assume("host", "c1", "s1", {}, request.usage, take)
    refused = decider.decide(request)
    assert refused.reasons == {"NUMATopologyFilter": 1}
    table.forget("c1")
    assert list(decider.decide(request).nodes()) == ["host"]


@pytest.mark.parametrize("text", ["", "{", '{"numa": {"cells": [{}]}}', "[]"])
def test_an_unreadable_topology_asks_for_no_cells(text):
    assert topology_ask(text).cells == ()
