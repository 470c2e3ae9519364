# SPDX-License-Identifier: Apache-2.0
"""A node publishes leaves that pass the columns and have no candidate: only that node may lose by it."""

from __future__ import annotations

from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core.planner import Approval
from tests.unit.core.scheduler_driver import AcceptAll, SchedulerDriver, claims_in


class Blind(AcceptAll):
    """Approves one host although its row has no candidate."""

    def verify(self, request: Any, index: int, view: Any, candidates: Any) -> Approval:
        found = super().verify(request, index, view, candidates)
        assert isinstance(found, Approval)
        return Approval(None, found.topology) if view.node == "node-1" else found


def test_the_next_host_is_claimed() -> None:
    driver = SchedulerDriver(Blind()).with_agents("node-1")
    driver.with_agents("node-2", free_mb=2048)

    effects = driver.ask()

    assert [each for each in effects if isinstance(each, ef.Fail)] == []
    assert [claim.node for claim in claims_in(effects)] == ["node-2"]
