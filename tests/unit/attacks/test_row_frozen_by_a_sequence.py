# SPDX-License-Identifier: Apache-2.0
"""Forged messages of the true epoch are ahead of the true agent's: it must not be ignored for ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.limits import COUNT_MAX
from shared_scheduler.protocol.messages import Heartbeat, Increment, Resync, Snapshot
from shared_scheduler.table.row import Freshness
from tests.unit.core.scheduler_driver import SchedulerDriver, snapshot

NODE, EPOCH, FORGED_VCPUS = "node-1", 5, 64
FORGED: Mapping[str, Sequence[Snapshot | Increment]] = {
    "a snapshot of the highest sequence": [
        replace(snapshot(NODE, epoch=EPOCH, vcpus=FORGED_VCPUS), sequence=COUNT_MAX)
    ],
    "hundreds of increments": [Increment(NODE, EPOCH, 2 + n, {"cn.vcpus": FORGED_VCPUS}) for n in range(300)],
}


def attacked(kind: str) -> SchedulerDriver:
    driver = SchedulerDriver().with_agents(NODE, epoch=EPOCH)
    driver.hear(*FORGED[kind])
    assert driver.table.view(NODE).leaves["cn.vcpus"] == FORGED_VCPUS
    return driver


def heartbeats(driver: SchedulerDriver) -> set[int]:
    """The true agent goes on; returns the epochs above which it is asked to begin."""
    effects = list[ef.Effect]()
    for sequence in range(2, 12):
        effects += driver.hear(Heartbeat(NODE, EPOCH, sequence, "host-1", 0)) + driver.wait(15.0)
    return {sent.message.epoch for sent in effects if isinstance(sent, ef.Send) and isinstance(sent.message, Resync)}


@pytest.mark.parametrize("kind", FORGED)
def test_the_agent_is_asked_to_begin_an_epoch_above_it(kind: str) -> None:
    assert heartbeats(attacked(kind)) == {EPOCH + 1}


@pytest.mark.parametrize("kind", FORGED)
def test_the_row_is_then_what_the_agent_says(kind: str) -> None:
    driver = attacked(kind)
    heartbeats(driver)

    driver.hear(snapshot(NODE, epoch=EPOCH + 1, vcpus=4))

    assert driver.table.view(NODE).leaves["cn.vcpus"] == 4
    assert driver.table.freshness(NODE) is Freshness.FRESH
