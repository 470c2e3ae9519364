# SPDX-License-Identifier: Apache-2.0
"""Operations on a server in a real cloud end with the right allocation, and leave no other allocation.

``tests/longer/test_flows.py`` has the others, which the scheduler decides in the same ways.
"""

from __future__ import annotations

import pytest

from shared_scheduler.sync.orphan_search import AGAIN_S
from tests.functional import cloud_state
from tests.functional.lost_answers import leave_an_allocation
from tools.laboratory.cloud import audit, server_actions
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.provisioning import Flavor

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time for so many moves

HOSTS = {"c1", "c2", "c3"}
SMALL = {"VCPU": 1, "MEMORY_MB": 400, "DISK_GB": 1}
LARGE = Flavor("m800-two-disks", vcpus=2, ram_mb=800, disk_gb=2)
AUDIT_S = 10
"""nova-compute's audit: the source of a move counts the server until its next one."""

SETTLE_S = 180
OPTIONS = {"DEFAULT": {"shelved_offload_time": "0", "allow_resize_to_same_host": "true"}}


@pytest.fixture(scope="module", autouse=True)
def two_schedulers(cloud: Cloud) -> None:
    begin(cloud)
    cloud.add_flavor(LARGE)


def begin(cloud: Cloud, nova_options: dict[str, dict[str, str]] = OPTIONS) -> None:
    """Two schedulers, and computes that audit often."""
    cloud_state.begin(cloud, schedulers=2, nova_options=nova_options, update_resources_interval_s=AUDIT_S)


@pytest.fixture(autouse=True)
def whole(cloud: Cloud) -> None:
    cloud.reset()
    cloud_state.wait_fresh(cloud, HOSTS)


def booted(cloud: Cloud, **extra: object) -> server_actions.Ended:
    """A small server that runs."""
    [server] = cloud.boot(1, **extra)
    return built(cloud, server)


def built(cloud: Cloud, server: str) -> server_actions.Ended:
    ended = server_actions.built(cloud, server)
    assert ended.ok, ended
    return ended


def only(cloud: Cloud, *hosts: str) -> None:
    """Let no other host be chosen."""
    for host in HOSTS - set(hosts):
        cloud.disable(host)
    cloud.wait(
        lambda: all(
            {row["host"] for row in table.values() if row["choosable"]} == set(hosts)
            for table in cloud_state.tables(cloud).values()
        ),
        f"only {hosts} to be in the choice",
        SETTLE_S,
    )


def assert_right(cloud: Cloud) -> None:
    """Assert that Placement holds what Nova's records require, and that all tables agree."""
    cloud.wait(lambda: not audit.wrong_allocations(cloud), "every allocation to be right", SETTLE_S)
    cloud_state.assert_consistent(cloud, wait_s=SETTLE_S)


def test_a_resize_to_another_host_holds_both_places_until_it_is_confirmed(cloud: Cloud) -> None:
    server = booted(cloud)
    only(cloud, *sorted(HOSTS - {server.host}))

    moved = server_actions.act(cloud, server.server, server_actions.resize(cloud.flavor_id(LARGE.name)))
    assert moved.ok and moved.host != server.host, moved
    assert cloud.allocations(server.server) == {moved.host: {"VCPU": 2, "MEMORY_MB": 800, "DISK_GB": 2}}
    assert cloud.usages()[str(server.host)] == SMALL  # the migration's, until it is confirmed
    assert_right(cloud)

    assert server_actions.act(cloud, server.server, server_actions.CONFIRM).ok
    cloud.wait(lambda: str(server.host) not in cloud.usages(), "the old place to be free", SETTLE_S)
    assert_right(cloud)


def test_a_resize_on_its_own_host_counts_twice_there_until_it_is_reverted(cloud: Cloud) -> None:
    server = booted(cloud)
    only(cloud, str(server.host))

    moved = server_actions.act(cloud, server.server, server_actions.resize(cloud.flavor_id(LARGE.name)))
    assert moved.ok and moved.host == server.host, moved
    assert cloud.usages() == {server.host: {"VCPU": 3, "MEMORY_MB": 1200, "DISK_GB": 3}}
    assert_right(cloud)

    assert server_actions.act(cloud, server.server, server_actions.REVERT).ok
    assert cloud.allocations(server.server) == {server.host: SMALL}
    assert_right(cloud)


def test_a_live_migration_to_a_named_host_leaves_no_allocation_on_its_source(cloud: Cloud) -> None:
    server = booted(cloud, host="c2")
    assert server.host == "c2"

    moved = server_actions.act(cloud, server.server, server_actions.live_migrate("c3"))

    assert moved.ok and moved.host == "c3", moved
    cloud.wait(lambda: cloud.usages() == {moved.host: SMALL}, "the source to be free", SETTLE_S)
    assert_right(cloud)


def test_an_evacuation_frees_the_lost_host_when_it_is_back(cloud: Cloud) -> None:
    server = booted(cloud)
    lost = str(server.host)
    cloud.kill(lost)
    cloud.force_down(lost)

    moved = server_actions.act(cloud, server.server, server_actions.evacuate())
    assert moved.ok and moved.host != lost, moved
    assert cloud.allocations(server.server) == {lost: SMALL, moved.host: SMALL}

    cloud.start(lost)
    cloud.force_down(lost, down=False)
    cloud.wait(lambda: cloud.usages() == {moved.host: SMALL}, "the lost host to be cleaned", SETTLE_S)
    cloud_state.wait_fresh(cloud, HOSTS)
    assert_right(cloud)


def test_a_shelved_server_has_no_allocations_and_is_unshelved_on_another_host(cloud: Cloud) -> None:
    server = booted(cloud)

    shelved = server_actions.act(cloud, server.server, server_actions.SHELVE)
    assert shelved.ok, shelved
    cloud.wait(lambda: not cloud.usages(), "its place to be free", SETTLE_S)
    assert_right(cloud)

    # an unshelve whose answer is lost leaves a place taken: nova-conductor gives it up, and writes that down
    leave_an_allocation(cloud, server.server, server.host)
    cloud.sql("nova_cell1", "UPDATE instances SET updated_at = UTC_TIMESTAMP() WHERE uuid = %s", [server.server])
    cloud.wait(lambda: not cloud.usages(), "what nobody was told of to be let go", 4 * AGAIN_S)
    assert_right(cloud)

    only(cloud, *sorted(HOSTS - {server.host}))
    back = server_actions.act(cloud, server.server, server_actions.UNSHELVE)
    assert back.ok and back.host != server.host, back
    assert cloud.usages() == {back.host: SMALL}
    assert_right(cloud)


def test_a_rebuild_with_another_image_asks_for_its_own_host_alone(cloud: Cloud) -> None:
    # given a server on a host that no new server may take
    server = booted(cloud)
    only(cloud, *sorted(HOSTS - {server.host}))

    rebuilt = server_actions.act(cloud, server.server, server_actions.rebuild(cloud.ensure_image("other")))

    assert rebuilt.ok and rebuilt.host == server.host, rebuilt
    assert cloud.usages() == {server.host: SMALL}
    assert_right(cloud)


def test_a_forced_host_is_taken_and_no_other_when_it_is_full(cloud: Cloud) -> None:
    forced = [booted(cloud, availability_zone="nova:c2") for _ in range(3)]
    assert [server.host for server in forced] == ["c2"] * 3

    [refused] = cloud.boot(1, availability_zone="nova:c2")
    ended = server_actions.built(cloud, refused)

    assert "No valid host" in ended.why
    assert cloud.allocations(refused) == {}
    assert_right(cloud)


def test_an_availability_zone_keeps_its_servers_to_its_hosts(cloud: Cloud) -> None:
    cloud.ensure_zone("inner", {"c3"})
    try:
        inside = [booted(cloud, availability_zone="inner") for _ in range(3)]
        assert {server.host for server in inside} == {"c3"}

        [refused] = cloud.boot(1, availability_zone="inner")
        assert "No valid host" in server_actions.built(cloud, refused).why
        assert_right(cloud)
    finally:
        cloud.reset()
        cloud.remove_zone("inner")


def test_a_group_keeps_its_members_apart_or_together(cloud: Cloud) -> None:
    policy = group(cloud, "anti-affinity")
    apart = [booted(cloud, hints={"group": policy}) for _ in HOSTS]
    assert {server.host for server in apart} == HOSTS
    [fourth] = cloud.boot(1, hints={"group": policy})
    assert "No valid host" in server_actions.built(cloud, fourth).why
    server_actions.delete(cloud, fourth)

    policy = group(cloud, "affinity")
    together = [booted(cloud, hints={"group": policy}) for _ in range(2)]
    assert len({server.host for server in together}) == 1
    assert_right(cloud)


def group(cloud: Cloud, policy: str) -> str:
    """A new server group."""
    body = {"server_group": {"name": policy, "policy": policy}}
    created: str = cloud.compute("POST", "/os-server-groups", body).expect(200)["server_group"]["id"]
    return created
