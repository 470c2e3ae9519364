# SPDX-License-Identifier: Apache-2.0
"""Schedulers and nova-computes in one process: Nova's own functional tests, and all-in-one trials.

``attach`` gives each ResourceTracker of a test an embedded agent, and puts agents and schedulers onto one
local bus in place of RabbitMQ, until the test is over.  It is called before the test sets anything up,
keeps everything in what the test cleans up, and changes nothing but the seams that it names.
"""

from __future__ import annotations

import random
import time
from typing import Any

from nova.compute.resource_tracker import ResourceTracker

from compute_agent.embedded import MODE, EmbeddedAgents, NothingKept
from compute_agent.service.agent import Agent
from compute_agent.service.channel import Channel
from compute_agent.settings import Settings
from compute_agent.sources.placement import PlacementReader
from compute_agent.sources.report_client import ReportClientAdapter
from compute_agent.sources.topology import NovaTopologyFit
from shared_scheduler.nova import cells, running  # noqa: F401  see below
from shared_scheduler.transport.local_bus import LocalBus

# The scheduler is imported here, because a test starts it too late: NumPy asks for the machine's name when
# it is imported, and Nova's tests forbid that from their setUp on.

#: How long nova-compute waits for schedulers to be told of a change: what a test does next relies on it.
TOLD_WITHIN_S = 30.0


def attach(testcase: Any) -> None:
    """Agents for the computes of one test; ``testcase`` needs ``addCleanup`` only."""
    bus = LocalBus()
    agents = EmbeddedAgents(lambda tracker: _agent(tracker, bus), TOLD_WITHIN_S)
    _replace(testcase, cells, "open_bus", lambda _url: bus)
    for name, hooked in agents.hooks(ResourceTracker):
        _replace(testcase, ResourceTracker, name, hooked)
    testcase.addCleanup(agents.stop)


def _replace(testcase: Any, owner: Any, name: str, value: Any) -> None:
    testcase.addCleanup(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _agent(tracker: Any, bus: LocalBus) -> Agent:
    """The clock makes the epoch: whoever had the host before began earlier."""
    return Agent(
        tracker.host,
        Channel(bus.agent_endpoint(tracker.host)),
        PlacementReader(ReportClientAdapter(tracker.reportclient)),
        NothingKept(),
        int(time.time() * 1000),
        NovaTopologyFit(),
        Settings(),
        random.Random(),
        MODE,
    )
