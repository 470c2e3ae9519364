# SPDX-License-Identifier: Apache-2.0
"""Anything at random for a minute in a real cloud of eight computes, two cells and three schedulers.

The short form of ``tools/chaos``, which goes on for as long as one likes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.realcloud.chaos import command, ground, run
from tools.realcloud.cloud import Cloud

MINUTES = 1.0
SEED = 5


@pytest.fixture
def large_cloud(cloud: Cloud) -> Iterator[Cloud]:
    """Afterwards it is small again, of one cell, as other modules find it."""
    yield cloud
    ground.clear(cloud)


@pytest.mark.timeout(900)
def test_after_a_minute_of_everything_all_pictures_agree_and_no_failure_lied(large_cloud: Cloud) -> None:
    report = run.run(large_cloud, SEED, MINUTES, say=print)

    print(command.told(report))
    assert report.wrong == []
    assert sum(count["ok"] for count in report.deeds.values()) > 0
