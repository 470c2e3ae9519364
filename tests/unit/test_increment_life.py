# SPDX-License-Identifier: Apache-2.0
"""The page of an increment's life names existing functions, in the order in which real cores call them."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from shared_scheduler.model.leaves import COMPUTE_NODE
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from tools.drawings.increment_life import STATIONS, Station, page
from tools.drawings.machines import REFERENCE


def test_the_page_is_drawn_from_the_list_of_stations() -> None:
    assert (REFERENCE / "increment_life.rst").read_text() == page(), "run tools/draw"


@pytest.mark.parametrize("station", STATIONS, ids=lambda station: station.name)
def test_each_station_exists(station: Station) -> None:
    assert callable(station.resolve())


def test_the_cores_pass_an_increment_on_in_this_order() -> None:
    # given a node and a scheduler that has its newest state
    world = World(1, Sizes(nodes=1, schedulers=1), Workload(rate_per_s=0.001), NetworkFaults())
    world.run(10.0)
    (node,), (scheduler,) = world.nodes.values(), world.schedulers.values()
    before = scheduler.core.table.version(node.node)
    # and a profiler that notes which stations are called
    stations = {station.code(): station.name for station in STATIONS if station.core}
    called: list[str] = []

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        name = stations.get(frame.f_code)
        if event == "call" and name is not None and name not in called:
            called.append(name)

    # when nova-compute reports one changed number
    report = node.tracker.report()
    free_mb = COMPUTE_NODE + "free_ram_mb"
    leaves = {free_mb: int(str(report.leaves[free_mb])) - 1}
    sys.setprofile(note)
    try:
        node.feed(type(report)(leaves))
        world.run(0.5)
    finally:
        sys.setprofile(None)

    # then the row has it, and it came the way that the page tells
    now = scheduler.core.table.version(node.node)
    assert (now.epoch, now.sequence) == (before.epoch, before.sequence + 1)
    assert called == [station.name for station in STATIONS if station.core]
