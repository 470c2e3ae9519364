# SPDX-License-Identifier: Apache-2.0
"""Any process may be killed: servers can be booted again without an operator, and the tables are correct."""

from __future__ import annotations

import pytest

from shared_scheduler.sync.orphan_search import AGAIN_S
from tests.functional import cloud_state
from tests.functional.lost_answers import leave_an_allocation
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.provisioning import Flavor

HOSTS = {"c1", "c2", "c3"}
#: Nova's services wait ``rpc_response_timeout`` (60 s) for an answer that went down with the broker, a
#: nova-compute that reports its state among them, and only then try again; on top of it what we need
AFTER_THE_BROKER_S = 300.0


@pytest.fixture(scope="module", autouse=True)
def two_schedulers(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=2)


@pytest.fixture(autouse=True)
def whole(cloud: Cloud) -> None:
    cloud.reset()
    cloud_state.wait_fresh(cloud, HOSTS)


def test_after_a_kill_the_other_scheduler_serves_and_the_restarted_one_is_correct(cloud: Cloud) -> None:
    cloud.wait_active(cloud.boot(2, parallel=2))
    victim, survivor = cloud.names("scheduler-shared")
    cloud.kill(victim)

    servers = cloud.boot(2, parallel=2)
    assert len(cloud.wait_active(servers)) == 2
    assert cloud.alive(survivor)

    cloud.start(victim)
    cloud_state.wait_fresh(cloud, HOSTS)
    cloud_state.assert_consistent(cloud)


def test_all_schedulers_killed_and_started_again_know_what_was_placed(cloud: Cloud) -> None:
    first = cloud.boot(5, parallel=5)
    cloud.wait_active(first)
    for name in cloud.names("scheduler-shared"):
        cloud.kill(name)
    cloud.start(*cloud.names("scheduler-shared"))

    cloud.wait_active(cloud.boot(4, parallel=4))
    assert cloud.overcommit() == {}
    cloud_state.wait_fresh(cloud, HOSTS)
    cloud_state.assert_consistent(cloud)


def test_allocations_of_requests_without_an_answer_are_deleted(cloud: Cloud) -> None:
    # given a server for which nova-conductor will have no answer (here it has none from a scheduler either)
    cloud.add_flavor(Flavor("huge", ram_mb=1_000_000))
    [server] = cloud.boot(1, flavor="huge")
    # and what a scheduler leaves that is killed between Placement's answer and its own
    leave_an_allocation(cloud, server, "c1")
    # when it is given up
    assert cloud.wait_built([server])[server]["status"] == "ERROR"
    # then the schedulers find what it holds, by their second check at the latest, and its node is free again
    cloud.wait(lambda: cloud.allocations(server) == {}, "the allocation to be let go", 4 * AGAIN_S)
    cloud_state.assert_consistent(cloud)


def test_a_killed_agent_is_done_without_and_then_followed_again(cloud: Cloud) -> None:
    cloud.wait_active(cloud.boot(3, parallel=3))
    cloud.kill("agent-c1")

    # without any operator: whether on other nodes or on this one, servers boot
    cloud_state.boot_until_active(cloud)

    # as its supervisor would
    cloud.start("agent-c1")
    cloud_state.wait_fresh(cloud, HOSTS)
    cloud.wait_active(cloud.boot(4, parallel=4))
    assert cloud.overcommit() == {}
    cloud_state.assert_consistent(cloud)


def test_a_killed_compute_is_not_chosen_and_is_again_when_it_is_back(cloud: Cloud) -> None:
    cloud.kill("c1")
    cloud.wait(
        lambda: all(not t["c1"]["choosable"] for t in cloud_state.tables(cloud).values()),
        "c1 to be out of the choice",
    )
    hosts = set(cloud.wait_active(cloud.boot(3, parallel=3)).values())
    assert "c1" not in hosts

    cloud.start("c1")
    cloud.wait_services_up()
    cloud_state.wait_fresh(cloud, HOSTS)
    # only c1 has room for three more
    servers = cloud.boot(6, parallel=6)
    assert list(cloud.wait_active(servers).values()).count("c1") == 3
    cloud_state.assert_consistent(cloud)


def test_a_restart_of_the_broker_needs_no_action(cloud: Cloud) -> None:
    cloud.wait_active(cloud.boot(2, parallel=2))
    cloud.restart("rabbitmq")
    cloud.wait_listening(AFTER_THE_BROKER_S)
    cloud.wait_services_up(AFTER_THE_BROKER_S)

    cloud_state.boot_until_active(cloud, AFTER_THE_BROKER_S)
    cloud_state.wait_fresh(cloud, HOSTS, AFTER_THE_BROKER_S)
    cloud.wait_active(cloud.boot(3, parallel=3))
    cloud_state.assert_consistent(cloud)
