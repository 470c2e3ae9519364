# SPDX-License-Identifier: Apache-2.0
"""Valid increments of one host add names, texts, consumers and claims for ever; each message is small."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.limits import SNAPSHOT_BODY_MAX_BYTES
from shared_scheduler.protocol.messages import Consumer, Increment
from shared_scheduler.table.row import Freshness
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, resyncs_in, snapshot

EVIL, OTHER = "node-1", "node-2"
#: what a row may hold, as JSON, which takes more than a snapshot
ROW_MAX_BYTES = 3 * SNAPSHOT_BODY_MAX_BYTES
SENT_BYTES = ROW_MAX_BYTES * 4 // 3
TEXT = "y" * 16_000

Attack = Callable[[int], Increment]


def increment(number: int, **changes: object) -> Increment:
    return Increment(EVIL, 1, number + 2, **changes)  # type: ignore[arg-type]


def numbers(n: int) -> Increment:
    return increment(n, leaves={f"cn.{n}_{k}": k for k in range(4000)})


def texts(n: int) -> Increment:
    return increment(n, leaves={f"cn.{n}_{k}": TEXT for k in range(4)})


def statistics(n: int) -> Increment:
    return increment(n, leaves={f"stats.{n}_{k}": TEXT for k in range(4)})


def lists(n: int) -> Increment:
    return increment(n, leaves={f"stats.{n}_{k}": [TEXT] for k in range(4)})


def consumers(n: int) -> Increment:
    return increment(n, consumers={f"vm-{n}-{k}": Consumer({EVIL: {"VCPU": 1}}, True) for k in range(1500)})


def amounts(n: int) -> Increment:
    return increment(n, consumers={f"vm-{n}": Consumer({EVIL: {f"CUSTOM_{n}_{k}": 1 for k in range(3500)}})})


def other_providers(n: int) -> Increment:
    return increment(n, consumers={f"vm-{n}": Consumer({f"rp-{n}-{k}": {"VCPU": 1} for k in range(2500)})})


def claims(n: int) -> Increment:
    return increment(n, claims={f"claim-{n}-{k}": "vm-1" for k in range(2000)})


ATTACKS = (numbers, texts, statistics, lists, consumers, amounts, other_providers, claims)


def size(driver: SchedulerDriver) -> int:
    """What the row holds, as JSON."""
    return len(json.dumps(driver.table.describe(EVIL), default=str))


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_row_does_not_grow_for_ever(attack: Attack) -> None:
    driver = SchedulerDriver().with_agents(EVIL, OTHER)
    sent = n = 0

    while sent < SENT_BYTES and driver.table.freshness(EVIL) is Freshness.FRESH:
        message = attack(n)
        sent, n = sent + len(encode(message)), n + 1
        driver.hear(message)

    assert size(driver) < ROW_MAX_BYTES
    assert driver.table.freshness(EVIL) is Freshness.STALE  # a snapshot is needed, which has a bound
    assert driver.table.freshness(OTHER) is Freshness.FRESH
    assert [claim.node for claim in claims_in(driver.ask())] == [OTHER]


def test_its_next_snapshot_is_believed() -> None:
    driver = SchedulerDriver().with_agents(EVIL, OTHER)
    n = 0
    while driver.table.freshness(EVIL) is Freshness.FRESH:
        driver.hear(texts(n))
        n += 1

    assert EVIL in resyncs_in(driver.wait(1.0))
    driver.hear(snapshot(EVIL, sequence=n + 2))

    assert driver.table.freshness(EVIL) is Freshness.FRESH
    assert size(driver) < ROW_MAX_BYTES // 100


def test_servers_that_come_and_go_for_a_long_time_make_no_row_too_large() -> None:
    driver = SchedulerDriver().with_agents(EVIL)
    count, sequence = 12_000, 1

    for n in range(count):
        sequence += 1
        server = Consumer({EVIL: {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 10}}, True)
        gone = {f"vm-{n - 4}": None} if n >= 4 else {}
        driver.hear(Increment(EVIL, 1, sequence, {"cn.metrics": f"[{n}]"}, {f"vm-{n}": server, **gone}))

    assert driver.table.freshness(EVIL) is Freshness.FRESH
    assert driver.core.counters()["increments_applied"] == count
