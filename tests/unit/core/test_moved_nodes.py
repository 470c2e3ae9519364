# SPDX-License-Identifier: Apache-2.0
"""Nova gives a compute node to another service host, as after the end of one of several that share the nodes of one
driver: from then on the row, which the agent of the old host has published, is not what a claim would get.
"""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Heartbeat
from tests.unit.core.scheduler_driver import (
    CELL,
    SchedulerDriver,
    claims_in,
    host_of,
    node_read,
    only,
    request,
    resyncs_in,
    snapshot,
)

NODE, OLD, NEW = "node-1", host_of("node-1"), "host-9"


def known() -> SchedulerDriver:
    """A scheduler that has the node on its old host."""
    driver = SchedulerDriver().with_agents(NODE)
    driver.give(ev.ServicesRead(CELL, (ServiceFacts(NEW),), False))
    driver.give(listed_on(driver, OLD, moved=False))
    return driver


def listed_on(driver: SchedulerDriver, host: str, moved: bool = True) -> ev.NodesListed:
    """What the database says now of the host of the node."""
    return ev.NodesListed(CELL, {NODE: host}, frozenset({NODE} if moved else ()), driver.now)


def read_on(host: str, read_at_s: float) -> ev.NodeRead:
    """What a read of the databases that began then has found."""
    found = node_read(NODE, read_at_s=read_at_s)
    return replace(found, host=host, nodename=host, leaves={**found.leaves, "cn.hypervisor_hostname": host})


def claimed_on(driver: SchedulerDriver) -> str:
    """The address to which the claim for another server goes."""
    return only(ef.Send, driver.ask(request("server-2"))).address


def test_a_node_that_has_moved_is_not_answered_with_its_old_host() -> None:
    # given a node of which the database says that it has moved
    driver = known()
    effects = driver.give(listed_on(driver, NEW))
    # then the agent of the new host is asked for its state, and nothing is claimed before
    assert resyncs_in(effects) == [NODE]
    assert claims_in(driver.ask()) == []
    # when that agent answers, then claims go there
    driver.wait(0.1)
    driver.hear(replace(snapshot(NODE, epoch=2), host=NEW))
    assert claimed_on(driver) == "ssched.agent.host-9"


def test_a_node_that_has_moved_to_a_host_without_an_agent_is_read_from_the_databases() -> None:
    # given a node that has moved, and whose old agent goes on to speak for it
    driver = known()
    driver.give(listed_on(driver, NEW))
    driver.hear(Heartbeat(NODE, 1, 1, OLD, driver.table.digest(NODE)))
    # when no agent of the new host answers
    refresh = only(ef.RefreshNode, driver.wait(driver.core.settings.silent_after_timeout_s))
    assert refresh.node == NODE
    driver.give(read_on(NEW, driver.now))
    # then it is placed on as on a node without an agent
    write = only(ef.WriteAllocation, driver.ask())
    assert only(ef.Answer, driver.written(write)).choices[0][0].host == NEW


def test_a_read_from_before_the_move_does_not_give_the_node_back() -> None:
    # given a read that began before the node moved
    driver = known()
    before_s = driver.now
    driver.now += 1.0
    driver.give(listed_on(driver, NEW))
    # when it ends after the move was told
    driver.give(read_on(OLD, before_s))
    # then the agent of the new host is heard
    driver.wait(0.1)
    driver.hear(replace(snapshot(NODE, epoch=2), host=NEW))
    assert claimed_on(driver) == "ssched.agent.host-9"


def test_a_move_there_and_back_leaves_the_node_with_its_first_host() -> None:
    # given a node that has moved, and moves back before the other agent was heard
    driver = known()
    driver.give(listed_on(driver, NEW))
    driver.now += 1.0
    driver.give(listed_on(driver, OLD))
    # when its first agent goes on, then claims go there
    driver.wait(0.1)
    driver.hear(Heartbeat(NODE, 1, 1, OLD, driver.table.digest(NODE)))
    assert claimed_on(driver) == "ssched.agent.host-1"
