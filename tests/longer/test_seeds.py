# SPDX-License-Identifier: Apache-2.0
"""The two experiments of ``tests/functional/test_seeds.py`` with other numbers of schedulers, with pinned CPUs as the
slots, and with Placement's own write path.
"""

from __future__ import annotations

import pytest

from tests.functional import cloud_state
from tests.functional.test_seeds import assert_nothing_came_back, assert_seed_000, assert_seed_001, prepare, refusals
from tools.laboratory.cloud.bursts import burst
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.provisioning import Flavor

PINNED = Flavor("pinned1", vcpus=1, ram_mb=400, disk_gb=1, extra={"hw:cpu_policy": "dedicated"})


def test_seed_000_with_four_schedulers(cloud: Cloud) -> None:
    assert_seed_000(cloud, schedulers=4)


@pytest.mark.parametrize("schedulers", [1, 4])
def test_seed_000_with_pinned_cpus_as_the_slots(cloud: Cloud, schedulers: int) -> None:
    prepare(cloud, schedulers, compute_ram_mb=(8000,), numa_cells=1, cpus_per_cell=1, pcpus_per_cell=3)
    cloud.add_flavor(PINNED)
    refused_before = refusals(cloud)

    report = burst(cloud, count=9, group=3, interval_s=0.5, flavor=PINNED.name)

    assert report.states == {"ACTIVE": 9}
    assert report.per_host == {"c1": 3, "c2": 3, "c3": 3}
    assert_nothing_came_back(report)
    if schedulers == 1:
        assert refusals(cloud) == refused_before
    cloud_state.assert_consistent(cloud)


@pytest.mark.parametrize("schedulers", [1, 4])
def test_seed_001_with_placements_own_write_path(cloud: Cloud, schedulers: int) -> None:
    assert_seed_001(cloud, schedulers)
