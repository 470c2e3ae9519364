# SPDX-License-Identifier: Apache-2.0
"""A service that was told to stop ends every request in the time that it has, and leaves nothing behind."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from tests.unit.core.desk import Desk, of_kind, only, only_claim, releases_in


def test_a_request_under_way_has_no_longer_than_the_service() -> None:
    desk = Desk(verdict_timeout_s=100.0).with_agents("node-1")
    claim = only_claim(desk.ask(within_s=60.0))

    desk.give(ev.Stopping(desk.now + 10.0))
    effects = desk.wait(10.0)

    assert only(ef.Fail, of_kind(ef.Fail, effects)).code is ef.FailureCode.TIMED_OUT
    assert releases_in(effects) == [claim.claim_id]
    desk.idle()


def test_one_that_was_taken_from_the_queue_but_not_begun_is_still_served() -> None:
    desk = Desk(verdict_timeout_s=100.0).with_agents("node-1")
    desk.give(ev.Stopping(desk.now + 10.0))

    claim = only_claim(desk.ask(within_s=60.0))
    write = only(ef.WriteAllocation, desk.accept(claim))

    only(ef.Answer, desk.written(write))


def test_one_that_begins_late_is_bounded_as_well() -> None:
    desk = Desk(verdict_timeout_s=100.0).with_agents("node-1")
    desk.give(ev.Stopping(desk.now + 10.0))
    only_claim(desk.ask(within_s=60.0))

    assert len(of_kind(ef.Fail, desk.wait(10.0))) == 1


def test_a_request_that_has_less_time_anyway_keeps_its_own_end() -> None:
    desk = Desk(verdict_timeout_s=100.0).with_agents("node-1")
    only_claim(desk.ask(within_s=5.0))

    desk.give(ev.Stopping(desk.now + 50.0))

    assert len(of_kind(ef.Fail, desk.wait(5.0))) == 1
