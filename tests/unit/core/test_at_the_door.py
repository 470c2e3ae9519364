# SPDX-License-Identifier: Apache-2.0
"""What is refused at the door, and what a scheduler says without being asked."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.messages import Hello, Role, Want
from tests.unit.core.desk import (
    CELL,
    ME,
    Desk,
    claims_in,
    only,
    only_claim,
    request,
)


def test_draining_refuses_the_new_and_ends_the_old() -> None:
    desk = Desk().with_agents("node-1")
    claim = only_claim(desk.ask())
    desk.give(ev.Draining())
    assert only(ef.Fail, desk.ask(request("late"))).code == ef.FailureCode.DRAINING
    write = only(ef.WriteAllocation, desk.accept(claim))
    only(ef.Answer, desk.written(write))


def test_too_many_requests_are_refused_at_once() -> None:
    desk = Desk(requests_max=1).with_agents("node-1")
    only_claim(desk.ask())
    fail = only(ef.Fail, desk.ask(request("server-2")))
    assert fail.code == ef.FailureCode.OVERLOADED and "1 requests" in fail.text


def test_too_many_claims_are_refused_at_once() -> None:
    desk = Desk(claims_max=2).with_agents("node-1")
    fail = only(ef.Fail, desk.ask(request("a", "b", "c")))
    assert fail.code == ef.FailureCode.OVERLOADED


def test_claims_in_flight_for_one_node_are_bounded() -> None:
    desk = Desk(claims_per_node_max=1).with_agents("node-1", "node-2")
    first, second = claims_in(desk.ask(request("a", "b")))
    assert first.node != second.node
    assert claims_in(desk.ask(request("c"))) == []


def test_a_request_without_instances_is_a_bad_request() -> None:
    desk = Desk().with_agents("node-1")
    fail = only(ef.Fail, desk.ask(request(instance_uuids=())))
    assert fail.code == ef.FailureCode.BAD_REQUEST


def test_a_new_scheduler_says_hello_and_wants_snapshots() -> None:
    desk = Desk()
    effects = desk.give(ev.ChannelChanged(CELL, True))
    hello = Hello(Role.SCHEDULER, ME, 1, "", "", Want.SNAPSHOT, 0)
    assert effects == [ef.Broadcast(CELL, hello, cause="channel connected: cell-1")]


def test_a_claim_is_repeated_until_its_verdict_comes() -> None:
    # given a channel that loses the claim
    desk = Desk(claim_repeat_s=1.0).with_agents("node-1")
    claim = only_claim(desk.ask())
    # when no verdict comes, the very same claim leaves again
    assert desk.wait(0.9) == []
    assert only_claim(desk.wait(0.2)) == claim
    # then both verdicts of it lead to one write
    only(ef.WriteAllocation, desk.accept(claim))
    assert desk.accept(claim) == []
    assert claims_in(desk.wait(5.0)) == []
