# SPDX-License-Identifier: Apache-2.0
"""Spreading: what a request asks for is read when it arrives."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.spread_request import label_uuid
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Consumer, Increment
from tests.unit.core.scheduler_driver import (
    SMALL,
    SchedulerDriver,
    claims_in,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)

WEB = label_uuid("project", "web")


def in_racks(*nodes: str) -> SchedulerDriver:
    """A scheduler that spreads over racks; each node is in a rack of its own."""
    driver = SchedulerDriver(decision=DecisionSettings(spread_keys=("rack",)))
    driver.with_agents(*nodes)
    racks = tuple(
        AggregateFacts(number, f"aggregate-{number}", node, frozenset({node.replace("node", "host")}), {"rack": node})
        for number, node in enumerate(nodes, 1)
    )
    driver.give(ev.AggregatesRead(racks))
    return driver


def test_the_servers_of_a_label_go_to_different_racks_and_their_claims_carry_it() -> None:
    # given two racks
    driver = in_racks("node-1", "node-2")
    hints = {"shared_scheduler:spread": ("key=rack",), "shared_scheduler:label": ("web",)}
    # when two servers of one request have a label
    claims = claims_in(driver.ask(request("server-1", "server-2", hints=hints)))
    # then each rack gets one, and the agents learn the label as a group
    assert {claim.node for claim in claims} == {"node-1", "node-2"}
    assert {(claim.group.uuid, claim.group.policy) for claim in claims if claim.group} == {(WEB, "label")}


def test_a_bad_hint_fails_its_request_with_a_clear_text() -> None:
    driver = in_racks("node-1")
    failed = only(ef.Fail, driver.ask(request(hints={"shared_scheduler:spread": ("rack",)})))
    assert failed.code == ef.FailureCode.BAD_REQUEST
    assert "shared_scheduler:spread of the scheduler hints: 'rack' is not understood" in failed.text


def test_no_host_names_the_constraint_and_the_record_what_was_asked() -> None:
    # given a rack with one server of the label, and a rack whose only host is full
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    driver.hear(snapshot("node-2", 2, consumers={"server-8": Consumer({"node-2": {"VCPU": 4}}, True)}))
    # when the flavor asks for different racks
    extra_specs = {"shared_scheduler:spread": "key=rack", "shared_scheduler:label": "web"}
    asking = driver.ask(request(flavor=replace(SMALL, extra_specs=extra_specs)))
    asked = only(ef.AskFitting, asking)
    failed = only(ef.Fail, driver.give(ev.FittingAnswered(asked.ask_id, frozenset(), cause=asked.cause)))
    # then nobody gets it, and the reason is told
    assert "spread: 1" in failed.text
    assert failed.record.asked["spread"] == [{"key": "rack", "max_skew": 1, "mode": "hard"}]


def test_without_spread_keys_nothing_is_read() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask(request(hints={"shared_scheduler:spread": ("nonsense",)})))
    assert claim.group is None
