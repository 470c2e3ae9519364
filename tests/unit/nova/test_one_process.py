# SPDX-License-Identifier: Apache-2.0
"""The effects of ``one_process`` on a test of Nova, and what it mends: the current cell, which all threads share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from nova import context
from nova.compute.resource_tracker import ResourceTracker
from oslo_concurrency.lockutils import ReaderWriterLock

from compute_agent.tap.hooks import METHODS
from shared_scheduler.nova import cells
from tests.support import one_process
from tests.unit.cmd.waiting import eventually
from tests.unit.nova.conftest import admin
from tests.unit.nova.test_request_filters import cell1

WAIT_S = 60.0


class NovasTest:
    """The attributes of a test case of Nova that ``one_process`` uses."""

    def __init__(self) -> None:
        self._cleanups: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def addCleanup(self, call: Callable[..., None], *args: Any) -> None:
        self._cleanups.append((call, args))

    def clean_up(self) -> None:
        for call, args in reversed(self._cleanups):
            call(*args)


def test_one_process_puts_everything_back() -> None:
    before = {name: getattr(ResourceTracker, name) for name in METHODS}
    open_bus = cells.open_bus
    novas = NovasTest()

    one_process.attach(novas)
    assert all(getattr(ResourceTracker, name) is not before[name] for name in METHODS)
    assert cells.open_bus("fake:/") is cells.open_bus("fake://nowhere/")

    novas.clean_up()
    assert {name: getattr(ResourceTracker, name) for name in METHODS} == before
    assert cells.open_bus is open_bus


def test_in_one_process_a_task_may_wait_for_a_thread_that_wants_its_cell_too() -> None:
    # given a task that is in a cell, and an API request that waits to switch to another one
    novas, cell, switched = NovasTest(), ReaderWriterLock(), threading.Event()
    one_process.attach(novas)

    def switch() -> None:
        with cell.write_lock():
            switched.set()

    def read() -> None:
        with cell.read_lock():
            pass

    with cell.read_lock():
        threading.Thread(target=switch, daemon=True).start()
        eventually(lambda: cell._pending_writers)
        # when the task waits for a thread that needs the cell
        helper = threading.Thread(target=read, daemon=True)
        helper.start()
        helper.join(WAIT_S)
        helped = not helper.is_alive()
    novas.clean_up()
    # then it does not wait for the request, which comes next
    assert helped
    assert switched.wait(WAIT_S)


def test_a_list_over_all_cells_switches_no_cell_for_others(databases: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a test of Nova's, whose fixture makes a cell that is targeted the current one of all threads
    novas, switched = NovasTest(), list[str]()
    one_process.attach(novas)
    target_cell = context.target_cell

    def switch(asking: Any, cell: Any) -> Any:
        switched.append(cell.uuid)
        return target_cell(asking, cell)

    monkeypatch.setattr(context, "target_cell", switch)

    found = context.scatter_gather_cells(admin(), [cell1()], 60, lambda asking: asking.cell_uuid)

    novas.clean_up()
    assert found == {cell1().uuid: cell1().uuid}
    assert switched == []
