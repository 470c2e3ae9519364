# SPDX-License-Identifier: Apache-2.0
"""A Resync of a hundred bytes is repeated a hundred times a second; each makes the agent replay up to a mebibyte."""

from __future__ import annotations

import random

from compute_agent.effects import Cast, Effect
from compute_agent.publisher import Publisher
from shared_scheduler.protocol.limits import AGENT_SNAPSHOTS_BURST, AGENT_SNAPSHOTS_PER_S
from shared_scheduler.protocol.messages import Increment, Resync, Snapshot

SCHEDULER, NODE, EPOCH = "ssched.scheduler.a", "node-1", 7
FOR_S, INCREMENTS = 5, 100


def published() -> Publisher:
    """An agent that has published this many increments."""
    publisher = Publisher(NODE, "host-1", "ssched.agent.host-1", EPOCH, 15.0, random.Random(1))
    publisher.sync({"cn.vcpus_used": 0}, {}, {}, "")
    publisher.begin(0.0)
    for number in range(1, INCREMENTS + 1):
        publisher.sync({"cn.vcpus_used": number}, {}, {}, "")
        publisher.due(float(number))
    return publisher


def casts(effects: list[Effect], kind: type[Increment] | type[Snapshot]) -> int:
    return sum(isinstance(one, Cast) and isinstance(one.message, kind) for one in effects)


def test_what_is_replayed_is_bounded() -> None:
    publisher = published()
    asked, replayed, snapshots = Resync(NODE, SCHEDULER, EPOCH, 1), 0, 0

    for tick in range(FOR_S * 100):
        now = INCREMENTS + 10 + tick / 100
        effects = publisher.resync(asked, now) + publisher.due(now)
        replayed += casts(effects, Increment)
        snapshots += casts(effects, Snapshot)

    most = AGENT_SNAPSHOTS_BURST + FOR_S * AGENT_SNAPSHOTS_PER_S
    assert replayed <= most * INCREMENTS
    assert 1 <= snapshots <= most + 1  # instead


def test_a_scheduler_that_asks_once_gets_its_increments() -> None:
    publisher = published()

    effects = publisher.resync(Resync(NODE, SCHEDULER, EPOCH, INCREMENTS - 4), INCREMENTS + 10.0)

    assert casts(effects, Increment) == 5
