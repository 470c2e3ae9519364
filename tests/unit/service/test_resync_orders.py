# SPDX-License-Identifier: Apache-2.0
"""The one action of the admin socket: what it accepts, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.core.effects import Effect
from shared_scheduler.core.events import Event
from shared_scheduler.daemon.admin import AdminError, AdminServer, ask
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.resync_orders import OrderError, ResyncOrders
from tests.unit.core.scheduler_driver import SchedulerDriver, resyncs_in, snapshot
from tests.unit.core.test_ordered_resyncs import listed

ORDER, NEXT_ORDER = "00000000000000aa", "00000000000000ab"


class Stepped(Engine):
    """An engine without threads, whose clock stands still; remembers the effects."""

    def __init__(self, driver: SchedulerDriver) -> None:
        super().__init__(driver.core, lambda: driver.now)
        self.effects: list[Effect] = []

    def handle(self, event: Event) -> None:
        self.effects += self.core.step(event, self.clock())


@pytest.fixture
def driver() -> SchedulerDriver:
    return listed(SchedulerDriver().with_agents("node-1", "node-2"), "node-1", "node-2")


@pytest.fixture
def engine(driver: SchedulerDriver) -> Stepped:
    return Stepped(driver)


@pytest.fixture
def path(engine: Stepped, tmp_path: Path) -> Iterator[Path]:
    orders = ResyncOrders(engine, "sched1")
    server = AdminServer(tmp_path / "sched1-17.sock", {"resync": orders.order, "resync-result": orders.result})
    server.start()
    yield tmp_path / "sched1-17.sock"
    server.stop()


def test_an_order_is_carried_out_and_its_result_can_be_asked_for(
    path: Path, engine: Stepped, driver: SchedulerDriver
) -> None:
    # when
    (before,) = ask(path, "resync", host="host-1", order=ORDER)["nodes"]
    # then the agent of this node was asked, and nobody waits for it
    assert resyncs_in(engine.effects) == ["node-1"]
    assert (before["node"], before["source"], before["result"]) == ("node-1", "agent", "waiting")
    # when it has answered
    driver.hear(snapshot("node-1", sequence=5))
    (after,) = ask(path, "resync-result", host="host-1", order=ORDER)["nodes"]
    # then
    assert (after["result"], after["epoch_before"], after["sequence_before"]) == ("read", 1, 1)
    assert (after["epoch"], after["sequence"]) == (1, 5)
    # and programs find the shape that they expect
    told = ask(path, "resync-result", host="host-1", order=ORDER)
    Draft202012Validator(schemas()["resync"]).validate([told])


def test_the_result_of_an_order_does_not_repeat_it(path: Path, engine: Stepped) -> None:
    for _ in range(3):
        ask(path, "resync-result", host="host-1", order=ORDER)
    assert engine.effects == []


def test_an_order_that_comes_too_soon_is_told_so(path: Path, engine: Stepped) -> None:
    ask(path, "resync", host="host-1", order=ORDER)
    (refused,) = ask(path, "resync", host="host-1", order=NEXT_ORDER)["nodes"]
    assert refused["result"] == "too_soon"
    assert len(resyncs_in(engine.effects)) == 1


def test_a_host_that_is_not_known_has_no_nodes(path: Path, engine: Stepped) -> None:
    assert ask(path, "resync", host="host-9", order=ORDER)["nodes"] == []
    assert engine.effects == []


@pytest.mark.parametrize("host", [None, "", "h" * 256, 17, ["host-1"]])
def test_a_host_of_another_shape_is_refused(path: Path, engine: Stepped, host: object) -> None:
    with pytest.raises(AdminError, match="host: a name"):
        ask(path, "resync", host=host, order=ORDER)
    assert engine.effects == []


@pytest.mark.parametrize("order", [None, "", ORDER + "\n", ORDER.upper(), 17])
def test_an_order_of_another_shape_is_refused(engine: Stepped, order: object) -> None:
    with pytest.raises(OrderError, match="16 hexadecimal digits"):
        ResyncOrders(engine, "sched1").order({"host": "host-1", "order": order})
    assert engine.effects == []
