# SPDX-License-Identifier: Apache-2.0
"""``| head``: whoever reads a command's output may leave before its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from compute_agent.service.agent import AgentFacts
from shared_scheduler.daemon.admin import AdminServer
from shared_scheduler.daemon.endings import READER_LEFT, until_reader_leaves

ROOT = Path(__file__).resolve().parents[3]
MANAGE = [sys.executable, "-m", "shared_scheduler.cmd.manage"]
WORLD = ["--nodes", "2", "--schedulers", "1", "--duration", "1", "--seed", "1"]
TOOLS = ("benchmark", "benchmark-decision", "chaos", "cloud", "rounds")


#: argparse hears of a reader who has left only where nothing is buffered, and keeps that for itself
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def with_nobody_reading(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        return subprocess.run(
            command, cwd=ROOT, env=BUFFERED, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=1500, check=False
        )
    finally:
        os.close(writes)


@pytest.mark.parametrize("arguments", [
    [], ["--help"], ["status", "--help"], ["simulate", *WORLD], ["simulate", *WORLD, "--format", "json"],
    ["demo", *WORLD],
], ids=" ".join)  # fmt: skip
def test_a_command_ends_without_an_error_when_its_reader_has_left(arguments: list[str]) -> None:
    done = with_nobody_reading([*MANAGE, *arguments])
    assert (done.returncode, done.stderr) == (READER_LEFT, "")


def test_the_checks_before_an_upgrade_end_without_an_error_when_their_reader_has_left(tmp_path: Path) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text("[DEFAULT]\n")
    checks = [sys.executable, "-m", "shared_scheduler.cmd.upgrade", "--config-file", str(conf), "upgrade", "check"]

    done = with_nobody_reading(checks)

    assert (done.returncode, "BrokenPipeError" in done.stderr) == (READER_LEFT, False)


def test_the_status_of_an_agent_ends_without_an_error_when_its_reader_has_left(tmp_path: Path) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text(f"[DEFAULT]\ntransport_url = rabbit://nova:nova@127.0.0.1:9/\nstate_path = {tmp_path}\n")
    facts = asdict(AgentFacts(7, True, True, 0, {}, {}, {})) | {"host": "c1", "release": "1.0", "problems": []}
    server = AdminServer(tmp_path / "compute-agent" / "status.sock", {"status": lambda _: facts})
    server.start()
    try:
        done = with_nobody_reading([sys.executable, "-m", "compute_agent.cmd.status", "--config-file", str(conf)])
    finally:
        server.stop()

    assert (done.returncode, done.stderr) == (READER_LEFT, "")


@pytest.mark.parametrize("command", [["fire", "--list"], *([tool, "--help"] for tool in TOOLS)], ids=" ".join)
def test_a_tool_ends_without_an_error_when_its_reader_has_left(command: list[str]) -> None:
    done = with_nobody_reading([sys.executable, f"tools/{command[0]}", *command[1:]])
    assert done.returncode == READER_LEFT
    assert "BrokenPipeError" not in done.stderr  # imports may warn of other things


def test_another_broken_pipe_is_an_error_as_ever() -> None:
    def speak_with_one_who_is_gone() -> int:
        raise BrokenPipeError("a broker")

    with pytest.raises(BrokenPipeError, match="a broker"):
        until_reader_leaves(speak_with_one_who_is_gone)
