# SPDX-License-Identifier: Apache-2.0
"""Queries to a scheduler do not delay its decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.service import inspection
from shared_scheduler.service.engine import Engine
from tests.unit.core.scheduler_driver import SchedulerDriver

NODES = [f"node-{number}" for number in range(120)]


class Looking:
    """In the engine's place: counts the rows that are described while nothing else may happen."""

    def __init__(self, core: SchedulerCore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core = core
        self.described: list[int] = []
        describe = core.table.describe
        monkeypatch.setattr(core.table, "describe", lambda node: self._count(describe(node)))

    def _count(self, row: Any) -> Any:
        self.described[-1] += 1
        return row

    def clock(self) -> float:
        return 100.0

    def inspect(self, question: Callable[[SchedulerCore], Any]) -> Any:
        self.described.append(0)
        return question(self.core)


@pytest.mark.parametrize("question", ["nodes", "tables"])
def test_all_nodes_are_reported_a_few_at_a_time(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    core = SchedulerDriver().without_agents(*NODES).core
    engine = Looking(core, monkeypatch)

    answer = inspection.questions(cast(Engine, engine), "sched1", dict, list, dict)[question]({})

    assert sorted(row["node"] for row in answer["nodes"]) == sorted(NODES)
    assert max(engine.described) <= inspection.NODES_PER_LOOK < len(NODES)
