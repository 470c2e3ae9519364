# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-status upgrade check`` as an operator runs it, on a whole cloud."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from oslo_upgradecheck.upgradecheck import Code

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud

TIMEOUT_S = 300
WARNINGS = 1


@pytest.fixture(scope="module")
def shared(cloud: Cloud) -> Cloud:
    """Three computes with agents and a scheduler of ours, and Placement as the documentation wants it."""
    cloud_state.begin(cloud, allocation_conflict_retry_count=1)
    return cloud


def check(cloud: Cloud, *arguments: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Exit code, check -> what it says, and everything that was printed."""
    command = [
        str(cloud.layout.nova / "bin" / "shared-scheduler-status"),
        "--config-file", str(cloud.layout.nova_conf()),
        "--placement-config-file", str(cloud.layout.etc / "placement" / "placement.conf"),
        *arguments, "upgrade", "check", "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    said = done.stdout + done.stderr
    assert done.stdout.startswith("{"), said
    return done.returncode, {row["check"]: row for row in json.loads(done.stdout)["checks"]}, said


def results(rows: dict[str, dict[str, Any]]) -> dict[str, Code]:
    return {name: Code(row["result"]) for name, row in rows.items()}


def test_a_cloud_that_is_served_passes_with_the_advice_that_it_needs(shared: Cloud) -> None:
    status, rows, said = check(shared)

    assert status == WARNINGS, said
    # the cloud has no keys, and its nova.conf sets [scheduler] workers
    assert {name for name, result in results(rows).items() if result is not Code.SUCCESS} == {
        "Senders of messages", "Options without effect",
    }  # fmt: skip
    assert "[scheduler] workers" in rows["Options without effect"]["details"]
    assert rows["Releases of the peers"]["details"].startswith("all schedulers and agents run ")


def test_a_cloud_of_nova_alone_can_be_checked_before_the_first_start(cloud: Cloud) -> None:
    cloud_state.begin(cloud, scheduler="nova", agents="none")

    status, rows, said = check(cloud)

    assert status == WARNINGS, said
    assert Code.FAILURE not in results(rows).values(), said
    assert "is 10" in rows["Placement's retries after a conflict"]["details"]
