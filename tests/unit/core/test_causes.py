# SPDX-License-Identifier: Apache-2.0
"""Every event and effect has a cause id, and that of a request joins all that it brings about."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.causes import cause_of
from shared_scheduler.protocol.messages import Claim, Heartbeat, Release, Resync, Verdict
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, of_kind, only, only_claim, request, snapshot

REQUEST = "req-1"
SCHEDULERS = (*get_args(ev.Event), *get_args(ef.Effect))


@pytest.mark.parametrize("kind", SCHEDULERS, ids=lambda kind: kind.__name__)
def test_each_event_and_effect_has_a_cause(kind: type) -> None:
    is_field = "cause" in {each.name for each in fields(kind)}
    assert is_field or isinstance(getattr(kind, "cause", None), property)


def test_all_that_a_request_brings_about_has_its_id() -> None:
    # given a node whose agent speaks
    driver = SchedulerDriver().with_agents("node-1")

    # when one request is decided, claimed, accepted and written
    arrival = ev.RequestArrived(request(), driver.now + 60.0)
    effects = driver.give(arrival)
    claim = only_claim(effects)
    accepted = Verdict(claim.claim_id, "node-1", 1, True, None, 2)
    write = only(ef.WriteAllocation, writes := driver.hear(accepted))
    written = ev.AllocationWritten(write.claim_id, ev.WriteCode.WRITTEN, "", write.allocations, cause=write.cause)
    answer = only(ef.Answer, answers := driver.give(written))

    # then events and effects are joined by the request's id
    assert {each.cause for each in (arrival, written, *effects, *writes, *answers)} == {REQUEST}
    # and what is said to the node and by it by the claim's, which the decision record joins with the request
    assert cause_of(claim) == cause_of(accepted) == write.claim_id
    assert [attempt.claim_id for attempt in answer.record.attempts] == [claim.claim_id]
    assert answer.record.request_id == REQUEST


def test_deletes_of_a_request_have_its_id() -> None:
    # given a request whose write Placement did not answer
    driver = SchedulerDriver(attempts_max=1).with_agents("node-1")
    claim = only_claim(driver.ask())
    write = only(ef.WriteAllocation, driver.accept(claim))

    # when it is taken back
    delete = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))
    effects = driver.deleted(delete)

    # then the delete, the release and the end of the request have the cause of the request
    assert any(isinstance(send.message, Release) for send in of_kind(ef.Send, effects))
    assert {each.cause for each in (delete, *effects)} == {REQUEST}


def test_an_agent_that_gives_no_verdict_is_asked_because_of_the_request() -> None:
    driver = SchedulerDriver(attempts_max=1).with_agents("node-1")
    driver.ask()

    sends = of_kind(ef.Send, driver.wait(5.0))

    assert {type(send.message) for send in sends} == {Claim, Release, Resync}
    assert {send.cause for send in sends} == {REQUEST}


def test_a_resync_is_asked_for_because_of_the_message_that_shows_the_gap() -> None:
    # given a node of which sequence 2 is lost
    driver = SchedulerDriver().with_agents("node-1")

    # when a heartbeat names a later sequence
    effects = driver.hear(heartbeat := _heartbeat("node-1", 3))

    # then the window's wish, now or by its timer, names what it came from
    wished = [each for each in [*effects, *driver.wait(2.0)] if isinstance(each, ef.Send)]
    assert wished and {each.cause for each in wished} <= {cause_of(heartbeat), "timer window node-1"}


def test_effects_without_a_request_name_their_source() -> None:
    assert ev.ServicesRead(CELL, (), True).cause == "services read"
    assert ev.ChannelChanged(CELL, False).cause == "channel lost: cell-1"
    assert ev.MessagesArrived(CELL, (snapshot("node-1", 7),)).cause == "node-1@1/7"
    assert ev.MessagesArrived(CELL, ()).cause == "no message of cell cell-1"


def _heartbeat(node: str, sequence: int) -> Heartbeat:
    return Heartbeat(node, 1, sequence, node.replace("node", "host"), 0)
