# SPDX-License-Identifier: Apache-2.0
"""A first roll-out under load: stock, observe, shadow, active, and back to stock."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from shared_scheduler.conf.mode import Mode
from tests.functional import cloud_state, modes
from tests.functional.modes import Behind, switch, users, wait_for_servers
from tools.laboratory.cloud.cloud import Cloud

OURS, STOCK = "sched1", "sched2"


@pytest.fixture
def behind(cloud: Cloud) -> Iterator[Behind]:
    """A nova-scheduler that is ready to start behind."""
    made = Behind(cloud, "behind1")
    yield made
    made.stop()


def begin(cloud: Cloud) -> None:
    """Both schedulers serve the topic; each of three computes has room for three servers."""
    cloud_state.begin(cloud, scheduler="both", allocation_conflict_retry_count=1)


def test_the_roll_out_loses_no_request_and_does_not_over_commit(cloud: Cloud, behind: Behind) -> None:
    # given a scheduler that observes beside nova-scheduler
    begin(cloud)
    switch(cloud, Mode.OBSERVE)
    before = cloud_state.counter(cloud, "requests_answered")
    with users(cloud) as crowd:
        wait_for_servers(cloud, crowd, 3)
        assert not cloud.consumers(f"scheduler.{OURS}")

        # when nova-scheduler goes behind
        behind.start()
        switch(cloud, Mode.SHADOW)
        with crowd.away():  # nova-scheduler loses a request that arrives while it stops
            cloud.stop(STOCK)
        wait_for_servers(cloud, crowd, 6)
        assert cloud_state.counter(cloud, "requests_answered") == before, "ours has answered nothing itself"

        # then ours serves, goes back twice within a second, and serves again
        switch(cloud, Mode.ACTIVE)
        wait_for_answers(cloud, before + 3)
        for mode in (Mode.SHADOW, Mode.OBSERVE, Mode.ACTIVE):
            modes.reload(cloud, OURS, mode)
        switch(cloud, Mode.ACTIVE)
        wait_for_answers(cloud, cloud_state.counter(cloud, "requests_answered") + 3)

        # and back to stock
        switch(cloud, Mode.SHADOW)
        wait_for_servers(cloud, crowd, 3)
        cloud.start(STOCK)
        switch(cloud, Mode.OBSERVE)
        cloud.stop(OURS)  # ends what it has passed on
        behind.stop()
        wait_for_servers(cloud, crowd, 3)
    modes.write_mode(cloud, OURS, Mode.ACTIVE)
    cloud.start(OURS)
    cloud_state.assert_consistent(cloud)
    assert_agreement(cloud)


def wait_for_answers(cloud: Cloud, count: int) -> None:
    """Wait until ours has answered so many requests.

    Servers that end tell less: nova-scheduler may have placed those that were under way at a switch.
    """
    cloud.wait(lambda: cloud_state.counter(cloud, "requests_answered") >= count, f"{count} answers of ours", 400)


def assert_agreement(cloud: Cloud) -> None:
    """The comparisons have survived the restart, and ours has refused nothing that stock has placed."""
    done = cloud_state.manage(cloud, "agreement", "--since", "1h", "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["requests"] >= 9
    assert told["results"]["same"] + told["results"]["different"] == told["requests"], told
    assert 0 < told["latency_ms"]["ours"]["p50"] < told["latency_ms"]["stock"]["p50"]
