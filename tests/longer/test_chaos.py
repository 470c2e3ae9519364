# SPDX-License-Identifier: Apache-2.0
"""Random operations and faults for a minute in a real cloud of eight computes, two cells and three schedulers.

The short form of ``tools/lab chaos``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.laboratory.chaos import command, environment, run
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.report import ProgressLine

MINUTES = 1.0
SEED = 5


@pytest.fixture
def large_cloud(cloud: Cloud) -> Iterator[Cloud]:
    """Afterwards the cloud is small again, with one cell, as other modules expect it."""
    yield cloud
    environment.clear(cloud)


@pytest.mark.timeout(900)
def test_after_a_minute_of_everything_all_records_agree_and_every_reason_is_true(large_cloud: Cloud) -> None:
    report = run.run(large_cloud, SEED, MINUTES, ProgressLine())

    print(command.report_of(report).text("text"))
    assert report.wrong == []
    assert sum(count["ok"] for count in report.operations.values()) > 0
