# SPDX-License-Identifier: Apache-2.0
"""An agent that nova-compute runs itself starts and stops with it."""

from __future__ import annotations

import pytest

from tests.functional import cloud_state
from tests.functional.test_embedded_agent import HOSTS, SETTLE_S, begin
from tools.laboratory.cloud.cloud import Cloud

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time to restart computes


def test_a_killed_compute_gets_no_servers_until_it_has_returned(cloud: Cloud) -> None:
    begin(cloud)
    cloud.kill("c1")  # its agent with it: whoever asks it gets no answer

    placed = cloud.wait_active(cloud.boot(6, parallel=6))
    assert sorted(placed.values()) == ["c2"] * 3 + ["c3"] * 3

    cloud.start("c1")
    cloud_state.wait_fresh(cloud, HOSTS)
    assert set(cloud.wait_active(cloud.boot(3, parallel=3)).values()) == {"c1"}
    cloud_state.assert_consistent(cloud, SETTLE_S)


def test_one_that_is_stopped_leaves_and_is_heard_when_it_is_back(cloud: Cloud) -> None:
    begin(cloud)
    before = cloud_state.counter(cloud, "received_leave")

    cloud.stop("c2")
    cloud.wait(
        lambda: cloud_state.counter(cloud, "received_leave") == before + 2,
        "both schedulers to be told",
        SETTLE_S,
    )

    cloud.start("c2")
    cloud_state.wait_fresh(cloud, HOSTS)
    assert sorted(cloud.wait_active(cloud.boot(9, parallel=3)).values()) == sorted([*HOSTS] * 3)
    cloud_state.assert_consistent(cloud, SETTLE_S)
