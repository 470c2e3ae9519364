# SPDX-License-Identifier: Apache-2.0
"""A whole cloud without agents; ``tests/functional/test_mixed_agents.py`` has one with an agent on some computes."""

from __future__ import annotations

from tests.functional.test_mixed_agents import assert_nodes_without_an_agent_are_scheduled
from tools.laboratory.cloud.cloud import Cloud


def test_a_cloud_without_agents_is_scheduled_too(cloud: Cloud) -> None:
    assert_nodes_without_an_agent_are_scheduled(cloud, agents="none")
