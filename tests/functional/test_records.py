# SPDX-License-Identifier: Apache-2.0
"""Operators ask the records of a real cloud why a server is not there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud

NO_ADDRESS = "No more IP addresses"
COMPUTES = ("c1", "c2", "c3")


@pytest.fixture(scope="module", autouse=True)
def scheduled_by_us(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=2)


def failed(cloud: Cloud) -> str:
    [server] = cloud.boot(1)
    assert cloud.wait_built([server])[server]["status"] == "ERROR"
    return server


def story(cloud: Cloud, name: str) -> dict[str, Any]:
    """What ``why`` prints, once the end that the test waits for is recorded."""
    found: list[dict[str, Any]] = []

    def ended() -> bool:
        done = cloud_state.manage(cloud, "why", name, "--format", "json")
        found[:] = [json.loads(done.stdout)] if done.returncode == 0 else []
        return bool(found) and "no build is recorded" not in found[0]["outcome"]

    cloud.wait(ended, f"the story of {name}", 20)
    return found[0]


def request_ids(cloud: Cloud, server: str) -> list[str]:
    """As Nova returns and stores them in its instance actions."""
    query = "SELECT request_id FROM instance_actions WHERE instance_uuid = %s"
    return [name for (name,) in cloud.sql("nova_cell1", query, [server])]


def test_a_server_that_was_built_is_active_in_its_story(cloud: Cloud) -> None:
    [server] = cloud.boot(1)
    host = cloud.wait_active([server])[server]

    told = story(cloud, server)

    assert (told["outcome"], told["causes"]) == (f"active on {host}", [])
    assert [one["kind"] for one in told["records"]] == ["decision", "build"]
    assert {one["host"] for one in told["records"][0]["decisions"][0]["best"]} == set(COMPUTES)


def test_a_server_that_fails_on_three_nodes_names_the_cause_of_each(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=2, hardware_of={host: {"refuses_builds": NO_ADDRESS} for host in COMPUTES})

    server = failed(cloud)

    builds = [one for one in story(cloud, server)["records"] if one["kind"] == "build"]
    assert sorted(one["hosts"][0] for one in builds) == list(COMPUTES)
    assert all(one["result"] == "failed" and NO_ADDRESS in one["reason"] for one in builds)
    [request_id] = request_ids(cloud, server)
    cloud.stop(*cloud.names("scheduler-shared"))  # their memory is gone, and their records are not
    for name in (server, request_id):
        causes = story(cloud, name)["causes"]
        assert sorted(cause[-3:-1] for cause in causes) == list(COMPUTES)
        assert all(NO_ADDRESS in cause for cause in causes)


def test_a_server_without_room_names_the_missing_resource(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=2, compute_slots=(1,))
    cloud.wait_active(cloud.boot(3))

    server = failed(cloud)

    told = story(cloud, server)
    assert told["outcome"] == "no host was found (no_candidates)"
    near = {one["host"]: one for one in told["records"][-1]["near"]}
    assert near.keys() == set(COMPUTES)
    assert near["c1"]["code"] == "no_room:MEMORY_MB"
    assert (near["c1"]["detail"]["asked"], near["c1"]["detail"]["used"]) == (400, 400)
