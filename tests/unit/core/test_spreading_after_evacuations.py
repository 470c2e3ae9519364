# SPDX-License-Identifier: Apache-2.0
"""Servers are spread while evacuated ones hold allocations on their sources, which are down.

Such a server counts once in each domain where it holds something, and it is in one of them for certain if all of its
nodes are there."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.spread_check import DEFERRAL_PAUSE_MAX_S
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Consumer
from tests.unit.core.racks import HINTS, WEB
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    claims_in,
    host_of,
    node_read,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)


def cloud(*agents: str, without: tuple[str, ...] = (), **racks: str) -> SchedulerDriver:
    """Nodes in racks (names with _ for -); those of ``without`` have no agent."""
    driver = SchedulerDriver(decision=DecisionSettings(spread_keys=("rack",)))
    driver.with_agents(*agents).without_agents(*without)
    at = {name.replace("_", "-"): rack for name, rack in racks.items()}
    hosts = {rack: frozenset(host_of(node) for node in at if at[node] == rack) for rack in at.values()}
    facts = (AggregateFacts(n, f"aggregate-{n}", rack, hosts[rack], {"rack": rack}) for n, rack in enumerate(hosts, 1))
    driver.give(ev.AggregatesRead(tuple(facts)))
    return driver


def shows(driver: SchedulerDriver, node: str, *servers: str, free_mb: int = 8192) -> None:
    """The agent of a node reports servers of the label."""
    there = {uuid: Consumer(taken(node), True, WEB) for uuid in servers}
    driver.hear(snapshot(node, 2, free_mb=free_mb, consumers=there))


def written(driver: SchedulerDriver, effects: list[ef.Effect]) -> ef.AskGroup:
    """The request is written, and asks where the others are."""
    for claim in claims_in(effects):
        effects = driver.accept(claim)
    return only(ef.AskGroup, driver.written(only(ef.WriteAllocation, effects)))


def found(driver: SchedulerDriver, ask: ef.AskGroup, unanswered: str = "", **nodes: str) -> list[ef.Effect]:
    """These servers (names with _ for -) hold allocations on these nodes."""
    standing = {name.replace("_", "-"): frozenset(of.split()) for name, of in nodes.items()}
    return driver.give(ev.GroupAnswered(ask.ask_id, standing, "", frozenset(unanswered.split()), cause=ask.cause))


def after_pause(driver: SchedulerDriver, delete: ef.DeleteAllocation) -> list[ef.Effect]:
    """The claim, or the failure, of the request after it has deleted what it wrote."""
    driver.deleted(delete)
    found, until_s = list[ef.Effect](), driver.now + DEFERRAL_PAUSE_MAX_S
    while not found and driver.now < until_s:
        found = [one for one in driver.wait(0.01) if not isinstance(one, ef.AskFitting)]
    return found


def test_a_server_that_was_evacuated_within_its_rack_counts_once_there() -> None:
    # given two racks with one server each, the first of which was evacuated within its rack; both agents show it
    driver = cloud("node-1", "node-2", "node-3", node_1="r1", node_2="r2", node_3="r1")
    shows(driver, "node-1", "server-7")
    shows(driver, "node-3", "server-7", free_mb=4096)
    shows(driver, "node-2", "server-6", free_mb=2048)
    # when another one comes, then each rack may have two
    ask = written(driver, driver.ask(request("server-5", hints=HINTS)))
    only(ef.Answer, found(driver, ask, server_7="node-1 node-3"))


def test_without_agents_servers_that_were_evacuated_within_their_rack_count_once_there() -> None:
    # given two servers that were evacuated within the first rack, and three in the second one
    driver = cloud("node-2", without=("node-1", "node-3"), node_1="r1", node_2="r2", node_3="r1")
    shows(driver, "node-2", "server-1", "server-2", "server-3")
    moved = {"server-7": {"node-3": {"VCPU": 1}}, "server-8": {"node-3": {"VCPU": 1}}}
    driver.give(replace(node_read("node-3"), consumers=moved, members=frozenset(moved)))
    # when another one comes, then the first rack may have a third
    ask = written(driver, driver.ask(request("server-5", hints=HINTS)))
    answer = only(ef.Answer, found(driver, ask, server_7="node-1 node-3", server_8="node-1 node-3"))
    assert answer.choices[0][0].node in ("node-1", "node-3")


def test_the_decision_after_a_check_counts_it_once_in_its_rack_too() -> None:
    # given two racks with one server each, the first of which was evacuated within its rack
    driver = cloud("node-1", "node-2", "node-3", node_1="r1", node_2="r2", node_3="r1")
    shows(driver, "node-1", "server-7")
    shows(driver, "node-3", "server-7", free_mb=4096)
    shows(driver, "node-2", "server-6", free_mb=2048)
    # when another one is in the second rack at the same moment as the next one
    ask = written(driver, driver.ask(request("server-5", hints=HINTS)))
    effects = found(driver, ask, "server-4", server_7="node-1 node-3", server_4="node-2")
    # then that one has a place in the first rack
    for delete in of_kind(ef.DeleteAllocation, effects):
        ask = written(driver, after_pause(driver, delete))
        effects = found(driver, ask, "server-4", server_7="node-1 node-3", server_4="node-2")
    answer = only(ef.Answer, effects)
    assert answer.choices[0][0].node in ("node-1", "node-3")


def test_a_server_that_was_evacuated_twice_counts_on_each_source_at_the_next_decision() -> None:
    # given four racks, and a server that was evacuated from the first into the second and from there into the third;
    # the table does not have it in the first one any more, which is the best
    driver = cloud("node-1", "node-2", "node-3", "node-4", node_1="r1", node_2="r2", node_3="r3", node_4="r4")
    shows(driver, "node-2", "server-7", free_mb=4096)
    shows(driver, "node-3", "server-7", free_mb=4096)
    shows(driver, "node-4", free_mb=2048)
    # when another one is placed in the first rack, and the check finds what the server still holds there
    ask = written(driver, driver.ask(request("server-5", hints=HINTS)))
    assert ask.known == {"server-5"}
    delete = only(ef.DeleteAllocation, found(driver, ask, server_7="node-1 node-2 node-3"))
    # then it goes to the only rack that has none
    assert only_claim(after_pause(driver, delete)).node == "node-4"
