# SPDX-License-Identifier: Apache-2.0
"""A compromised compute node answers the claim that another node was asked for."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.messages import Verdict
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only_claim


def test_a_verdict_in_the_name_of_another_node_is_ignored() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    stranger = next(node for node in ("node-1", "node-2") if node != claim.node)

    effects = driver.hear(Verdict(claim.claim_id, stranger, 1, True, None, 2))

    assert of_kind(ef.WriteAllocation, effects) == []
    assert driver.core.counters()["verdicts_of_others"] == 1
    assert len(of_kind(ef.WriteAllocation, driver.accept(claim))) == 1
