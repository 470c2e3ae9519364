# SPDX-License-Identifier: Apache-2.0
"""An operator has the nodes of a host read anew: which source is asked, what counts as its answer, how often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core import ordered_resyncs
from shared_scheduler.core.ordered_resyncs import ResyncState
from shared_scheduler.core.step import Step
from shared_scheduler.protocol.messages import Reason, Resync, Verdict
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, claims_in, host_of, node_read, of_kind, snapshot

ORDERS = iter(range(10_000))


def listed(driver: SchedulerDriver, *nodes: str) -> SchedulerDriver:
    """The database has these nodes."""
    hosts = {node: host_of(node) for node in nodes}
    driver.give(ev.NodesListed(CELL, hosts, frozenset(nodes), driver.now))
    return driver


def order(driver: SchedulerDriver, host: str = "host-1") -> tuple[str, list[ef.Effect]]:
    """The name of the order, and its effects."""
    name = f"order {next(ORDERS)}"
    return name, driver.give(ev.ResyncOrdered(host, cause=name))


def asked_agents(effects: list[ef.Effect]) -> list[Resync]:
    return [one.message for one in of_kind(ef.Send, effects) if isinstance(one.message, Resync)]


def state(driver: SchedulerDriver, name: str, node: str = "node-1") -> ResyncState | None:
    found = driver.core.ordered_resyncs.get(node, name)
    return None if found is None else found.state


def free_ram_mb(driver: SchedulerDriver) -> object:
    """Of the row of node-1."""
    row = driver.core.table.row(driver.core.table.slot_of("node-1") or 0)
    return None if row is None else row.leaves["cn.free_ram_mb"]


@pytest.fixture
def driver() -> SchedulerDriver:
    """Two nodes with agents."""
    nodes = ("node-1", "node-2")
    return listed(SchedulerDriver(refusals_max=2).with_agents(*nodes), *nodes)


def test_the_agent_reads_placement_and_its_snapshot_replaces_the_row(driver: SchedulerDriver) -> None:
    # given a row that differs from what the agent has, although no message is missing
    assert free_ram_mb(driver) == 8192
    # when
    name, effects = order(driver)
    # then only the agent of this host is asked, and the node may be selected meanwhile
    (asked,) = asked_agents(effects)
    assert (asked.node, asked.epoch, asked.after_sequence, asked.recheck) == ("node-1", 0, 0, True)
    assert driver.core.table.freshness("node-1").value == "suspect"
    assert state(driver, name) is ResyncState.WAITING
    # when it answers with the sequence that the row has
    driver.hear(snapshot("node-1", free_mb=4096))
    # then
    assert state(driver, name) is ResyncState.READ
    assert free_ram_mb(driver) == 4096
    assert driver.core.table.freshness("node-1").value == "fresh"


def test_a_request_that_the_agent_does_not_answer_is_repeated(driver: SchedulerDriver) -> None:
    name, _ = order(driver)
    assert len(asked_agents(driver.wait(3))) >= 1
    assert state(driver, name) is ResyncState.WAITING


def test_a_node_without_an_agent_is_read_from_the_databases() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    # when
    name, effects = order(driver)
    # then
    assert [one.node for one in of_kind(ef.RefreshNode, effects)] == ["node-1"]
    assert asked_agents(effects) == []
    # a read that began before the order is not its answer
    driver.give(replace(node_read("node-1"), read_at_s=driver.now - 0.1))
    assert state(driver, name) is ResyncState.WAITING
    driver.give(replace(node_read("node-1"), read_at_s=driver.now + 0.1))
    assert state(driver, name) is ResyncState.READ


def test_an_agent_that_has_gone_meanwhile_is_read_from_the_databases(driver: SchedulerDriver) -> None:
    name, _ = order(driver)
    assert "node-1" in [one.node for one in of_kind(ef.RefreshNode, driver.wait(driver.core.settings.silent_after_s))]
    driver.give(replace(node_read("node-1"), read_at_s=driver.now))
    assert state(driver, name) is ResyncState.READ


def refuse_claims(driver: SchedulerDriver) -> None:
    """node-1 refuses claims until it is in quarantine."""
    for _ in range(50):
        if "node-1" in driver.core.quarantine.nodes:
            return
        effects = driver.ask()
        while claims := claims_in(effects):
            (claim,) = claims
            accepted = claim.node != "node-1"
            reason = None if accepted else Reason("no_capacity")
            effects = driver.hear(Verdict(claim.claim_id, claim.node, 1, accepted, reason, 0))
    raise AssertionError("node-1 was not put into quarantine")


def test_a_quarantine_ends_when_the_row_has_been_read_and_not_before(driver: SchedulerDriver) -> None:
    refuse_claims(driver)
    # when
    name, _ = order(driver)
    # then it goes on until the agent has answered
    assert driver.core.quarantine.nodes == {"node-1"}
    driver.hear(snapshot("node-1", sequence=9))
    assert driver.core.quarantine.nodes == frozenset()
    found = driver.core.ordered_resyncs.get("node-1", name)
    assert found is not None and found.ended_quarantine
    # and a node that goes on refusing is in quarantine again
    refuse_claims(driver)


def test_a_snapshot_that_nobody_has_ordered_ends_no_quarantine(driver: SchedulerDriver) -> None:
    refuse_claims(driver)
    driver.hear(snapshot("node-1", sequence=9))
    assert driver.core.quarantine.nodes == {"node-1"}


def test_a_loop_in_a_script_asks_one_host_once_in_ten_seconds(driver: SchedulerDriver) -> None:
    sent = 0
    for _ in range(200):
        name, effects = order(driver)
        sent += len(asked_agents(effects))
        if state(driver, name) is not None:
            driver.hear(snapshot("node-1"))
        driver.now += 0.1
    assert sent == 2
    assert driver.core.counters()["resyncs_ordered_too_soon"] == 198
    # the other host is not refused for that
    name, _ = order(driver, "host-2")
    assert state(driver, name, "node-2") is ResyncState.WAITING


def test_orders_for_many_hosts_are_limited_together() -> None:
    nodes = [f"node-{number}" for number in range(100)]
    driver = listed(SchedulerDriver().with_agents(*nodes), *nodes)
    sent = sum(len(asked_agents(order(driver, host_of(node))[1])) for node in nodes)
    assert sent == ordered_resyncs.ORDERS_BURST


def test_a_host_that_only_the_common_limit_refused_may_be_named_again_at_once() -> None:
    # given so many orders that the next one is refused
    nodes = [f"node-{number}" for number in range(int(ordered_resyncs.ORDERS_BURST) + 1)]
    driver = listed(SchedulerDriver().with_agents(*nodes), *nodes)
    for node in nodes[:-1]:
        order(driver, host_of(node))
    last = nodes[-1]
    refused, _ = order(driver, host_of(last))
    assert state(driver, refused, last) is None
    # when there is room again, a moment later
    driver.now += 1.5 / ordered_resyncs.ORDERS_PER_S
    name, effects = order(driver, host_of(last))
    # then this host, which nobody has read, is read
    assert len(asked_agents(effects)) == 1 and state(driver, name, last) is ResyncState.WAITING


def test_a_loop_over_one_host_leaves_room_for_the_others() -> None:
    driver = listed(SchedulerDriver().with_agents("node-1", "node-2"), "node-1", "node-2")
    for _ in range(100):
        order(driver, "host-1")
    name, _ = order(driver, "host-2")
    assert state(driver, name, "node-2") is ResyncState.WAITING


def test_the_agent_reads_placement_also_if_the_order_had_to_wait_for_the_limit_of_resyncs(
    driver: SchedulerDriver,
) -> None:
    # given a scheduler that has used all its resyncs for other nodes
    step, others = Step(driver.now, "others"), [f"node-{number}" for number in range(10, 70)]
    listed(driver.with_agents(*others), *others)
    for node in others:
        driver.core.nodes.distrust(step, node)
    # when
    _, effects = order(driver)
    assert asked_agents(effects) == []
    # then
    asked = [one for one in asked_agents(driver.wait(15)) if one.node == "node-1"]
    assert asked[0].recheck
    # and once is enough: an agent that cannot read Placement answers the next one
    assert len(asked) > 1 and not any(one.recheck for one in asked[1:])


def test_a_host_that_no_database_has_is_not_asked(driver: SchedulerDriver) -> None:
    driver.hear(snapshot("node-3"))  # known from its messages only
    assert order(driver, "host-3")[1] == [] and order(driver, "host-4")[1] == []


def test_what_is_remembered_has_a_bound(driver: SchedulerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_resyncs, "ORDERS_MAX", 1)
    first, _ = order(driver, "host-1")
    second, _ = order(driver, "host-2")
    assert state(driver, first) is None
    assert state(driver, second, "node-2") is ResyncState.WAITING


def test_a_node_that_no_longer_exists_is_forgotten(driver: SchedulerDriver) -> None:
    name, _ = order(driver)
    driver.give(ev.NodesGone(CELL, frozenset({"node-1"})))
    assert state(driver, name) is None
