# SPDX-License-Identifier: Apache-2.0
"""An evacuation passes all allocations of the server with their generation to the writer, if the table has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.limits import SILENT_AFTER_S
from shared_scheduler.protocol.messages import Consumer
from tests.unit.core.scheduler_driver import SchedulerDriver, host_of, node_read, only, request, snapshot, taken

SERVER = "server-1"
WHOLE = Consumer(taken("node-1"), True, generation=1, whole=True)
EVACUATION = request(SERVER, merge_with_existing=True, ignore_hosts=frozenset([host_of("node-1")]))


def source_is_silent(generation: int, consumer: Consumer = WHOLE) -> SchedulerDriver:
    """The agent of the source has reported the server and is silent; Placement is read instead."""
    driver = SchedulerDriver().with_agents("node-1").without_agents("node-2")
    driver.hear(snapshot("node-1", sequence=2, consumers={SERVER: consumer}))
    driver.wait(2 * SILENT_AFTER_S)
    read = node_read("node-1")
    held, members = {SERVER: consumer.allocations}, frozenset([SERVER])
    driver.give(replace(read, consumers=held, members=members, generations={SERVER: generation}, read_at_s=driver.now))
    return driver


def test_a_server_not_written_since_its_agent_became_silent() -> None:
    driver = source_is_silent(generation=1)
    assert only(ef.WriteAllocation, driver.ask(EVACUATION)).standing == WHOLE


def test_a_server_that_was_written_since() -> None:
    driver = source_is_silent(generation=2)
    assert only(ef.WriteAllocation, driver.ask(EVACUATION)).standing is None


def test_a_server_of_which_its_agent_did_not_know_all() -> None:
    driver = source_is_silent(generation=1, consumer=replace(WHOLE, whole=False))
    assert only(ef.WriteAllocation, driver.ask(EVACUATION)).standing is None


@pytest.mark.parametrize("changes", [{"ignore_hosts": frozenset[str]()}, {"merge_with_existing": False}])
def test_another_operation_does_not_need_it(changes: dict[str, object]) -> None:
    driver = source_is_silent(generation=1)
    effects = driver.ask(replace(EVACUATION, **changes))  # type: ignore[arg-type]
    assert only(ef.WriteAllocation, effects).standing is None


def test_it_is_not_of_a_new_server_although_its_migration_record_could_not_be_read() -> None:
    driver = source_is_silent(generation=1)
    assert EVACUATION.move is None
    assert not only(ef.WriteAllocation, driver.ask(EVACUATION)).is_new
