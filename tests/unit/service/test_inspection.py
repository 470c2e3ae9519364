# SPDX-License-Identifier: Apache-2.0
"""Queries to a scheduler do not delay its decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.conf.mode import CurrentMode, Mode
from shared_scheduler.core.events import ServicesRead
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Increment, Leave
from shared_scheduler.service import inspection
from shared_scheduler.service.cell_channel import CellChannel
from shared_scheduler.service.engine import Engine
from shared_scheduler.transport.channel import Channel
from tests.support.memory_bus import MemoryBus
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, host_of, only_claim, request, snapshot

MODE = CurrentMode(Mode.ACTIVE)
NODES = [f"node-{number}" for number in range(120)]


class InspectedEngine:
    """In the engine's place: counts the rows that are described while nothing else may happen."""

    def __init__(self, core: SchedulerCore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core = core
        self.described: list[int] = []
        describe = core.table.describe
        monkeypatch.setattr(core.table, "describe", lambda node: self._count(describe(node)))

    def _count(self, row: Any) -> Any:
        self.described[-1] += 1
        return row

    def clock(self) -> float:
        return 100.0

    def inspect(self, question: Callable[[SchedulerCore], Any]) -> Any:
        self.described.append(0)
        return question(self.core)


@pytest.mark.parametrize("question", ["nodes", "tables"])
def test_all_nodes_are_reported_a_few_at_a_time(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    core = SchedulerDriver().without_agents(*NODES).core
    engine = InspectedEngine(core, monkeypatch)

    answer = inspection.questions(cast(Engine, engine), "sched1", dict, list, dict, MODE, {})[question]({})

    assert sorted(row["node"] for row in answer["nodes"]) == sorted(NODES)
    assert max(engine.described) <= inspection.NODES_PER_PART < len(NODES)


class Still:
    """In the engine's place: a core, and the counters of its edges."""

    def __init__(self, driver: SchedulerDriver, channels: dict[str, CellChannel] | None = None) -> None:
        self.driver, self.channels, self.in_flight = driver, channels or {}, 4
        self.counters = Counter(requests_answered=5, requests_failed=2)
        self.channel_counters = [own.channel.counters for own in self.channels.values()]

    def clock(self) -> float:
        return self.driver.now

    def inspect(self, question: Callable[[SchedulerCore], Any]) -> Any:
        return question(self.driver.core)


def asked(driver: SchedulerDriver, question: str, channels: dict[str, CellChannel] | None = None) -> Any:
    queues, engine = {"records": lambda: 7}, cast(Engine, Still(driver, channels))
    answer = inspection.questions(engine, "sched1", dict, list, dict, MODE, queues)[question]({})
    kind = schemas()[question]
    Draft202012Validator(kind.get("items", kind)).validate(answer)
    return answer


def test_the_status_and_the_nodes_have_the_shapes_that_programs_expect() -> None:
    # given a node with an agent and a claim, one without an agent, and the connection to a cell
    driver = SchedulerDriver().with_agents("node-1").without_agents("node-2")
    driver.ask()
    channel = CellChannel("cell-1", Channel(MemoryBus().scheduler_endpoint("sched1")), lambda event: None, name="cell1")

    answer = asked(driver, "status", {"cell-1": channel})

    assert (answer["nodes"], answer["freshness"], answer["claims_open"]) == (2, {"fresh": 1, "provisional": 1}, 1)
    assert answer["cells"]["cell-1"]["name"] == "cell1" and not answer["cells"]["cell-1"]["connected"]
    rows = asked(driver, "nodes")["nodes"]
    assert [row["host"] for row in rows] == ["host-1", "host-2"] and all(row["choosable"] for row in rows)


def test_top_counts_windows_lags_decisions_and_queues() -> None:
    # given two nodes whose agents are heard, one that has missed three messages, and one without an agent
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3").without_agents("node-4")
    driver.hear(Increment("node-3", 1, 5, {}))

    answer = asked(driver, "top")

    assert (answer["nodes"], answer["decisions"], answer["failures"]) == (4, 7, 2)
    assert answer["started_at"] > 0.0
    assert answer["windows"]["in_order"] == 2 and answer["windows"]["gap"] == 1
    assert answer["lags"] == {"0": 2, "1": 0, "4": 1, "16": 0, "more": 0, "silent": 0, "without_agent": 1}
    assert [(row["host"], row["lag"]) for row in answer["lagging"]] == [("host-3", 4)]
    assert answer["queues"] == {"requests": 4, "records": 7}


def test_counters_of_a_message_queue_count_once_and_stay_when_its_cells_have_left_it() -> None:
    # given two cells with one message queue, of which three messages were rejected
    engine = Engine(SchedulerDriver().core)
    channel = CellChannel("cell-1", Channel(MemoryBus().scheduler_endpoint("sched1")), lambda event: None)
    channel.channel.counters["messages_rejected"] = 3
    for cell in ("cell-1", "cell-2"):
        engine.use_channel(cell, channel)
    # then they are three
    assert inspection.counters(engine)["messages_rejected"] == 3
    # and they are still when one cell has moved, and one was removed: Prometheus would take less for a restart
    moved = CellChannel("cell-1", Channel(MemoryBus().scheduler_endpoint("sched1")), lambda event: None)
    engine.use_channel("cell-1", moved)
    del engine.channels["cell-2"]
    moved.channel.counters["messages_rejected"] = 1
    assert inspection.counters(engine)["messages_rejected"] == 4


class Growing(Counter[str]):
    """Another thread counts something for the first time while these are added up."""

    def items(self) -> Any:
        for each in super().items():
            self["first_of_its_kind"] += 1
            yield each


def test_counters_are_read_while_other_threads_count() -> None:
    engine = Engine(SchedulerDriver().core)
    engine.channel_counters = [Counter(messages_rejected=3), Growing(messages_rejected=1, outbox_full=1)]
    engine.counters = Growing(requests_answered=5, requests_failed=2)
    assert inspection.counters(engine)["messages_rejected"] == 4


def test_a_node_in_quarantine_is_named_by_its_host() -> None:
    driver = SchedulerDriver(refusals_max=1).with_agents("node-1", "node-2")
    driver.refuse(only_claim(driver.ask()))

    status = asked(driver, "status")

    [node] = status["quarantined"]
    assert status["quarantined_hosts"] == [host_of(node)]


def with_silent_agents(*silent: str) -> SchedulerDriver:
    """One agent is heard, these have left, and one node never had one."""
    driver = SchedulerDriver().with_agents("node-1", *silent).without_agents("node-9")
    for node in silent:
        driver.now += 0.5
        driver.hear(Leave(node, 1, 1))
    return driver


def test_an_agent_that_was_heard_and_is_not_now_is_told_from_one_that_never_was() -> None:
    driver = with_silent_agents("node-2", "node-3")
    driver.now += 10.0

    status, nodes, load = (asked(driver, question) for question in ("status", "nodes", "top"))

    assert {row["node"]: row["agent"] for row in nodes["nodes"]} == {
        "node-1": "heard", "node-2": "silent", "node-3": "silent", "node-9": "none",
    }  # fmt: skip
    assert status["agents_silent"] == 2
    ages = [(one["host"], one["heard_ago_s"]) for one in status["silent_agents"]]
    assert ages == [("host-2", 10.5), ("host-3", 10.0)]
    assert (load["lags"]["0"], load["lags"]["silent"], load["lags"]["without_agent"]) == (1, 2, 1)
    assert {row["host"] for row in load["lagging"]} == {"host-2", "host-3"}


def test_an_agent_that_does_not_answer_is_silent_although_its_window_is_not() -> None:
    # given an agent that gives no verdict, and does not answer when it is asked for its state
    driver = SchedulerDriver().with_agents("node-1")
    driver.ask()
    driver.wait(14.0)

    # then its row is read from the databases, and it counts as silent
    [row] = asked(driver, "nodes")["nodes"]
    assert (row["freshness"], row["agent"]) == ("provisional", "silent")
    assert [one["agent"] for one in asked(driver, "top")["lagging"]] == ["silent"]


def test_an_agent_that_returns_is_not_silent_any_more() -> None:
    driver = with_silent_agents("node-2")
    driver.hear(snapshot("node-2", epoch=2))

    assert (asked(driver, "status")["agents_silent"], asked(driver, "top")["lags"]["silent"]) == (0, 0)


def test_not_all_of_many_silent_agents_are_named() -> None:
    driver = with_silent_agents(*(f"node-{number}" for number in range(10, 40)))

    status = asked(driver, "status")

    assert (status["agents_silent"], len(status["silent_agents"])) == (30, inspection.SILENT_NAMED_MAX)
    assert status["silent_agents"][0]["host"] == "host-10", "the one that has been silent for the longest time"


def test_the_fleet_has_what_each_node_has_and_holds() -> None:
    driver = SchedulerDriver().with_agents("node-1").without_agents("node-2")
    driver.ask()

    fleet = asked(driver, "fleet")["hosts"]

    assert [row["host"] for row in fleet] == ["host-1", "host-2"]
    assert all(row["resources"]["VCPU"]["capacity"] > 0 for row in fleet)
    assert sum(row["resources"]["VCPU"]["used"] for row in fleet) > 0, "the claim of the request counts"


def test_a_disabled_node_has_the_reason_that_nova_keeps() -> None:
    driver = SchedulerDriver().with_agents("node-1").without_agents("node-2")
    facts = ServiceFacts("host-1", disabled=True, record={"disabled_reason": "exchange of memory"})
    driver.give(ServicesRead(CELL, (facts, ServiceFacts("host-2")), False))

    for rows in (asked(driver, "fleet")["hosts"], asked(driver, "nodes")["nodes"]):
        assert [(row["why_not"], row["disabled_reason"]) for row in rows] == [
            ("disabled", "exchange of memory"), ("", ""),
        ]  # fmt: skip


def test_a_report_names_the_requests_under_way_and_what_waits() -> None:
    driver = SchedulerDriver().with_agents("n1", "n2").without_agents("n3")
    driver.ask(request("vm-1"))

    told = inspection.report(cast(Engine, Still(driver)), {"placement_writes": lambda: 6})

    [(_, state)] = told["requests"].items()
    assert "1 instances" in state
    assert (told["table"]["nodes"], told["table"]["claims_open"]) == (3, 1)
    assert told["queues"] == {"requests": 4, "placement_writes": 6}
    assert sum(told["windows"].values()) == 3
