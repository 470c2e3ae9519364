# SPDX-License-Identifier: Apache-2.0
"""A record shows which decision selected the host of each try."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from tests.unit.core.scheduler_driver import Picky, SchedulerDriver, only, only_claim


def test_a_try_knows_how_many_decisions_were_made_before_it_ended() -> None:
    # given a request whose first host is refused by a filter, and whose second one by its agent
    driver = SchedulerDriver(Picky("node-0")).with_agents("node-0", "node-1", "node-2")
    first = only_claim(driver.ask())
    second = only_claim(driver.refuse(first))

    # when the third one takes it
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(second))))

    # then each refusal is of the decision before it
    tried = [(attempt.node, attempt.after_decisions) for attempt in answer.record.attempts]
    assert tried[0] == ("node-0", 1)
    assert tried[1] == (first.node, 1)
    assert tried[-1] == (second.node, 2)
