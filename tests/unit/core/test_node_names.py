# SPDX-License-Identifier: Apache-2.0
"""The name of a node (Nova: hypervisor_hostname) is what the databases and its agent say, and not its host.

An agent that knows its node from its state directory, and hears nothing from nova-compute, publishes the node without
the leaves of nova-compute; its name is among them.  A host that boots does that.
"""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.model.leaves import PROVIDER
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Increment, Leaf, Snapshot
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    host_of,
    node_leaves,
    node_read,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)

NODE = "node-1"
NAME = "host-1.example.org"
NAME_LEAF = "cn.hypervisor_hostname"


def leaves_of_compute(name: str = NAME) -> dict[str, Leaf]:
    """What nova-compute reports."""
    found = node_leaves(NODE, 4, 8192) | {NAME_LEAF: name}
    return {name: value for name, value in found.items() if name.startswith(("cn.", "stats."))}


def of_a_booting_host(sequence: int = 1, epoch: int = 2) -> Snapshot:
    """The snapshot of an agent that has heard nothing from nova-compute."""
    leaves: dict[str, Leaf] = {"agent.ready": False, "agent.groups": True}
    leaves[PROVIDER + NODE] = node_leaves(NODE, 4, 8192)[PROVIDER + NODE]
    return Snapshot(NODE, epoch, sequence, host_of(NODE), leaves, {}, {}, digest_of(leaves, {}, {}))


def of_a_whole_node() -> Snapshot:
    """The snapshot of the same agent before."""
    return snapshot(NODE, cn__hypervisor_hostname=NAME)


def compute_reports(sequence: int = 2, epoch: int = 2, name: str = NAME) -> Increment:
    """nova-compute has reported to the agent."""
    return Increment(NODE, epoch, sequence, {**leaves_of_compute(name), "agent.ready": True}, {}, {})


def read_from_the_database() -> SchedulerDriver:
    """A scheduler that has read the node, with its name."""
    driver, read = SchedulerDriver().without_agents(NODE), node_read(NODE)
    driver.give(replace(read, nodename=NAME, leaves={**read.leaves, NAME_LEAF: NAME}))
    return driver


def place(driver: SchedulerDriver, server: str, epoch: int = 2) -> ef.Choice:
    """Place a server on the node, whose agent accepts; the choice of the answer."""
    claim = only_claim(driver.ask(request(server)))
    write = only(ef.WriteAllocation, driver.accept(claim, sequence=9, epoch=epoch))
    return only(ef.Answer, driver.written(write)).choices[0][0]


def test_a_host_that_boots_keeps_the_name_of_its_node() -> None:
    # given a node that the database has by a name that is not its host
    driver = read_from_the_database()
    # when its agent speaks before nova-compute, which reports later
    driver.hear(of_a_booting_host())
    assert driver.table.view(NODE).nodename == NAME
    driver.hear(compute_reports())
    # then an answer has the name
    choice = place(driver, "server-1")
    assert (choice.host, choice.nodename) == (host_of(NODE), NAME)


def test_a_host_that_boots_keeps_the_claims_that_it_does_not_show_yet() -> None:
    # given a server that was placed, and is not shown by the node
    driver = read_from_the_database()
    driver.hear(of_a_whole_node())
    place(driver, "server-1", epoch=1)
    assert [own.consumer for own in driver.table.outstanding(NODE)] == ["server-1"]
    # when the host boots
    driver.hear(of_a_booting_host())
    # then its resources are counted
    assert [own.consumer for own in driver.table.outstanding(NODE)] == ["server-1"]
    assert driver.table.view(NODE).used == taken(NODE)


def test_the_claims_stay_when_a_node_gets_another_name() -> None:
    # given a node with a claim that it does not show yet
    driver = SchedulerDriver().with_agents(NODE)
    place(driver, "server-1", epoch=1)
    # when a snapshot and an increment bring other names
    driver.hear(snapshot(NODE, epoch=2, cn__hypervisor_hostname=NAME))
    assert driver.table.view(NODE).nodename == NAME
    driver.hear(Increment(NODE, 2, 2, {NAME_LEAF: "another"}, {}, {}))
    assert driver.table.view(NODE).nodename == "another"
    # then the claim is counted
    assert [own.consumer for own in driver.table.outstanding(NODE)] == ["server-1"]


def test_a_node_is_not_selected_before_its_name_is_known() -> None:
    # given a scheduler that starts when a host boots, and has not read the database
    new = SchedulerDriver()
    new.give(ev.ServicesRead("cell-1", (ServiceFacts(host_of(NODE)),), False))
    new.hear(of_a_booting_host())
    assert new.table.view(NODE).nodename == ""
    # when all but the name is reported
    new.hear(compute_reports(name=""))
    # then nothing is placed on it until the name is there
    assert of_kind(ef.Fail, new.ask())
    new.hear(Increment(NODE, 2, 3, {NAME_LEAF: NAME}, {}, {}))
    assert place(new, "server-1").nodename == NAME


def test_a_forced_node_is_found_by_the_name_that_came_later() -> None:
    # given a node that a request has forced by its name, before its agent told it
    driver = SchedulerDriver().with_agents(NODE)
    forced = request("server-1", force_nodes=(NAME,))
    assert of_kind(ef.Fail, driver.ask(forced))
    # when an increment tells it
    driver.hear(Increment(NODE, 1, 2, {NAME_LEAF: NAME}, {}, {}))
    # then
    assert only_claim(driver.ask(forced)).node == NODE
