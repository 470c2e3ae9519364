# SPDX-License-Identifier: Apache-2.0
"""A real agent process of one release and the channel of a scheduler of another, both ways, on a real RabbitMQ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from tests.unit.compute_agent.fake_placement import FakePlacement, served
from tests.unit.compute_agent.node_facts import HOST, NODE
from tests.unit.compute_agent.test_process import SLOW, Process
from tools.laboratory import ROOT
from tools.laboratory.cloud.rabbitmq import PrivateRabbit

#: the release before this one, until there is a tag: without keys per host, ends of builds, and modes
WITHOUT_TAG = "7736e85"
PROGRAMS = ROOT / "tests" / "longer" / "releases"
WAIT_S = 240.0


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def revision_before() -> str:
    """The newest tag before this commit."""
    tags = git("tag", "--merged", "HEAD~1", "--sort=-creatordate").decode().split()
    return tags[0] if tags else WITHOUT_TAG


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the release before."""
    tree = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=BytesIO(git("archive", revision_before()))) as archive:
        archive.extractall(tree, filter="data")
    return tree


@pytest.fixture(scope="module")
def rabbit() -> Iterator[PrivateRabbit]:
    with PrivateRabbit() as broker:
        yield broker


@pytest.mark.parametrize(
    ("old_agent", "old_scheduler"), [(True, False), (False, True), (False, False)], ids=["agent", "scheduler", "none"]
)
def test_an_agent_and_a_scheduler_of_adjacent_releases_work_together(
    old_agent: bool, old_scheduler: bool, earlier: Path, rabbit: PrivateRabbit, tmp_path: Path
) -> None:
    # given an agent with four processors; one of both is of the release before
    of_agent, of_scheduler = earlier if old_agent else ROOT, earlier if old_scheduler else ROOT
    (tmp_path / "compute-agent").mkdir(mode=0o700)
    tap = subprocess.Popen(
        [sys.executable, PROGRAMS / "tap.py", tmp_path / "compute-agent" / "tap.sock", HOST, NODE], env=env(of_agent)
    )
    with served(FakePlacement(vcpus=4)) as url:
        agent = Process(tmp_path, url, rabbit.url)
        agent.configure(**SLOW)
        agent.start(env(of_agent))
        try:
            # when a scheduler claims five times, releases one, and asks for the whole state
            done = subprocess.run(
                [sys.executable, PROGRAMS / "scheduler.py", rabbit.url, HOST, NODE], env=env(of_scheduler),
                capture_output=True, text=True, timeout=WAIT_S, check=False,
            )  # fmt: skip
        finally:
            agent.close()
            tap.kill()
            tap.wait()

    # then four were accepted, the fifth was refused with its reason, and the first has ended
    assert done.returncode == 0, done.stderr + agent.logged()
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["accepted"] == [True] * 4 + [False]
    assert told["refused_by"] == "no_capacity"
    assert told["pending"] == ["c1", "c2", "c3"]
    rejected = {name: count for name, count in told["counters"].items() if "reject" in name or "malformed" in name}
    assert not any(rejected.values()), told["counters"]
    assert [line for line in agent.logged().splitlines() if " ERROR " in line] == []


def env(tree: Path) -> dict[str, str]:
    """The code of this tree comes first."""
    return {**os.environ, "PYTHONPATH": str(tree)}
