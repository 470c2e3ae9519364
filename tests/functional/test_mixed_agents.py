# SPDX-License-Identifier: Apache-2.0
"""Computes without an agent: the cloud is scheduled either way.

``tests/longer/test_mixed_agents.py`` fills a cloud exactly that has an agent on some and on none of its computes.
"""

from __future__ import annotations

import json

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud


def test_an_operator_has_a_host_without_an_agent_read_anew(cloud: Cloud) -> None:
    # given servers on a host that no agent speaks for
    cloud_state.begin(cloud, schedulers=2, agents="none")
    cloud.wait_active(cloud.boot(2, availability_zone="nova:c1"))
    # when an operator has it read anew, twice
    first, again = (cloud_state.manage(cloud, "resync", "c1", "--wait", "60", "--format", "json") for _ in range(2))
    # then each scheduler has read its row from the databases
    assert first.returncode == 0, first.stdout + first.stderr
    read = [node for answer in json.loads(first.stdout) for node in answer["nodes"]]
    assert [(node["source"], node["result"], node["epoch"]) for node in read] == [("databases", "read", 0)] * 2
    # and the second one read nothing, unless the machine was very slow
    told = {node["result"] for answer in json.loads(again.stdout) for node in answer["nodes"]}
    assert told <= {"too_soon", "read"} and again.returncode == (1 if "too_soon" in told else 0)
    cloud_state.assert_consistent(cloud)


def test_agents_can_be_rolled_out_under_way(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=2, agents="none")
    cloud.wait_active(cloud.boot(4, parallel=2))
    cloud.up(agents="all")
    cloud_state.wait_fresh(cloud, {"c1", "c2", "c3"})
    cloud.wait_active(cloud.boot(5, parallel=5))
    assert cloud.overcommit() == {}
    cloud_state.assert_consistent(cloud)
