# SPDX-License-Identifier: Apache-2.0
"""A service that stops ends every request within the given time, and leaves nothing behind."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only, only_claim, releases_in


def test_a_request_under_way_has_no_longer_than_the_service() -> None:
    driver = SchedulerDriver(verdict_timeout_s=100.0).with_agents("node-1")
    claim = only_claim(driver.ask(within_s=60.0))

    driver.give(ev.Stopping(driver.now + 10.0))
    effects = driver.wait(10.0)

    assert only(ef.Fail, of_kind(ef.Fail, effects)).code is ef.FailureCode.TIMED_OUT
    assert releases_in(effects) == [claim.claim_id]
    driver.idle()


def test_one_that_was_taken_from_the_queue_but_not_begun_is_still_served() -> None:
    driver = SchedulerDriver(verdict_timeout_s=100.0).with_agents("node-1")
    driver.give(ev.Stopping(driver.now + 10.0))

    claim = only_claim(driver.ask(within_s=60.0))
    write = only(ef.WriteAllocation, driver.accept(claim))

    only(ef.Answer, driver.written(write))


def test_one_that_begins_late_is_bounded_as_well() -> None:
    driver = SchedulerDriver(verdict_timeout_s=100.0).with_agents("node-1")
    driver.give(ev.Stopping(driver.now + 10.0))
    only_claim(driver.ask(within_s=60.0))

    assert len(of_kind(ef.Fail, driver.wait(10.0))) == 1


def test_a_request_that_has_less_time_anyway_keeps_its_own_end() -> None:
    driver = SchedulerDriver(verdict_timeout_s=100.0).with_agents("node-1")
    only_claim(driver.ask(within_s=5.0))

    driver.give(ev.Stopping(driver.now + 50.0))

    assert len(of_kind(ef.Fail, driver.wait(5.0))) == 1
