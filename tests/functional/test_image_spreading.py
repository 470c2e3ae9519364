# SPDX-License-Identifier: Apache-2.0
"""The properties of an image in Glance spread its servers over zones, in a real cloud: also when they move.

Nova sends a scheduler none of these properties; it keeps them with the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud import server_actions
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.provisioning import Flavor

pytestmark = pytest.mark.timeout(1800)  # a busy machine takes its time for so many moves

HOSTS = {"c1", "c2", "c3"}
#: c1 and c2 are in one zone, c3 is alone in the other.
ZONES = {"left": {"c1", "c2"}, "right": {"c3"}}
LEFT = ZONES["left"]
SETTLE_S = 180
OPTIONS = {
    "DEFAULT": {"shelved_offload_time": "0"},
    "shared_scheduler": {"spread_keys": "availability_zone", "spread_image_properties": "required"},
}
#: One name as in a flavor, and one as of Nova's own properties.
WEB = {"shared_scheduler:spread": "key=availability_zone", "shared_scheduler_label": "web"}

FLAVOR = Flavor("m400-apart", extra={"shared_scheduler:spread": "key=availability_zone"})


@pytest.fixture(scope="module", autouse=True)
def two_zones(cloud: Cloud) -> Iterator[None]:
    cloud_state.begin(cloud, schedulers=2, nova_options=OPTIONS, update_resources_interval_s=10)
    for zone, hosts in ZONES.items():
        cloud.ensure_zone(zone, hosts)
    yield
    cloud.reset()  # a host with servers does not leave its zone
    cloud.wait(lambda: not pending(cloud), "the claims of deleted servers to end", SETTLE_S)
    for zone in ZONES:
        cloud.remove_zone(zone)


def pending(cloud: Cloud) -> int:
    """The claims that agents count.  One that keeps them over a restart does not know that Placement had them."""
    return sum(row["pending"] for table in cloud_state.tables(cloud).values() for row in table.values())


@pytest.fixture(autouse=True)
def whole(cloud: Cloud) -> None:
    cloud.reset()
    cloud_state.wait_fresh(cloud, HOSTS)


@pytest.fixture
def web(cloud: Cloud) -> str:
    return cloud.ensure_image("web", WEB)


def booted(cloud: Cloud, image: str, **extra: object) -> server_actions.Ended:
    """A server of this image that runs."""
    [server] = cloud.boot(1, imageRef=image, **extra)
    ended = server_actions.built(cloud, server)
    assert ended.ok, ended
    return ended


def zone_of(host: str | None) -> str:
    [zone] = [zone for zone, hosts in ZONES.items() if host in hosts]
    return zone


def why(cloud: Cloud, server: str) -> dict[str, Any]:
    """What the command of the operator says of a server, when its record is written."""
    place = str(cloud.layout.state / "nova" / "shared-scheduler" / "records.jsonl")
    told: dict[str, Any] = {}

    def is_told() -> bool:
        done = cloud_state.manage_without_configuration(cloud, "why", server, "--records", place, "--format", "json")
        told.update(json.loads(done.stdout or "{}"))
        return bool(told.get("records"))

    cloud.wait(is_told, f"the record of {server}", SETTLE_S)
    return told


def test_servers_of_an_image_are_spread_and_why_tells_that_the_image_wanted_it(cloud: Cloud, web: str) -> None:
    # given two servers of the image, one in each zone, and no room in the right one
    zones = {zone_of(booted(cloud, web).host) for _ in ZONES}
    assert zones == ZONES.keys()
    cloud.disable("c3")
    cloud_state.ask_all(cloud, "nodes")
    third = booted(cloud, web)
    assert third.host in LEFT
    # when another one is wanted, it would be the second too many on the left
    [fourth] = cloud.boot(1, imageRef=web)
    assert "No valid host" in server_actions.built(cloud, fourth).why
    # then the operator reads which constraint it was, and that it is from the image
    [record, *_] = why(cloud, fourth)["records"]
    assert record["asked"]["spread"] == [
        {"key": "availability_zone", "max_skew": 1, "mode": "hard", "source": "image"},
    ]  # fmt: skip
    details = {one["host"]: one["detail"] for one in record["near"] if one["code"] == "spread"}
    assert details and all(one["source"] == "image" and one["domain"] == "left" for one in details.values())
    # and a server of another image goes where it likes
    assert booted(cloud, cloud.image_id()).host in LEFT


def test_servers_of_one_request_and_of_requests_at_the_same_moment_are_spread(cloud: Cloud, web: str) -> None:
    cloud.boot(1, imageRef=web, min_count=2, max_count=2)
    cloud.boot(2, imageRef=web, parallel=2)
    hosts = cloud.wait_active([row["id"] for row in cloud.servers()]).values()
    assert sorted(map(zone_of, hosts)) == ["left", "left", "right", "right"]


@pytest.mark.parametrize("move", ["live migration", "evacuation", "unshelving"])
def test_a_server_that_moves_stays_within_what_its_image_asks(cloud: Cloud, web: str, move: str) -> None:
    # given a server on the left, with another one on the right, where there is more room
    first, second = booted(cloud, web), booted(cloud, web)
    left = next(one for one in (first, second) if one.host in LEFT)
    host = str(left.host)
    # when it moves, without a word of the user about racks or zones
    moved = MOVES[move](cloud, left.server, host)
    # then it stays on the left: two on the right would be too many
    assert moved.ok and moved.host in LEFT, moved


def live_migration(cloud: Cloud, server: str, _: str) -> server_actions.Ended:
    return server_actions.act(cloud, server, server_actions.live_migrate())


def evacuation(cloud: Cloud, server: str, host: str) -> server_actions.Ended:
    cloud.kill(host)
    cloud.force_down(host)
    ended = server_actions.act(cloud, server, server_actions.evacuate())
    cloud.start(host)
    cloud.force_down(host, down=False)
    return ended


def unshelving(cloud: Cloud, server: str, _: str) -> server_actions.Ended:
    assert server_actions.act(cloud, server, server_actions.SHELVE).ok
    return server_actions.act(cloud, server, server_actions.UNSHELVE)


MOVES = {"live migration": live_migration, "evacuation": evacuation, "unshelving": unshelving}


def test_an_image_that_differs_from_its_flavor_fails_and_both_are_named(cloud: Cloud) -> None:
    looser = cloud.ensure_image("looser", {**WEB, "shared_scheduler:spread": "key=availability_zone,max_skew=9"})
    cloud.add_flavor(FLAVOR)
    [server] = cloud.boot(1, flavor=FLAVOR.name, imageRef=looser)
    assert "No valid host" in server_actions.built(cloud, server).why
    assert "max_skew=9,mode=hard, but the flavor has key=availability_zone,max_skew=1" in json.dumps(why(cloud, server))
