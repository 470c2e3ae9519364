# SPDX-License-Identifier: Apache-2.0
"""Two members of one server group that are requested, or moved, at the same moment by way of four schedulers, on a
real cloud.  The hosts are uneven, so that all schedulers prefer the same one, and Nova's late check is off.
"""

from __future__ import annotations

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.groups.contest import OPERATIONS, Plan, play, use
from tools.laboratory.groups.pairs import POLICIES

PAIRS = 3
PLAN = Plan(list(POLICIES), OPERATIONS, pairs=PAIRS, stock=0, batch=PAIRS, schedulers=4)


@pytest.fixture(scope="module", autouse=True)
def prepared(cloud: Cloud) -> None:
    use(cloud, PLAN, "shared")


@pytest.mark.parametrize(("operation", "policy"), PLAN.cases())
def test_racing_members_are_where_the_policy_wants_them(cloud: Cloud, operation: str, policy: str) -> None:
    batch = play(cloud, "shared", operation, policy, PAIRS)

    assert not batch.is_wrong, batch
    cloud_state.assert_consistent(cloud)
