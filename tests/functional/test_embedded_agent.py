# SPDX-License-Identifier: Apache-2.0
"""Each nova-compute of a real cloud runs its agent itself.

``tests/longer/test_embedded_agent.py`` kills and stops a compute: the agent starts and stops with it.
"""

from __future__ import annotations

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud import server_actions
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.provisioning import Flavor

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time to restart computes

HOSTS = {"c1", "c2", "c3"}
LARGE = Flavor("m800", ram_mb=800)
AUDIT_S = 10
"""nova-compute's audit: the source of a move counts the server until its next one."""

SETTLE_S = 180


def begin(cloud: Cloud) -> None:
    """An empty cloud whose nodes are all heard by both schedulers."""
    cloud_state.begin(cloud, schedulers=2, agents="embedded", update_resources_interval_s=AUDIT_S)
    cloud_state.wait_fresh(cloud, HOSTS)


def test_servers_come_grow_and_move_with_no_agent_beside_nova_compute(cloud: Cloud) -> None:
    begin(cloud)
    cloud.add_flavor(LARGE)
    assert cloud.names("agent") == []
    grows, moves_on, _ = cloud.boot(3, parallel=3)
    hosts = cloud.wait_active([grows, moves_on])

    grown = server_actions.act(cloud, grows, server_actions.resize(cloud.flavor_id(LARGE.name)))
    assert grown.ok and grown.host != hosts[grows], grown
    assert server_actions.act(cloud, grows, server_actions.CONFIRM).ok
    moved = server_actions.act(cloud, moves_on, server_actions.live_migrate())
    assert moved.ok and moved.host != hosts[moves_on], moved

    assert cloud.allocations(grows)[str(grown.host)]["MEMORY_MB"] == LARGE.ram_mb
    assert set(cloud.allocations(moves_on)) == {moved.host}
    cloud_state.assert_consistent(cloud, SETTLE_S)
