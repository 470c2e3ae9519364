# SPDX-License-Identifier: Apache-2.0
"""A forged message names an epoch above all that an agent accepts to exceed: its node must not be lost for ever."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from compute_agent.epochs import Epochs, ResyncCase
from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.limits import COUNT_MAX, HEARTBEAT_INTERVAL_S, SILENT_AFTER_S
from shared_scheduler.protocol.messages import Heartbeat, Leave, Resync
from tests.unit.core.scheduler_driver import SchedulerDriver, snapshot

#: the epoch of the true agent, and the lowest one that it refuses to exceed
TRUE, BEYOND = 5, COUNT_MAX // 2 + 1
FORGED: Mapping[str, Heartbeat | Leave] = {
    "heartbeat": Heartbeat("node-1", BEYOND, 1, "host-1", 0),
    "heartbeat of the highest epoch": Heartbeat("node-1", COUNT_MAX, 1, "host-1", 0),
    "leave of the highest epoch": Leave("node-1", COUNT_MAX, 1),
}


def go_on(driver: SchedulerDriver, for_s: float) -> list[Resync]:
    """The true agent sends heartbeats, and a snapshot when it is asked for its epoch.  Returns all that it is asked."""
    found = list[Resync]()
    whole = snapshot("node-1", epoch=TRUE)
    for _ in range(int(for_s / HEARTBEAT_INTERVAL_S)):
        effects = driver.hear(Heartbeat("node-1", TRUE, 1, "host-1", whole.digest)) + driver.wait(HEARTBEAT_INTERVAL_S)
        asked = [one.message for one in effects if isinstance(one, ef.Send) and isinstance(one.message, Resync)]
        if any(one.epoch <= TRUE for one in asked):
            driver.hear(whole)
        found += asked
    return found


def test_the_agent_refuses_to_exceed_it() -> None:
    assert Epochs(TRUE, Random(1)).judge(BEYOND, 0.0) is ResyncCase.REFUSED


@pytest.mark.parametrize("kind", FORGED)
def test_the_true_agent_is_followed_again_after_a_silence(kind: str) -> None:
    driver = SchedulerDriver().with_agents("node-1", epoch=TRUE)

    driver.hear(FORGED[kind])
    go_on(driver, SILENT_AFTER_S + 4 * HEARTBEAT_INTERVAL_S)

    assert driver.core.nodes.epoch_of("node-1") == TRUE
    assert driver.table.freshness("node-1").value == "fresh"
    assert driver.core.counters()["epochs_given_up"] == 1


@pytest.mark.parametrize("kind", FORGED)
def test_nothing_is_asked_that_cannot_be_sent(kind: str) -> None:
    driver = SchedulerDriver().with_agents("node-1", epoch=TRUE)

    driver.hear(FORGED[kind])
    asked = go_on(driver, SILENT_AFTER_S + 4 * HEARTBEAT_INTERVAL_S)

    assert all(one.epoch <= COUNT_MAX for one in asked)
