# SPDX-License-Identifier: Apache-2.0
"""Guru Meditation Reports of the real programs in a cloud, at SIGUSR2."""

from __future__ import annotations

import os
import signal

from shared_scheduler.release import release
from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud

END = "State of this process"
NOT_TOLD = "not available = TimeoutError"


def report_of(cloud: Cloud, name: str, last: str) -> str:
    """What a service prints at SIGUSR2; ``last`` is a part of our section.

    A machine that stands still may leave a report without it: the state was not told in time, which the report says.
    """
    pid, reports = cloud.pid(name), list[str]()
    assert pid is not None

    def is_complete() -> bool:
        offset = cloud.log_size(name)
        os.kill(pid, signal.SIGUSR2)
        cloud.wait(lambda: any(part in cloud.logs(name, offset) for part in (last, NOT_TOLD)), f"the report of {name}")
        reports.append(cloud.logs(name, offset))
        return last in reports[-1]

    cloud.wait(is_complete, f"the state in the report of {name}")
    return reports[-1]


def test_a_scheduler_and_an_agent_report_their_state_and_go_on(cloud: Cloud) -> None:
    cloud_state.begin(cloud, forked=False)
    [scheduler] = cloud.names("scheduler-shared")

    ours = report_of(cloud, scheduler, "placement_writes = ")
    agents = report_of(cloud, "agent-c1", "tap_connected = ")

    for report in (ours, agents):
        assert END in report and f"{release()} with nova" in report
    assert "nodes = 3" in ours and "fresh = 3" in ours and "shared-scheduler" in ours
    assert "epoch = " in agents
    cloud.wait_active(cloud.boot(1))
