# SPDX-License-Identifier: Apache-2.0
"""Two workers of one scheduler under eventlet, on a real cloud."""

from __future__ import annotations

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud

HOSTS = {"c1", "c2", "c3"}


def test_two_workers_under_eventlet_place_reload_and_stop(cloud: Cloud) -> None:
    cloud_state.begin(cloud, scheduler_workers=2, backend="eventlet", compute_slots=(6,))
    [name] = cloud.names("scheduler-shared")
    assert len(cloud_state.tables(cloud)) == 2  # each worker is a scheduler of its own
    cloud.wait(lambda: cloud.consumers("scheduler") >= 2, "both to serve the topic")

    cloud.wait_active(cloud.boot(6, parallel=6))
    served = [row["counters"].get("requests_answered", 0) for row in cloud_state.status(cloud)]
    assert sum(served) == 6 and min(served) > 0, "the topic is shared round robin"

    offset = cloud.log_size(name)
    cloud.hangup(name)
    cloud.wait(lambda: cloud.logs(name, offset).count("eloaded") >= 2, "both to have reloaded")
    cloud_state.wait_fresh(cloud, HOSTS)
    cloud.wait_active(cloud.boot(3, parallel=3))
    cloud_state.assert_consistent(cloud)

    cloud.stop(name)
    cloud.start(name)
    cloud_state.wait_fresh(cloud, HOSTS)
    cloud.wait_active(cloud.boot(2, parallel=2))
