# SPDX-License-Identifier: Apache-2.0
"""Two members of one server group, asked for at the same moment by way of four schedulers, on a real cloud.

The hosts are uneven, so that all schedulers like the same one best, and Nova's late check is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud

SLOTS = (40, 8, 8, 8)
ROUNDS = 2
NO_LATE_CHECK = {"workarounds": {"disable_group_policy_check_upcall": "true"}}


@pytest.fixture(scope="module", autouse=True)
def prepared(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=4, computes=4, compute_slots=SLOTS, nova_options=NO_LATE_CHECK)


@contextmanager
def group(cloud: Cloud, policy: str) -> Iterator[str]:
    """A new server group, and its members are deleted at the end."""
    body = {"server_group": {"name": policy, "policy": policy}}
    uuid = cloud.compute("POST", "/os-server-groups", body).expect(200)["server_group"]["id"]
    yield uuid
    cloud.delete([server["id"] for server in cloud.servers()])
    cloud.compute("DELETE", f"/os-server-groups/{uuid}").expect(204)


def raced(cloud: Cloud, uuid: str) -> list[str]:
    """The hosts of two members whose requests reach the schedulers at the same moment."""
    conductors = cloud.names("conductor")
    for name in conductors:
        cloud.freeze(name)
    try:
        servers = cloud.boot(2, parallel=2, hints={"group": uuid})
    finally:
        for name in conductors:
            cloud.thaw(name)
    built = cloud.wait_built(servers)
    assert {row["status"] for row in built.values()} == {"ACTIVE"}
    return [str(row["host"]) for row in built.values()]


@pytest.mark.parametrize(
    ("policy", "hosts"), [("anti-affinity", 2), ("soft-anti-affinity", 2), ("affinity", 1), ("soft-affinity", 1)]
)
def test_racing_members_are_where_the_policy_wants_them(cloud: Cloud, policy: str, hosts: int) -> None:
    found = []
    for _ in range(ROUNDS):
        with group(cloud, policy) as uuid:
            found.append(raced(cloud, uuid))
    print(f"{policy}: {found}")
    assert [len(set(pair)) for pair in found] == [hosts] * ROUNDS
    cloud_state.assert_consistent(cloud)
