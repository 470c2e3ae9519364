# SPDX-License-Identifier: Apache-2.0
"""Nodes without an agent: how their builds end is read from Nova's databases, also after a restart.

Standing for it in the standard run: ``tests/unit/sync/test_build_reads.py``, ``tests/unit/core/test_awaited_builds.py``
and ``tests/unit/records/test_unfinished.py``, without Nova's services.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared_scheduler.records.plain_text import listed
from tests.functional import cloud_state
from tests.functional.test_records import (
    COMPUTES,
    DATABASE,
    NO_ADDRESS,
    Case,
    ask,
    boot,
    places,
    tried_by_nova,
    wait_recorded,
)
from tools.laboratory.cloud import probes
from tools.laboratory.cloud.cloud import Cloud

#: Time until the end of a build is read from the databases, and recorded.
RECORDED_S = 90


@pytest.fixture(scope="module")
def options(cloud: Cloud) -> dict[str, Any]:
    with probes.database(cloud.layout) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    return {"shared_scheduler": {"records_connection": cloud.layout.database_url(DATABASE)}}


def builds(cloud: Cloud, place: str, server: str) -> list[tuple[str, str, str]]:
    records = ask(cloud, place, "why", server)["records"]
    return [(one["hosts"][0], one["result"], one["source"]) for one in records if one["kind"] == "build"]


def test_a_build_that_fails_on_each_node_is_told_with_what_nova_keeps(cloud: Cloud, options: dict[str, Any]) -> None:
    refusing = {host: {"refuses_builds": NO_ADDRESS} for host in COMPUTES}
    cloud_state.begin(cloud, schedulers=2, nova_options=options, agents="none", hardware_of=refusing)

    server, row = boot(cloud, "addresses")

    *before, last = tried = tried_by_nova(cloud, server)
    assert row["status"] == "ERROR" and sorted(tried) == [*COMPUTES]
    wait_recorded(cloud, Case(server, f"the builds on {listed(tried)} failed"), RECORDED_S)
    for place in places(cloud):
        assert builds(cloud, place, server) == [(host, "failed", "databases") for host in tried]
        [cause] = ask(cloud, place, "why", server)["causes"]
        assert NO_ADDRESS in cause and cause.endswith(f"(on {last})")
        told = cloud_state.manage_without_configuration(cloud, "why", server, "--records", place).stdout
        assert (
            f"  unknown   on {listed(before)}: Nova keeps no reason of a build that it tries on another host\n" in told
        )

    joined = json.loads(cloud_state.manage(cloud, "why", server, "--nova", "--format", "json").stdout)
    begun = [one["host"] for one in joined["nova"] if one["event"] == "compute__do_build_and_run_instance"]
    assert begun == tried
    assert any(NO_ADDRESS in one["details"] for one in joined["nova"] if one["action"] == "fault")


def test_a_restarted_scheduler_records_the_end_of_what_it_had_placed_before(
    cloud: Cloud, options: dict[str, Any]
) -> None:
    cloud_state.begin(cloud, schedulers=2, nova_options=options, agents="none")
    server, row = boot(cloud, "active")
    assert builds(cloud, places(cloud)[0], server) == [], "its end was not read yet"

    cloud.restart(*cloud.names("scheduler-shared"))

    wait_recorded(cloud, Case(server, f"became active on {row['host']}"), RECORDED_S)
    assert [*map(lambda place: builds(cloud, place, server), places(cloud))] == [
        [(row["host"], "active", "databases")]
    ] * 2
