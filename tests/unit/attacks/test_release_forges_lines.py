# SPDX-License-Identifier: Apache-2.0
"""An agent names a release that clears the line of the terminal or the log and writes another one.

``status``, the upgrade check and the log of a scheduler print releases of agents; ``compare`` prints their leaves."""

from __future__ import annotations

from typing import Any

import pytest

from shared_scheduler.cmd import compare, status
from shared_scheduler.protocol.limits import RELEASE_MAX_CHARS
from shared_scheduler.service.inspection import status_of_core
from shared_scheduler.service.source_differences import PLACEMENT
from tests.unit.attacks.test_forged_lines import FORGED
from tests.unit.cmd.test_status import ANSWER
from tests.unit.core.scheduler_driver import SchedulerDriver, snapshot


@pytest.mark.parametrize(
    "release", [FORGED, "1" * (RELEASE_MAX_CHARS + 1), 7, ["1.0"]], ids=["forged", "long", "number", "list"]
)
def test_it_is_not_believed(release: Any) -> None:
    driver = SchedulerDriver()

    driver.hear(snapshot("node-1", agent__release=release))

    assert driver.core.counters()["messages_unusable"] == 1
    assert status_of_core(driver.now, driver.core)["nodes"] == 0


def test_a_release_is() -> None:
    driver = SchedulerDriver()

    driver.hear(snapshot("node-1", agent__release="1.2.3.dev45"))

    assert status_of_core(driver.now, driver.core)["nodes"] == 1


def test_each_line_of_status_is_printable() -> None:
    answer: dict[str, Any] = {
        **ANSWER, "scheduler": FORGED, "quarantined": [FORGED], "releases": {"agents": {FORGED: 1}},
        "second_agents": [{"node": FORGED, "host": FORGED, "other_host": FORGED}],
    }  # fmt: skip

    assert all(line.isprintable() for line in status.SHOWN["status"](answer).split("\n"))


def test_each_line_of_compare_is_printable() -> None:
    report: dict[str, Any] = {
        "sources": {PLACEMENT: 2, FORGED: 1}, "nodes_without_agent": [FORGED],
        "hosts_without_agent": [FORGED], "differences": [FORGED],
        "foreign_changes": {FORGED: 1},
    }  # fmt: skip

    assert all(line.isprintable() for line in compare.text_of(report).split("\n"))
