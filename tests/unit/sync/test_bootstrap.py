# SPDX-License-Identifier: Apache-2.0
"""From nothing to a table that can be chosen from."""

from __future__ import annotations

import io
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import requests

from shared_scheduler.core.events import AggregatesRead, NodeRead, ServicesRead, SharingRead
from shared_scheduler.placement.mirror import SUM_OF, PlacementMirror
from shared_scheduler.sync.bootstrap import CELLS_AT_ONCE, Bootstrap, Loaded
from shared_scheduler.sync.databases import Cell, CellDatabase, DatabaseError
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World, in_trouble
from tests.unit.sync.nova_databases import NovaDatabases

ROOMY = {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 4096}, "DISK_GB": {"total": 100}}


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


def load(nova: NovaDatabases, world: World) -> tuple[Loaded, list[Any]]:
    said: list[Any] = []
    start = Bootstrap(nova.api(), nova.open_cell, PlacementMirror(world.client), said.append, time.monotonic)
    return start.load(), said


def test_a_start_submits_everything_in_a_usable_order(
    nova: NovaDatabases,
    world: World,
) -> None:
    own = nova.compute("cmp-1", world.provider(inventories=ROOMY))
    instance = nova.instance("cmp-1")
    world.take(instance, {own: {"VCPU": 1, "MEMORY_MB": 512}})
    aggregate = nova.aggregate("az", ("cmp-1",), availability_zone="az")
    loaded, said = load(nova, world)
    assert [type(event) for event in said] == [AggregatesRead, ServicesRead, NodeRead, SharingRead]
    assert said[0].complete and said[1].complete
    event = said[2]
    leaf = event.leaves[f"rp.{own}"]
    assert leaf["inventories"]["VCPU"][0] == 8
    assert leaf["aggregates"] == [aggregate]
    assert event.consumers == {SUM_OF + own: {own: {"VCPU": 1, "MEMORY_MB": 512}}}
    assert event.members == {instance}
    assert loaded.nodes == {own: nova.cell_uuid} and not loaded.unread
    assert set(loaded.databases) == {nova.cell_uuid}


def test_a_start_costs_placement_two_calls(nova: NovaDatabases, world: World) -> None:
    for number in range(5):
        nova.compute(f"cmp-{number}", world.provider(inventories=ROOMY))
    world.http.calls.clear()
    load(nova, world)
    assert sorted(world.http.calls) == [
        ("GET", "/allocation_candidates"), ("GET", "/resource_providers")
    ]  # fmt: skip


def test_a_start_without_placement_knows_the_hosts(nova: NovaDatabases, world: World) -> None:
    own = nova.compute("cmp-1", world.provider(inventories=ROOMY))
    world.http.faults = [in_trouble] * 2
    loaded, said = load(nova, world)
    assert set(loaded.nodes) == {own}
    assert said[2].leaves["cn.vcpus"] == 8 and f"rp.{own}" not in said[2].leaves


def of_another_shape(*_: object) -> requests.Response:
    """Something that is not Placement, or not the Placement that is known, answers."""
    response = requests.Response()
    response.status_code, response.raw = 200, io.BytesIO(b'{"allocation_requests": 7, "resource_providers": [{}]}')
    return response


def test_a_start_with_a_placement_of_another_shape_knows_the_hosts(
    nova: NovaDatabases, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    own = nova.compute("cmp-1", world.provider(inventories=ROOMY))
    world.http.faults = [of_another_shape] * 2
    loaded, said = load(nova, world)
    assert set(loaded.nodes) == {own}
    assert [type(event) for event in said] == [AggregatesRead, ServicesRead, NodeRead]
    assert "without an overview of Placement" in caplog.text and "without the providers that share" in caplog.text


def test_a_cell_that_is_away_does_not_keep_the_others_waiting(
    nova: NovaDatabases,
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = nova.compute("cmp-1", world.provider(inventories=ROOMY))
    away = str(uuid.uuid4())
    nova.map_cell(away, "cell2", "mysql+pymysql://nova:x@127.0.0.1:9/nova", "rabbit://")
    loaded, _ = load(nova, world)
    assert loaded.unread == {away} and set(loaded.nodes) == {own}
    assert "starting without cell cell2" in caplog.text


def test_cells_that_hang_do_not_keep_the_others_from_a_start(
    nova: NovaDatabases, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared_scheduler.sync.bootstrap.ANSWERS_WITHIN_S", 0.6)
    own = nova.compute("cmp-1", world.provider(inventories=ROOMY))
    # given more cells than are read at once, whose databases accept queries and do not answer them, before another one
    for name in ("cell2", "cell3", "cell4", "cell5", "last"):
        nova.map_cell(str(uuid.uuid4()), name, nova.cell_url, "rabbit://")
    answer = threading.Event()

    def open_cell(cell: Cell) -> CellDatabase:
        database = nova.open_cell(cell)
        if cell.name != "last":
            monkeypatch.setattr(database, "services", lambda: answer.wait() and ())
        return database

    # when the scheduler starts
    loaded: list[Loaded] = []
    start = Bootstrap(nova.api(), open_cell, PlacementMirror(world.client), lambda _: None, time.monotonic)
    thread = threading.Thread(target=lambda: loaded.append(start.load()), daemon=True)
    thread.start()
    thread.join(30.0)
    answer.set()
    # then it does without them
    assert [set(one.nodes) for one in loaded] == [{own}]
    assert (len(loaded[0].unread), len(loaded[0].databases)) == (5, 6)
    assert "starting without cell cell1" in caplog.text


def test_cells_that_hang_together_are_waited_for_together(
    nova: NovaDatabases, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given as many cells as are read at once, whose databases accept queries and do not answer them, and another one
    within_s, answer = 4.0, threading.Event()
    monkeypatch.setattr("shared_scheduler.sync.bootstrap.ANSWERS_WITHIN_S", within_s)
    own = nova.compute("cmp-1", world.provider(inventories=ROOMY))
    for name in ("cell2", "cell3", "cell4", "last"):
        nova.map_cell(str(uuid.uuid4()), name, nova.cell_url, "rabbit://")

    def open_cell(cell: Cell) -> CellDatabase:
        database = nova.open_cell(cell)
        if cell.name != "last":
            monkeypatch.setattr(database, "services", lambda: answer.wait() and ())
        return database

    # when the scheduler starts, and has waited for the first one, and then for less than for another one
    loaded: list[Loaded] = []
    start = Bootstrap(nova.api(), open_cell, PlacementMirror(world.client), lambda _: None, time.monotonic)
    thread = threading.Thread(target=lambda: loaded.append(start.load()), daemon=True)
    thread.start()
    thread.join(2 * within_s - 0.5)
    answer.set()
    # then it does without all of them
    assert [set(one.nodes) for one in loaded] == [{own}]
    assert len(loaded[0].unread) == CELLS_AT_ONCE


def test_without_any_readable_cell_the_error_names_one(nova: NovaDatabases, world: World, tmp_path: Path) -> None:
    (tmp_path / "cell1.db").unlink()
    with pytest.raises(DatabaseError, match="database_connection of cell cell1"):
        load(nova, world)
