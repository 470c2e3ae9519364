# SPDX-License-Identifier: Apache-2.0
"""A compromised host, or another user of the broker, sends captured ends of builds of another host again.

Their codes are valid, because that host has sent them.  A scheduler that was restarted has no memory of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core.awaited_builds import READ_AFTER_S, WITH_AGENT
from shared_scheduler.core.builds import BUILDS_BURST
from shared_scheduler.protocol.messages import BuildResult
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only, only_claim, request

VICTIM, SERVER = "node-1", "server-1"
CAPTURED_IN, NOW_IN = 1, 2


def captured(number: int, succeeded: bool = False, epoch: int = CAPTURED_IN) -> BuildResult:
    return BuildResult(VICTIM, epoch, SERVER, succeeded, "No more IP addresses", "", number)


def recorded(effects: Sequence[ef.Effect]) -> int:
    return len(of_kind(ef.RecordBuild, effects))


@pytest.fixture
def driver() -> SchedulerDriver:
    """The agent of the host has begun another epoch since."""
    return SchedulerDriver().with_agents(VICTIM, epoch=NOW_IN)


def test_an_end_of_a_past_epoch_is_not_recorded(driver: SchedulerDriver) -> None:
    assert recorded(driver.hear(captured(1))) == 0
    assert driver.core.counters()["builds_of_past_epochs"] == 1


def test_they_leave_room_for_the_true_ends_of_the_host(driver: SchedulerDriver) -> None:
    driver.hear(*(captured(number) for number in range(1, 2 * BUILDS_BURST)))

    assert recorded(driver.hear(captured(1, epoch=NOW_IN))) == 1


def test_the_end_of_an_earlier_build_does_not_end_the_wait_for_this_one(driver: SchedulerDriver) -> None:
    # given a server that is built on this host once more
    claim = only_claim(driver.ask(request(SERVER)))
    driver.written(only(ef.WriteAllocation, driver.accept(claim, epoch=NOW_IN)))

    # when the good end of the first time is sent again
    driver.hear(captured(1, succeeded=True))

    # then the databases are still asked how this one ends
    driver.wait(READ_AFTER_S[WITH_AGENT] + 1.0)
    assert [one.server for one in driver.build_reads] == [SERVER]
