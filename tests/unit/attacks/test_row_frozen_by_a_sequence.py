# SPDX-License-Identifier: Apache-2.0
"""A forged snapshot of the true epoch and the highest sequence: the true agent must not be ignored for ever."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.limits import COUNT_MAX
from shared_scheduler.protocol.messages import Heartbeat, Resync
from tests.unit.core.scheduler_driver import SchedulerDriver, snapshot


def test_the_agent_is_asked_to_begin_an_epoch_above_it() -> None:
    driver = SchedulerDriver().with_agents("node-1", epoch=5)

    driver.hear(replace(snapshot("node-1", epoch=5), sequence=COUNT_MAX))
    effects = list[ef.Effect]()
    for sequence in range(2, 12):
        effects += driver.hear(Heartbeat("node-1", 5, sequence, "host-1", 0)) + driver.wait(15.0)

    asked = [sent.message.epoch for sent in effects if isinstance(sent, ef.Send) and isinstance(sent.message, Resync)]
    assert asked and set(asked) == {6}
