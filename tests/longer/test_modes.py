# SPDX-License-Identifier: Apache-2.0
"""A hundred switches of two schedulers in front of two nova-schedulers; one that is slow, down, or refuses."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from itertools import cycle, islice

import pytest

from shared_scheduler.conf.mode import Mode
from tests.functional import cloud_state, modes
from tests.functional.modes import Behind, switch, users, wait_for_servers
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.provisioning import Flavor

SWITCHES = 100
#: each mode follows each other
ORDER = (Mode.SHADOW, Mode.ACTIVE, Mode.OBSERVE, Mode.ACTIVE, Mode.SHADOW, Mode.OBSERVE)


OURS, STOCK = ("sched1", "sched2"), ("sched3", "sched4")
#: with one scheduler of each kind
SERVING, NOVAS = "sched1", "sched2"
IN_FLIGHT = 20
#: Requests wait for a nova-scheduler that is frozen, or starts again, longer than the minute in which Nova wants a sign
#: of life.
PATIENT = {"DEFAULT": {"rpc_response_timeout": "300"}}


@pytest.fixture
def behind(cloud: Cloud) -> Iterator[Behind]:
    """A nova-scheduler that is ready to start behind."""
    made = Behind(cloud, "behind1")
    yield made
    made.stop()


def test_a_hundred_switches_and_back_to_stock(cloud: Cloud) -> None:
    # given two schedulers that serve, and a nova-scheduler behind each
    cloud_state.begin(cloud, scheduler="both", schedulers=2, allocation_conflict_retry_count=1)
    for stock in STOCK:
        cloud.stop(stock)
    behind = [Behind(cloud, "behind1"), Behind(cloud, "behind2")]
    try:
        for one in behind:
            one.start()
        with users(cloud, modes.MANY_USERS) as crowd:
            # when their modes change all the time
            for mode in islice(cycle(ORDER), SWITCHES):
                switch(cloud, mode)
                modes.pause()
            print(f"{SWITCHES} switches, {crowd.ended.total()} servers")

            # and the cloud goes back to stock
            for stock in STOCK:
                cloud.start(stock)
            switch(cloud, Mode.OBSERVE)
            for scheduler in OURS:
                cloud.stop(scheduler)
            for one in behind:
                one.stop()
            wait_for_servers(cloud, crowd, 6)
    finally:
        for one in behind:
            one.stop()

    # then each server was built (``users``), and tables, agents, Placement and databases agree
    for scheduler in OURS:
        modes.write_mode(cloud, scheduler, Mode.ACTIVE)
        cloud.start(scheduler)
    cloud_state.assert_consistent(cloud)


def test_requests_in_flight_end_under_the_mode_in_which_they_began(cloud: Cloud, behind: Behind) -> None:
    # given a nova-scheduler behind that does not answer, and requests that were passed on to it
    cloud_state.begin(
        cloud, scheduler="both", compute_slots=(8,), allocation_conflict_retry_count=1, nova_options=PATIENT
    )
    behind.start()
    switch(cloud, Mode.SHADOW)
    cloud.stop(NOVAS)
    before = cloud_state.counter(cloud, "requests_answered")
    behind.signal(signal.SIGSTOP)
    waiting = cloud.boot(IN_FLIGHT, parallel=IN_FLIGHT)
    cloud.wait(lambda: cloud_state.counter(cloud, "requests_previewed") >= IN_FLIGHT, "ours to have decided")

    # when the mode changes, a new request is served at once
    switch(cloud, Mode.ACTIVE)
    cloud.wait_active(cloud.boot(1))
    assert {cloud.server(server)["status"] for server in waiting} == {"BUILD"}

    # then the others end when nova-scheduler answers
    behind.signal(signal.SIGCONT)
    cloud.wait_active(waiting)
    assert cloud_state.counter(cloud, "requests_answered") == before + 1
    assert cloud.overcommit() == {}
    cloud_state.assert_consistent(cloud)


def test_shadow_waits_for_a_nova_scheduler_that_is_down(cloud: Cloud, behind: Behind) -> None:
    # when none is behind, the scheduler stays as it is and says why
    cloud_state.begin(cloud, scheduler="both", allocation_conflict_retry_count=1, nova_options=PATIENT)
    offset = cloud.log_size(SERVING)
    modes.reload(cloud, SERVING, Mode.SHADOW)
    cloud.wait(lambda: "start shared-scheduler-stock" in cloud.logs(SERVING, offset), "the reason to be logged")
    assert modes.modes(cloud) == {SERVING: "active"}

    # when it is away for a while, requests wait
    behind.start()
    switch(cloud, Mode.SHADOW)
    cloud.stop(NOVAS)
    behind.stop()
    [server] = cloud.boot(1)
    modes.pause()
    assert cloud.server(server)["status"] == "BUILD"
    behind.start()
    cloud.wait_active([server])


def test_a_refusal_of_nova_scheduler_reaches_the_user_as_without_us(cloud: Cloud, behind: Behind) -> None:
    cloud_state.begin(cloud, scheduler="both", allocation_conflict_retry_count=1)
    cloud.add_flavor(Flavor("too-big", ram_mb=400_000))
    cloud.stop(SERVING)
    alone = refusal(cloud)

    cloud.start(SERVING)
    behind.start()
    switch(cloud, Mode.SHADOW)
    cloud.stop(NOVAS)

    assert refusal(cloud) == alone
    assert alone.startswith("No valid host was found")
    done = cloud_state.manage(cloud, "agreement", "--since", "1h", "--format", "json")
    assert json.loads(done.stdout)["results"]["both_refused"] == 1


def refusal(cloud: Cloud) -> str:
    """What the user of a server that fits nowhere is told."""
    [server] = cloud.boot(1, "too-big")
    row = cloud.wait_built([server])[server]
    assert row["status"] == "ERROR"
    return str(row["fault"])
