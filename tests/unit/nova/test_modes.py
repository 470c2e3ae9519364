# SPDX-License-Identifier: Apache-2.0
"""The modes behind Nova's Service: who answers a request, what is written, and what is compared."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import oslo_messaging as messaging
import pytest
from nova import baserpc, exception, objects, rpc
from nova.objects import base as objects_base
from oslo_messaging._drivers import common

from shared_scheduler.conf.mode import Mode
from shared_scheduler.nova.running import RunningScheduler
from shared_scheduler.nova.serving import ModalService
from shared_scheduler.nova.stock import STOCK_TOPIC, StockAwayError, as_sent
from shared_scheduler.records.agreement import Agreement
from shared_scheduler.service import comparisons
from tests.unit.nova.conftest import admin, flavor, request_spec, user_context
from tests.unit.nova.test_manager import MANAGER, Cloud, ask, cloud, placement_app, small, uuids, world
from tests.unit.nova.test_request_filters import add_aggregate

__all__ = ["cloud", "placement_app", "world"]  # fixtures

WAIT_S = 60.0
IN_FLIGHT = 20


class Stock:
    """A nova-scheduler behind ours: chooses ``host``, or does what ``answer`` says."""

    target = messaging.Target(version="4.5")

    def __init__(self, cloud: Cloud, host: str) -> None:
        self._cloud = cloud
        self.host = host
        self.asked: list[dict[str, Any]] = []
        self.cast: list[str] = []
        self.answer: Callable[[], Any] = self.choose
        self.may_answer = threading.Event()
        self.may_answer.set()

    def choose(self) -> Any:
        node = self._cloud.nodes[self.host]
        return [[objects.Selection(
            service_host=self.host, nodename=self.host, compute_node_uuid=node, cell_uuid=node,
            limits=objects.SchedulerLimits(), allocation_request="{}", allocation_request_version="1.36",
            availability_zone="nova",
        )] for _ in self.asked[-1]["instance_uuids"]]  # fmt: skip

    def select_destinations(self, context: Any, **arguments: Any) -> Any:
        self.asked.append(arguments)
        self.may_answer.wait(WAIT_S)
        return self.answer()

    def update_aggregates(self, context: Any, aggregates: Any) -> None:
        self.cast.append("update_aggregates")

    def delete_aggregate(self, context: Any, aggregate: Any) -> None:
        self.cast.append("delete_aggregate")


@pytest.fixture
def stock(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stock]:
    monkeypatch.setattr("shared_scheduler.nova.stock.PING_S", WAIT_S)
    cloud.compute("cmp1", 16)
    cloud.compute("cmp2", 4)
    made = Stock(cloud, "cmp1")
    target = messaging.Target(topic=STOCK_TOPIC, server="stock1")
    server = rpc.get_server(target, [made, baserpc.BaseRPCAPI("scheduler", None)], objects_base.NovaObjectSerializer())
    server.start()
    yield made
    made.may_answer.set()
    server.stop()
    server.wait()


class Started:
    """Our scheduler in a mode, and the records that it has written."""

    def __init__(self, service: Any, records: Path) -> None:
        self.service = service
        self._records = records

    @property
    def running(self) -> RunningScheduler:
        found: RunningScheduler = self.service.manager._running
        return found

    def compared(self, count: int = 1) -> list[dict[str, Any]]:
        """The records of ``count`` comparisons."""
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            lines = self._records.read_text().splitlines() if self._records.exists() else []
            found = [row for row in map(json.loads, lines) if row["kind"] == "comparison"]
            if len(found) >= count:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{count} comparisons are not recorded")


@pytest.fixture
def start(
    cloud: Cloud, conf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Mode], Started]]:
    monkeypatch.setattr(comparisons, "OURS_MAX_S", WAIT_S)
    records = tmp_path / "records.jsonl"
    conf.set_override("admin_socket_dir", "", group="shared_scheduler")
    conf.set_override("records_file", str(records), group="shared_scheduler")
    conf.set_override("recheck_interval_s", 0.0, group="shared_scheduler")
    objects.Service.clear_min_version_cache()
    begun: list[Any] = []

    def begin(mode: Mode) -> Started:
        conf.set_override("mode", mode.value, group="shared_scheduler")
        made = ModalService.create(
            host="sched1", binary="nova-scheduler", topic="scheduler", manager=MANAGER, periodic_enable=False
        )
        made.start()
        begun.append(made)
        return Started(made, records)

    yield begin
    for each in begun:
        each.stop()


def test_observing_takes_no_request_until_it_is_active(start: Any, stock: Stock, cloud: Cloud) -> None:
    # given a scheduler that observes, and a request that waits in the queue
    started = start(Mode.OBSERVE)
    with ThreadPoolExecutor(1) as conductor:
        waiting = conductor.submit(ask, small(), uuids(1))
        time.sleep(0.5)
        assert not waiting.done()

        # when it becomes active, it serves the request
        started.service.enter(Mode.ACTIVE)
        [[chosen, *_]] = waiting.result(WAIT_S)

    assert cloud.used(chosen.service_host) == 2
    assert stock.asked == []


def test_shadow_returns_the_answer_of_stock_and_writes_nothing(start: Any, stock: Stock, cloud: Cloud) -> None:
    started = start(Mode.SHADOW)
    stock.host = "cmp2"  # ours prefers cmp1, which has more free
    [server] = uuids(1)

    [[chosen]] = ask(small(), [server])

    assert chosen.service_host == "cmp2"
    assert chosen.allocation_request_version == "1.36"
    [record] = started.compared()
    assert (record["result"], record["reason"]) == (Agreement.DIFFERENT, "weight")
    assert (record["ours"]["hosts"], record["stock"]["hosts"]) == (["cmp1"], ["cmp2"])
    assert (record["rank"], record["instances"]) == (2, [server])
    assert record["weights"][0] > record["weights"][1]
    assert cloud.used("cmp1") == cloud.used("cmp2") == 0


def test_the_request_is_passed_to_stock_unchanged(start: Any, stock: Stock) -> None:
    started = start(Mode.SHADOW)
    servers = uuids(1)

    ask(small(), servers)

    [asked] = stock.asked
    assert asked["instance_uuids"] == servers
    assert asked["return_objects"] and asked["return_alternates"]
    assert not asked["spec_obj"].root_required, "the request filters of ours have worked on a copy"
    [record] = started.compared()
    assert (record["result"], record["ours"]["hosts"]) == (Agreement.SAME, ["cmp1"])


def test_a_host_that_only_our_scheduler_refuses_is_reported_with_the_reason(
    start: Any, stock: Stock, cloud: Cloud
) -> None:
    cloud.compute("small", 1)
    started = start(Mode.SHADOW)
    stock.host = "small"

    ask(small(), uuids(1))

    [record] = started.compared()
    assert (record["result"], record["reason"]) == (Agreement.DIFFERENT, "no_room:VCPU")


def test_a_host_that_spreading_refuses_is_reported_with_that_reason(start: Any, stock: Stock, conf: Any) -> None:
    # given a nova-scheduler that takes a host in no rack, and a server that must be in one
    add_aggregate("two", "cmp2", rack="r2")
    conf.set_override("spread_keys", ["rack"], group="shared_scheduler")
    started = start(Mode.SHADOW)

    ask(small(scheduler_hints={"shared_scheduler:label": ["web"], "shared_scheduler:spread": ["key=rack"]}), uuids(1))

    [record] = started.compared()
    assert (record["result"], record["ours"]["hosts"]) == (Agreement.DIFFERENT, ["cmp2"])
    assert record["reason"] == "spread"


def test_stocks_refusal_is_returned_and_compared(start: Any, stock: Stock) -> None:
    started = start(Mode.SHADOW)

    def refuse() -> Any:
        raise exception.NoValidHost(reason="There are not enough hosts available.")

    stock.answer = refuse
    with pytest.raises(exception.NoValidHost):
        ask(small(), uuids(1))
    with pytest.raises(exception.NoValidHost):
        ask(request_spec(flavor=flavor(vcpus=99)), uuids(1))

    results = {record["result"]: record["reason"] for record in started.compared(2)}
    assert results == {Agreement.STOCK_REFUSED: "NoValidHost", Agreement.BOTH_REFUSED: ""}


def test_a_malformed_answer_is_returned_unchanged(start: Any, stock: Stock) -> None:
    started = start(Mode.SHADOW)
    stock.answer = lambda: {"not": ["an", "answer"]}

    assert ask(small(), uuids(1)) == {"not": ["an", "answer"]}

    [record] = started.compared()
    assert (record["result"], record["reason"]) == (Agreement.STOCK_FAILED, "unreadable_answer")


def test_a_stock_that_does_not_answer_in_time_is_an_error_as_without_us(start: Any, stock: Stock, conf: Any) -> None:
    started = start(Mode.SHADOW)
    stock.may_answer.clear()
    conf.set_override("long_rpc_timeout", 1)

    with pytest.raises(messaging.MessagingTimeout):
        started.service.manager.select_destinations(
            user_context(), spec_obj=small(), instance_uuids=uuids(1), return_objects=True
        )

    conf.clear_override("long_rpc_timeout")
    [record] = started.compared()
    assert (record["result"], record["reason"]) == (Agreement.STOCK_FAILED, "MessagingTimeout")


def test_a_failure_of_ours_does_not_touch_the_request(
    start: Any, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = start(Mode.SHADOW)

    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(started.running, "preview", broken)

    [[chosen]] = ask(small(), uuids(1))

    assert chosen.service_host == "cmp1"
    [record] = started.compared()
    assert (record["result"], record["reason"]) == (Agreement.OURS_FAILED, "RuntimeError")


def test_a_request_that_ours_cannot_read_is_passed_on_all_the_same(start: Any, stock: Stock) -> None:
    started = start(Mode.SHADOW)
    stock.answer = list

    answer = started.service.manager.select_destinations(user_context(), spec_obj=small(), instance_uuids=1)

    assert answer == []
    assert [asked["instance_uuids"] for asked in stock.asked] == [1]


def test_comparisons_that_find_no_place_are_dropped_and_counted(
    start: Any, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a scheduler whose decisions hang, and more requests than places
    monkeypatch.setattr(comparisons, "WAITING_MAX", 3)
    started = start(Mode.SHADOW)
    hangs = threading.Event()
    real = started.running.preview

    def slow(*arguments: Any) -> Any:
        hangs.wait(WAIT_S)
        return real(*arguments)

    monkeypatch.setattr(started.running, "preview", slow)

    # when they are asked, all are answered
    for _ in range(5):
        [[chosen]] = ask(small(), uuids(1))
        assert chosen.service_host == "cmp1"
    hangs.set()

    results = sorted(record["result"] for record in started.compared(5))
    assert results == [Agreement.DROPPED] * 2 + [Agreement.SAME] * 3
    assert started.running.engine.counters["comparisons_dropped"] == 2


def test_requests_in_flight_end_as_they_began(start: Any, stock: Stock, cloud: Cloud) -> None:
    # given requests that wait for stock
    started = start(Mode.SHADOW)
    stock.may_answer.clear()
    with ThreadPoolExecutor(IN_FLIGHT + 1) as conductor:
        passed = [conductor.submit(ask, small(), uuids(1)) for _ in range(IN_FLIGHT)]
        _until(lambda: len(stock.asked) == IN_FLIGHT)

        # when the mode changes three times at once
        for mode in (Mode.ACTIVE, Mode.OBSERVE, Mode.ACTIVE):
            started.service.enter(mode)
        [[own, *_]] = conductor.submit(ask, small(), uuids(1)).result(WAIT_S)

        # then a new request is ours, and the others get stock's answer
        assert cloud.used(own.service_host) == 2
        stock.may_answer.set()
        for each in passed:
            [[chosen]] = each.result(WAIT_S)
            assert chosen.allocation_request == "{}"
    assert len(stock.asked) == IN_FLIGHT
    assert len(started.compared(IN_FLIGHT)) == IN_FLIGHT


def test_requests_that_wait_for_stock_do_not_delay_others_after_the_change(start: Any, stock: Stock, conf: Any) -> None:
    # given a scheduler with two threads, which wait for a nova-scheduler that does not answer
    conf.set_override("executor_thread_pool_size", 2)
    started = start(Mode.SHADOW)
    stock.may_answer.clear()
    with ThreadPoolExecutor(2) as conductor:
        passed = [conductor.submit(ask, small(), uuids(1)) for _ in range(2)]
        _until(lambda: len(stock.asked) == 2)

        # when it becomes active, the next request is served
        started.service.enter(Mode.ACTIVE)
        [[own, *_]] = ask(small(), uuids(1))
        assert own.allocation_request != "{}"
        assert not any(each.done() for each in passed)

        stock.may_answer.set()
        assert all(each.result(WAIT_S) for each in passed)
    conf.clear_override("executor_thread_pool_size")


def test_shadow_is_not_entered_without_a_nova_scheduler(
    start: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared_scheduler.nova.stock.PING_S", 0.2)
    cloud.compute("cmp1", 16)
    started = start(Mode.ACTIVE)

    with pytest.raises(StockAwayError, match="start shared-scheduler-stock"):
        started.service.enter(Mode.SHADOW)

    assert started.service.manager.mode.value is Mode.ACTIVE
    [[chosen, *_]] = ask(small(), uuids(1))
    assert cloud.used(chosen.service_host) == 2


def test_casts_reach_stock_in_shadow_only(start: Any, stock: Stock) -> None:
    started = start(Mode.ACTIVE)
    manager = started.service.manager

    manager.update_aggregates(admin(), [])
    started.service.enter(Mode.SHADOW)
    manager.update_aggregates(admin(), [])

    _until(lambda: stock.cast == ["update_aggregates"])


def _until(true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.02)


class FlavorDiskSmallerThanImage(Exception):
    """An exception whose module no conductor restores."""


def over_the_wire(error: Exception) -> Any:
    """What the receiver of an exception restores."""
    try:
        raise error
    except Exception as raised:
        data = common.serialize_remote_exception((type(raised), raised, raised.__traceback__))
        return common.deserialize_remote_exception(data, ["nova.exception"])


def _text(error: Any) -> str:
    if isinstance(error, messaging.RemoteError):
        return str(error.value)
    text = error.args[0] if type(error).__module__ == "builtins" else error
    return str(text).partition("\nTraceback")[0]


@pytest.mark.parametrize(
    "error",
    [
        exception.NoValidHost(reason="There are not enough hosts available."),
        exception.AllocationUpdateFailed(consumer_uuid="a", error="b"),
        ValueError("out of\nrange", 7),
        KeyError("missing"),
        FlavorDiskSmallerThanImage("no\nroom"),
    ],
)
def test_an_exception_of_stock_reaches_the_conductor_with_its_class_and_message(error: Exception) -> None:
    direct = over_the_wire(error)

    passed_on = over_the_wire(as_sent(over_the_wire(error)))

    assert type(passed_on).__name__ == type(direct).__name__
    assert type(passed_on).__module__ == type(direct).__module__
    assert [base.__name__ for base in type(passed_on).__mro__] == [base.__name__ for base in type(direct).__mro__]
    assert _text(passed_on) == _text(direct)
    assert getattr(passed_on, "exc_type", "") == getattr(direct, "exc_type", "")
    assert getattr(passed_on, "kwargs", {}) == getattr(direct, "kwargs", {})
