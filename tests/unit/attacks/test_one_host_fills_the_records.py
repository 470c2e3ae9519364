# SPDX-License-Identifier: Apache-2.0
"""One host ends builds and begins epochs as fast as it can: the records of others must not be pushed out or missing."""

from __future__ import annotations

from collections.abc import Sequence

from shared_scheduler.core import effects as ef
from shared_scheduler.core.builds import BUILDS_BURST
from shared_scheduler.protocol.messages import BuildResult, Leaf, Reason, Verdict
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only, only_claim, snapshot

EVIL, OTHER = "node-1", "node-2"


def ended(node: str, number: int) -> BuildResult:
    return BuildResult(node, 1, f"vm-{number}", False, "x" * 400, "", number)


def builds(effects: Sequence[ef.Effect]) -> list[str]:
    return [one.node for one in of_kind(ef.RecordBuild, effects)]


def test_the_ends_of_builds_of_one_host_are_bounded() -> None:
    driver = SchedulerDriver().with_agents(EVIL, OTHER)
    recorded = list[str]()

    for second in range(10):
        recorded += builds(driver.hear(*(ended(EVIL, second * 200 + n) for n in range(1, 200))))
        recorded += builds(driver.hear(ended(OTHER, second + 1)))
        driver.wait(1.0)

    assert recorded.count(EVIL) <= BUILDS_BURST + 10
    assert recorded.count(OTHER) == 10


def test_a_host_that_builds_a_hundred_servers_at_once_is_recorded() -> None:
    driver = SchedulerDriver().with_agents(OTHER)

    assert len(builds(driver.hear(*(ended(OTHER, n) for n in range(1, 101))))) == 100


def test_a_refusal_of_a_hundred_kilobytes_is_not_recorded_as_a_whole() -> None:
    driver = SchedulerDriver().with_agents(EVIL, OTHER)
    claim = only_claim(driver.ask())
    detail: dict[str, Leaf] = {f"name-{n}": "x" * 16_000 for n in range(6)}

    again = only_claim(driver.hear(Verdict(claim.claim_id, claim.node, 1, False, Reason("no_capacity", detail))))
    write = only(ef.WriteAllocation, driver.accept(again))
    (answer,) = of_kind(ef.Answer, driver.written(write))

    refused = answer.record.attempts[0]
    assert refused.outcome == "no_capacity" and "name-0" in str(refused.detail)
    assert len(str(refused.detail)) < 5_000


def test_epochs_of_one_host_leave_room_for_what_happens_on_others() -> None:
    driver = SchedulerDriver().with_agents(EVIL, OTHER)
    driver.wait(200.0)
    driver.node_records.clear()

    for epoch in range(2, 302):
        driver.hear(snapshot(EVIL, epoch=epoch))
    driver.hear(snapshot(OTHER, epoch=2))

    hosts = [record.host for record in driver.node_records]
    assert "host-2" in hosts
    assert 1 <= hosts.count("host-1") <= 20
