# SPDX-License-Identifier: Apache-2.0
"""A heartbeat of an epoch of the past names another host, to which all resyncs would go."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.messages import Heartbeat, Resync
from tests.unit.core.scheduler_driver import SchedulerDriver


def test_resyncs_go_where_they_went() -> None:
    driver = SchedulerDriver().with_agents("node-1", epoch=5)

    driver.hear(Heartbeat("node-1", 4, 9, "evil-host", 0))
    effects = driver.hear(Heartbeat("node-1", 5, 9, "", 0)) + driver.wait(2.0)

    sends = [each for each in effects if isinstance(each, ef.Send) and isinstance(each.message, Resync)]
    assert {send.address for send in sends} == {"ssched.agent.host-1"}
