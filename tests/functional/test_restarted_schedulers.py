# SPDX-License-Identifier: Apache-2.0
"""The schedulers of a drill are started again as those of a site: each joins the channel when it has loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tools.laboratory.fire.environment import Environment, Sizes
from tools.laboratory.fire.pace import HURRIED
from tools.laboratory.processes.controlled import Program
from tools.laboratory.processes.startup import Service
from tools.laboratory.processes.table import ProcessTable

#: answers when it has loaded, which takes until the file ``after`` exists; creates the file ``joined`` when it joins
SCHEDULER = """
import sys, threading, time
from pathlib import Path
from tools.laboratory.processes.control import serve
own, after, joined = map(Path, sys.argv[1:])
until_s = time.monotonic() + 120
while not after.exists():
    if time.monotonic() > until_s:
        sys.exit("error: the others have not joined")
    time.sleep(0.05)
serve(own, {"go": lambda _: joined.touch()})
threading.Event().wait()
"""


class Scheduler(Program):
    def __init__(self, table: ProcessTable, home: Path, name: str, after: Path) -> None:
        super().__init__(table, home, name)
        self.joined, self._after = home / f"{name}.joined", after

    def service(self) -> Service:
        argv = (sys.executable, "-c", SCHEDULER, *map(str, (self.socket, self._after, self.joined)))
        return replace(super().service(), argv=argv)


@pytest.fixture
def environment() -> Iterator[Environment]:
    environment = Environment(Sizes(agents=2, schedulers=1, processes=1), HURRIED, print)
    yield environment
    environment.close()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    table = ProcessTable(tmp_path, f"test-{tmp_path.name}")
    yield table
    table.end_all()


def test_a_scheduler_that_has_loaded_joins_while_another_one_loads(
    environment: Environment, table: ProcessTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a scheduler that loads until another one has joined
    first = Scheduler(table, tmp_path, "first", after=tmp_path)
    slow = Scheduler(table, tmp_path, "slow", after=first.joined)
    environment.schedulers = [slow, first]
    monkeypatch.setattr(environment, "_table", table)
    # when both are started at the same time
    environment.restart_schedulers()
    # then both have joined
    assert first.joined.exists() and slow.joined.exists()
