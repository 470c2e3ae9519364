# SPDX-License-Identifier: Apache-2.0
"""The two experiments of ``tests/functional/test_seeds.py`` with other numbers of schedulers, and with Placement's own
write path."""

from __future__ import annotations

import pytest

from tests.functional.test_seeds import assert_seed_000, assert_seed_000_with_pinned_cpus, assert_seed_001
from tools.laboratory.cloud.cloud import Cloud


def test_seed_000_with_four_schedulers(cloud: Cloud) -> None:
    assert_seed_000(cloud, schedulers=4)


def test_seed_000_with_pinned_cpus_and_one_scheduler(cloud: Cloud) -> None:
    assert_seed_000_with_pinned_cpus(cloud, schedulers=1)


@pytest.mark.parametrize("schedulers", [1, 4])
def test_seed_001_with_placements_own_write_path(cloud: Cloud, schedulers: int) -> None:
    assert_seed_001(cloud, schedulers)
