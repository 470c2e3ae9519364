# SPDX-License-Identifier: Apache-2.0
"""Agents on some and on none of the computes: servers fill the cloud exactly either way."""

from __future__ import annotations

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud


@pytest.mark.parametrize(
    ("agents", "freshness"),
    [("1", ["fresh", "provisional", "provisional"]), ("none", ["provisional", "provisional", "provisional"])],
)
def test_nodes_without_an_agent_are_scheduled_too(cloud: Cloud, agents: str, freshness: list[str]) -> None:
    cloud_state.begin(cloud, schedulers=2, agents=agents)
    cloud.wait(
        lambda: all(
            [table[host]["freshness"] for host in sorted(table)] == freshness
            and all(row["choosable"] for row in table.values())
            for table in cloud_state.tables(cloud).values()
        ),
        f"three nodes, {freshness}, in the choice of both schedulers",
    )

    # one after the other: without agents only Placement stands between two schedulers
    hosts = [cloud.wait_active(cloud.boot(1)) for _ in range(9)]
    chosen = sorted(host for placed in hosts for host in placed.values())
    assert chosen == ["c1"] * 3 + ["c2"] * 3 + ["c3"] * 3
    assert cloud.overcommit() == {}

    cloud.reset()
    servers = cloud.boot(6, parallel=3)
    assert len(cloud.wait_active(servers)) == 6
    assert cloud.overcommit() == {}
    cloud_state.assert_consistent(cloud, wait_s=cloud_state.SETTLE_S)
