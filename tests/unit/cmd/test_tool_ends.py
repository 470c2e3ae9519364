# SPDX-License-Identifier: Apache-2.0
"""SIGTERM ends a tool as Control-C does: it first ends the processes that it has started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cmd.waiting import WAIT_S, eventually

TOOLS = Path(__file__).resolve().parents[3] / "tools"
#: stands for a tool that has a cloud up
LONG_WORK = """
import time
from pathlib import Path

def main():
    try:
        Path("cloud").touch()
        time.sleep(600)
    finally:
        Path("cloud").unlink()
"""
START = "import sys; sys.path.insert(0, sys.argv[1]); from entry import run; sys.exit(run('long_work'))"


@pytest.fixture
def venvs() -> Path:
    """Where the Python that runs this test is, as ``tools/install`` lays it out."""
    return Path(sys.prefix).parent


def test_started_processes_are_ended(tmp_path: Path, venvs: Path) -> None:
    (tmp_path / "long_work.py").write_text(LONG_WORK)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "SHARED_SCHEDULER_VENVS": str(venvs)}
    tool = subprocess.Popen([sys.executable, "-c", START, str(TOOLS)], cwd=tmp_path, env=environment)
    try:
        eventually((tmp_path / "cloud").exists)

        tool.send_signal(signal.SIGTERM)

        assert tool.wait(WAIT_S) == 128 + signal.SIGTERM
        assert not (tmp_path / "cloud").exists()
    finally:
        tool.kill()
        tool.wait()


@pytest.mark.parametrize("tool", ["draw", "screenshots"])
def test_a_tool_without_arguments_does_nothing_if_it_gets_one(tool: str, venvs: Path, tmp_path: Path) -> None:
    # given a copy of the tool, so that it finds nothing to write
    here = tmp_path / "tools"
    here.mkdir()
    for name in (tool, "entry.py"):
        shutil.copy(TOOLS / name, here / name)
    environment = os.environ | {"SHARED_SCHEDULER_VENVS": str(venvs)}

    done = subprocess.run([here / tool, "--help"], env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tools/{tool}: takes no arguments\n"
