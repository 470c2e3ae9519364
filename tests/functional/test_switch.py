# SPDX-License-Identifier: Apache-2.0
"""From nova-scheduler to ours and back, and both on one topic."""

from __future__ import annotations

import json

from tests.functional import cloud_state
from tests.support import forked_commands
from tools.laboratory.cloud.cloud import Cloud

HOSTS = {"c1", "c2", "c3"}


def test_switch_back_and_over_again(cloud: Cloud) -> None:
    cloud_state.begin(cloud, forked=False)  # the programs, as a supervisor starts them
    cloud.wait_active(cloud.boot(3, parallel=3))

    cloud.up(scheduler="nova", agents="all")
    cloud.wait_active(cloud.boot(2))

    cloud.up(scheduler="shared")
    cloud_state.wait_fresh(cloud, HOSTS)
    cloud.wait_active(cloud.boot(4, parallel=4))
    assert cloud.overcommit() == {}
    cloud_state.assert_consistent(cloud)


def recorded(cloud: Cloud) -> set[str]:
    """The servers whose requests have a record."""
    file = cloud.layout.state / "nova" / "shared-scheduler" / "records.jsonl"
    python, where = cloud.layout.nova / "bin" / "python", ("--records", str(file), "--format", "json")
    done = forked_commands.run(python, "records", "last", "100", "--kind", "decision", *where)
    return {server for line in done.stdout.splitlines() for server in json.loads(line)["instances"]}


def test_an_orderly_stop_under_load_loses_nothing(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=2, forked=False)
    first, _second = cloud.names("scheduler-shared")
    servers = cloud.boot(4, parallel=4)
    cloud.stop(first)
    servers += cloud.boot(4, parallel=4)
    assert len(cloud.wait_active(servers)) == 8
    cloud.wait(lambda: set(servers) <= recorded(cloud), "a record of each request that was answered")
    cloud.start(first)
    cloud_state.wait_fresh(cloud, HOSTS)
    cloud_state.assert_consistent(cloud)


def test_hangup_reloads_and_keeps_the_table(cloud: Cloud) -> None:
    cloud_state.begin(cloud)
    [before] = cloud_state.status(cloud)
    [name] = cloud.names("scheduler-shared")
    offset = cloud.log_size(name)
    cloud.hangup(name)
    cloud.wait(lambda: "eloaded" in cloud.logs(name, offset), "the reload to be logged")
    [after] = cloud_state.status(cloud)
    assert after["pid"] == before["pid"]
    assert after["freshness"]["fresh"] == 3
    assert after["counters"].get("snapshots_applied", 0) == before["counters"].get("snapshots_applied", 0)
    cloud.wait_active(cloud.boot(1))


def test_both_kinds_on_one_topic_lose_no_request_and_do_not_over_commit(cloud: Cloud) -> None:
    # stock schedulers need this option of Placement's beside any other writer (doc/source/admin/placement.rst)
    cloud_state.begin(cloud, scheduler="both", allocation_conflict_retry_count=1)
    wait_for_two_at_the_topic(cloud)
    before = cloud_state.counter(cloud, "requests_answered")

    servers = cloud.boot(8, parallel=4)
    assert len(cloud.wait_active(servers)) == 8
    ours = cloud_state.counter(cloud, "requests_answered") - before
    assert 0 < ours < 8, "the topic is shared round robin"
    assert cloud.overcommit() == {}
    cloud_state.assert_consistent(cloud)


def wait_for_two_at_the_topic(cloud: Cloud) -> None:
    """A scheduler that is still starting gets no share of the requests."""
    cloud.wait(lambda: cloud.consumers("scheduler") >= 2, "two schedulers to serve the topic")
