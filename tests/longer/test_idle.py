# SPDX-License-Identifier: Apache-2.0
"""An idle fleet sends heartbeats and nothing else, and the same report twice sends nothing."""

from __future__ import annotations

import time

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud

AUDIT_S = 3
HEARTBEAT_S = 1  # a host that does not change sends one in three times this
WATCHED_S = 12.0
QUIET_S = 14.0  # several audits
SETTLE_S = 240.0


def received(cloud: Cloud, for_s: float) -> dict[str, int]:
    """Messages by type that the scheduler hears in the next ``for_s`` seconds."""
    before = cloud_state.status(cloud)[0]["counters"]
    time.sleep(for_s)
    after = cloud_state.status(cloud)[0]["counters"]
    return {
        name: after[name] - before.get(name, 0)
        for name in after
        if name.startswith("received_") and after[name] != before.get(name, 0)
    }


def test_an_idle_fleet_sends_heartbeats_and_nothing_else(cloud: Cloud) -> None:
    # given computes that audit every few seconds, so that several identical reports fall into the time watched
    # (Nova begins its first audit at a random moment of the first minute, unless told otherwise)
    often = {
        "DEFAULT": {"periodic_fuzzy_delay": "0"},
        "compute_agent": {"heartbeat_interval_s": str(HEARTBEAT_S)},
    }
    cloud_state.begin(cloud, update_resources_interval_s=AUDIT_S, nova_options=often)
    cloud.wait_active(cloud.boot(2, parallel=2))
    # and whose last news of the builds (nova-compute finds them active at an audit) have been told
    until_s = time.monotonic() + SETTLE_S
    while "received_increment" in received(cloud, QUIET_S):
        assert time.monotonic() < until_s, "it never becomes quiet"

    before = cloud_state.counter(cloud, "received_heartbeat")
    heard = received(cloud, WATCHED_S)

    assert set(heard) <= {"received_heartbeat"}, heard
    cloud.wait(lambda: cloud_state.counter(cloud, "received_heartbeat") >= before + 3, "a heartbeat of each host")
