# SPDX-License-Identifier: Apache-2.0
"""Pinned CPUs, huge pages and PCI devices that just fit, on a real cloud: no build is rescheduled.

The short form of ``tools/lab rounds``, which plays a hundred rounds and stock Nova's beside them;
``tests/longer/test_numa.py`` plays each kind once.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.rounds import rounds

pytestmark = pytest.mark.timeout(900)  # each has a build on every slot

SCHEDULERS = 4
PAGES_AND_DEVICES = 2


def test_pages_and_devices_that_just_fit_are_built_without_a_reschedule(cloud: Cloud) -> None:
    assert_filled_without_a_reschedule(cloud, [PAGES_AND_DEVICES])


def assert_filled_without_a_reschedule(cloud: Cloud, kinds: Sequence[int]) -> None:
    """Assert that a request of each kind, by its place in ``rounds.KINDS``, fills the cloud."""
    # given schedulers that choose at the same time, and computes of which Placement does not know all
    rounds.begin(cloud, SCHEDULERS)

    # when as many servers as there is room for are asked for at one moment
    played = [rounds.play_one(cloud, "shared", rounds.KINDS[kind]) for kind in kinds]

    # then each is built where it was first sent
    print(played)
    assert [(each.active, each.reschedules, each.no_valid_host) for each in played] == [
        (rounds.KINDS[kind].per_compute * 3, 0, 0) for kind in kinds
    ]
    cloud_state.assert_consistent(cloud)


def test_one_more_than_the_cells_hold_is_refused_and_leaves_nothing(cloud: Cloud) -> None:
    # given every cell with two dedicated CPUs left, while a server needs three
    rounds.begin(cloud, SCHEDULERS)
    cell = rounds.KINDS[1]
    cloud.wait_active(cloud.boot(cell.per_compute * 3, cell.flavor.name, parallel=6))
    held = cloud.usages()

    # when another one is asked for, for which Placement has room
    [server] = cloud.boot(1, cell.flavor.name)
    row = cloud.wait_built([server])[server]

    # then no compute was bothered, and Placement holds what it held
    assert row["status"] == "ERROR" and "No valid host" in row["fault"]
    assert row["host"] is None
    assert cloud.usages() == held
    cloud_state.assert_consistent(cloud)
