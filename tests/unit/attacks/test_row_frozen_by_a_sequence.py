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
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, snapshot

NODE, EPOCH, FORGED_VCPUS = "node-1", 5, 64
FORGED: Mapping[str, Sequence[Snapshot | Increment]] = {
    "a snapshot of the highest sequence": [
        replace(snapshot(NODE, epoch=EPOCH, vcpus=FORGED_VCPUS), sequence=COUNT_MAX)
    ],
    "hundreds of increments": [Increment(NODE, EPOCH, 2 + n, {"cn.vcpus": FORGED_VCPUS}) for n in range(300)],
    "an increment, and another one beyond a gap": [
        Increment(NODE, EPOCH, 2, {"cn.vcpus": FORGED_VCPUS}),
        Increment(NODE, EPOCH, 4),
    ],
}


def attacked(kind: str) -> SchedulerDriver:
    driver = SchedulerDriver().with_agents(NODE, epoch=EPOCH)
    driver.hear(*FORGED[kind])
    assert driver.table.view(NODE).leaves["cn.vcpus"] == FORGED_VCPUS
    return driver


def heartbeats(driver: SchedulerDriver) -> set[int]:
    """The true agent has nothing new, and sends each snapshot that it is asked for; returns the epochs above which it
    is asked to begin."""
    epochs, state = set[int](), snapshot(NODE, epoch=EPOCH)
    for _ in range(10):
        effects = driver.hear(Heartbeat(NODE, EPOCH, state.sequence, "host-1", state.digest)) + driver.wait(15.0)
        asked = {one.message.epoch for one in of_kind(ef.Send, effects) if isinstance(one.message, Resync)}
        epochs |= asked - {0, EPOCH}
        if asked & {0, EPOCH}:
            driver.hear(state)
    return epochs


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
