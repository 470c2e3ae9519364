# SPDX-License-Identifier: Apache-2.0
"""Before a request is refused because of spreading, it is read where the servers are.

The table does not know the label of a server that has no agent, or that nova-scheduler has placed.  A full rack with
such servers only looks empty, and would keep all others from getting one more."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.spread_request import label_uuid
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Consumer
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

WEB = label_uuid("project", "web")
HINTS = {"shared_scheduler:spread": ("key=rack",), "shared_scheduler:label": ("web",)}


def racks_of_which_one_is_full(*others: str) -> SchedulerDriver:
    """``node-2`` is full and has no agent; the others have one server of the label.  Each is in a rack of its own."""
    driver = SchedulerDriver(decision=DecisionSettings(spread_keys=("rack",)))
    driver.with_agents(*others).without_agents("node-2", vcpus=1)
    racks = (
        AggregateFacts(number, f"aggregate-{number}", node, frozenset({host_of(node)}), {"rack": node})
        for number, node in enumerate((*others, "node-2"), 1)
    )
    driver.give(ev.AggregatesRead(tuple(racks)))
    full = {"server-2": {"node-2": {"VCPU": 1}}}
    driver.give(replace(node_read("node-2", vcpus=1), consumers=full, members=frozenset(full)))
    for number, node in enumerate(others, 1):
        driver.hear(snapshot(node, 2, consumers={f"server-{number}1": Consumer(taken(node), True, WEB)}))
    return driver


def answered(driver: SchedulerDriver, ask: ef.AskGroup, **nodes: str) -> list[ef.Effect]:
    """Placement has these servers (names with _ for -) on these nodes."""
    standing = {name.replace("_", "-"): frozenset({node}) for name, node in nodes.items()}
    return driver.give(ev.GroupAnswered(ask.ask_id, standing, cause=ask.cause))


def test_a_full_rack_whose_servers_only_placement_knows_does_not_block_the_others() -> None:
    # given two racks with a server each, and a full one with a server whose label no agent knows
    driver = racks_of_which_one_is_full("node-1", "node-3")
    # when another one comes, then the places are read before it is refused
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # and it gets a host when they are known
    assert only_claim(answered(driver, ask, server_2="node-2")).node in ("node-1", "node-3")


def test_a_request_that_no_rack_may_have_is_refused_after_one_look() -> None:
    # given the same, but no server in the full rack has the label
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # when nothing else is found, then it is refused, and not read again
    fitting = only(ef.AskFitting, answered(driver, ask))
    failed = only(ef.Fail, driver.give(ev.FittingAnswered(fitting.ask_id, frozenset(), cause=ask.cause)))
    assert failed.code is ef.FailureCode.NO_VALID_HOST
    assert "spread: 2" in failed.text


def test_where_the_servers_cannot_be_read_the_refusal_says_so() -> None:
    # given a request that waits for the places
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # when they cannot be read
    failed = only(ef.Fail, driver.give(ev.GroupAnswered(ask.ask_id, {}, "no route", cause=ask.cause)))
    # then nobody has told that there is no host
    assert failed.code is ef.FailureCode.GROUP_UNSETTLED
    assert "no route" in failed.text


def test_a_second_server_of_a_request_is_looked_up_while_the_first_one_is_claimed() -> None:
    # given a rack with room and without servers of the label, and the full one
    driver = racks_of_which_one_is_full("node-1")
    driver.hear(snapshot("node-1", 3))
    # when two servers are asked for, then the first one is claimed, and the second one finds no rack yet
    effects = driver.ask(request("server-5", "server-6", hints=HINTS))
    (ask,), (first,) = of_kind(ef.AskGroup, effects), claims_in(effects)
    assert ask.known == {"server-5", "server-6"}
    # and the first one goes on meanwhile
    assert of_kind(ef.WriteAllocation, driver.accept(first))
    # when the full rack has a server of the label, then the second one goes to the other rack as well
    assert only_claim(answered(driver, ask, server_2="node-2")).node == "node-1"


def test_a_request_that_claims_nothing_looks_as_well() -> None:
    # given the same cloud, and a request whose decision is only shown
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(replace(request("server-5", hints=HINTS), dry_run=True)))
    # when the places are known, then it is answered like one that claims
    answer = only(ef.Answer, answered(driver, ask, server_2="node-2"))
    assert answer.choices[0][0].node in ("node-1", "node-3")
