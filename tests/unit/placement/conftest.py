# SPDX-License-Identifier: Apache-2.0
"""An in-process Placement for a module of tests (its database is a global of the process)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.reconciler import without_nova
from tests.unit.placement.one_scheduler import Nova
from tests.unit.placement.real_placement import Clock, World, load_app


@pytest.fixture(scope="module")
def placement_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    app, put_back = load_app(tmp_path_factory.mktemp("placement"))
    yield app
    put_back()


@pytest.fixture
def world(placement_app: Any) -> Iterator[World]:
    yield World(placement_app)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def allocation_writer(world: World, clock: Clock) -> AllocationWriter:
    return AllocationWriter(world.client, clock, clock.pause, random.Random(1), without_nova)


@pytest.fixture
def other_writer(world: World, clock: Clock) -> AllocationWriter:
    return AllocationWriter(world.client, clock, clock.pause, random.Random(2), without_nova)


@pytest.fixture
def nova() -> Nova:
    return Nova()
