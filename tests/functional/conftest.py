# SPDX-License-Identifier: Apache-2.0
"""One real cloud for the whole session.

It is in a temporary directory, which is removed at the end of the session. ``SHARED_SCHEDULER_CLOUD=DIR`` uses (and
keeps) another directory instead; ``SHARED_SCHEDULER_CLOUD_KEEP=1`` leaves the cloud running at the end, so that the
next run with the same directory begins at once. The very first run also migrates databases.

A session begins with a cloud without schedulers and computes: every test module requests what it needs with
``cloud.up(...)``. Before each module the cloud is complete and empty again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.rabbitmq import PrivateRabbit
from tools.laboratory.errors import LabError
from tools.laboratory.processes.guard import Guard

TAIL_LINES = 6
TAIL_WIDTH = 200
TAIL_KINDS = ("scheduler-shared", "scheduler-nova", "agent", "compute", "conductor")
STARTED_AT: pytest.StashKey[dict[str, int]] = pytest.StashKey()


@pytest.fixture(scope="session")
def running_cloud() -> Iterator[Cloud]:
    """The cloud itself; tests take `cloud`."""
    chosen = os.environ.get("SHARED_SCHEDULER_CLOUD")
    keep = bool(os.environ.get("SHARED_SCHEDULER_CLOUD_KEEP"))
    data = Path(chosen) if chosen else Path(tempfile.mkdtemp(prefix="cloud-"))
    cloud = Cloud(data, say=lambda line: print(f"cloud: {line}"))
    at_first = {} if cloud.layout.exists() else {"computes": 0}
    cloud.layout.prepare()
    guard = None if keep else Guard(cloud.processes, None if chosen else data)
    try:
        cloud.up(schedulers=0, agents="none", nova_options=cloud_state.PATIENT, **at_first)
        yield cloud
    finally:
        if keep:
            print(f"the cloud stays: SHARED_SCHEDULER_CLOUD={data}, tools/lab cloud status --data {data}")
        else:
            cloud.down()
            if guard is not None:
                guard.release()
            if not chosen:
                shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="module")
def cloud(running_cloud: Cloud) -> Cloud:
    """The cloud with all services of the previous module running, and without servers."""
    running_cloud.reset()
    return running_cloud


@pytest.fixture(scope="session")
def shared_rabbit() -> Iterator[PrivateRabbit]:
    """A broker for all tests that neither stop it nor close what is not theirs."""
    with PrivateRabbit() as broker:
        yield broker


@pytest.fixture(autouse=True)
def remember_logs(request: pytest.FixtureRequest) -> None:
    """Record where each log ends now, so that a failure shows only later lines."""
    if "cloud" in request.fixturenames:
        running: Cloud = request.getfixturevalue("cloud")
        request.node.stash[STARTED_AT] = {name: running.log_size(name) for name in running.names()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Under a failed test: the end of each log."""
    report: pytest.TestReport = yield  # type: ignore[assignment, misc]
    running = getattr(item, "funcargs", {}).get("cloud")
    if report.failed and isinstance(running, Cloud):
        report.sections.append(("cloud", _tails(running, item.stash.get(STARTED_AT, {}))))
    return report  # type: ignore[return-value]


def _tails(running: Cloud, offsets: dict[str, int]) -> str:
    try:
        names = running.names(*TAIL_KINDS)
    except LabError as error:
        return str(error)
    parts = []
    for name in names:
        lines = running.logs(name, offsets.get(name, 0)).splitlines()[-TAIL_LINES:]
        state = "up" if running.alive(name) else "DOWN"
        parts.append(f"== {name} ({state}), {running.log_path(name)}")
        parts += [line[:TAIL_WIDTH] for line in lines]
    return "\n".join(parts)
