# SPDX-License-Identifier: Apache-2.0
"""More operations on a server in a real cloud than ``tests/functional/test_flows.py`` has."""

from __future__ import annotations

import pytest

from tests.functional import cloud_state
from tests.functional.test_flows import (
    HOSTS,
    OPTIONS,
    SETTLE_S,
    SMALL,
    assert_right,
    begin,
    booted,
    built,
    group,
    whole,
)
from tools.laboratory.cloud import server_actions
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.provisioning import Flavor

__all__ = ["whole"]

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time for so many moves

TOO_LARGE = Flavor("m9000", ram_mb=9000)
#: as a weigher like the others, it would lose against free memory, CPU and disk together
SOFT = {"filter_scheduler": {"soft_affinity_weight_multiplier": "100"}}


@pytest.fixture(scope="module", autouse=True)
def two_schedulers(cloud: Cloud) -> None:
    begin(cloud, OPTIONS | SOFT)
    cloud.add_flavor(TOO_LARGE)


def booted_on_the_best(cloud: Cloud, **extra: object) -> server_actions.Ended:
    """The same, where the weights want it, and not on the next host because an agent was late."""
    server, _ = cloud_state.boot_undisturbed(cloud, **extra)
    return built(cloud, server)


def test_a_resize_that_fits_no_host_changes_nothing_and_reports_that(cloud: Cloud) -> None:
    server = booted(cloud)

    moved = server_actions.act(cloud, server.server, server_actions.resize(cloud.flavor_id(TOO_LARGE.name)))

    assert (moved.state, moved.host) == ("active", server.host)
    assert "No valid host" in moved.why
    assert cloud.usages() == {server.host: SMALL}
    assert_right(cloud)


def test_a_cold_migration_that_is_reverted_is_back_where_it_was(cloud: Cloud) -> None:
    server = booted(cloud)

    moved = server_actions.act(cloud, server.server, server_actions.cold_migrate())
    assert moved.ok and moved.host != server.host, moved
    assert cloud.usages() == {server.host: SMALL, moved.host: SMALL}

    back = server_actions.act(cloud, server.server, server_actions.REVERT)
    assert back.ok and back.host == server.host, back
    cloud.wait(lambda: cloud.usages() == {server.host: SMALL}, "the other place to be free", SETTLE_S)
    assert_right(cloud)


def test_a_group_takes_a_new_member_to_the_host_of_one_that_was_deleted(cloud: Cloud) -> None:
    policy = group(cloud, "anti-affinity")
    members = [booted(cloud, hints={"group": policy}) for _ in HOSTS]
    server_actions.delete(cloud, members[1].server)

    again = booted(cloud, hints={"group": policy})

    assert again.host == members[1].host
    assert_right(cloud)


def test_a_soft_group_keeps_its_members_apart_or_together_as_far_as_it_goes(cloud: Cloud) -> None:
    policy = group(cloud, "soft-anti-affinity")
    apart = [booted_on_the_best(cloud, hints={"group": policy}) for _ in range(4)]
    assert {server.host for server in apart[:3]} == HOSTS
    for server in apart:
        server_actions.delete(cloud, server.server)

    policy = group(cloud, "soft-affinity")
    together = [booted_on_the_best(cloud, hints={"group": policy}) for _ in range(4)]
    assert len({server.host for server in together[:3]}) == 1, "a host takes three"
    assert together[3].host != together[0].host
    assert_right(cloud)


def test_a_request_that_names_its_host_is_kept_to_it_all_the_way(cloud: Cloud) -> None:
    server = booted(cloud, host="c2")
    assert server.host == "c2"
    for host, action in (("c3", server_actions.live_migrate("c3")), ("c1", server_actions.cold_migrate("c1"))):
        moved = server_actions.act(cloud, server.server, action)
        assert moved.ok and moved.host == host, moved
    assert server_actions.act(cloud, server.server, server_actions.CONFIRM).ok

    rebuilt = server_actions.act(
        cloud, server.server, server_actions.rebuild(cloud.image_id())
    )  # with the image that it has
    assert rebuilt.ok and rebuilt.host == "c1", rebuilt
    assert server_actions.act(cloud, server.server, server_actions.SHELVE).ok
    back = server_actions.act(cloud, server.server, server_actions.unshelve("c2"))
    assert back.ok and back.host == "c2", back
    cloud.wait(lambda: cloud.usages() == {"c2": SMALL}, "all other places to be free", SETTLE_S)

    filling = [booted(cloud, availability_zone="nova:c2:c2") for _ in range(2)]  # by host and node
    assert {one.host for one in filling} == {"c2"}
    [refused] = cloud.boot(1, host="c2")
    assert "No valid host" in server_actions.built(cloud, refused).why
    assert_right(cloud)
