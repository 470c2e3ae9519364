# SPDX-License-Identifier: Apache-2.0
"""Every program names a configuration file that it cannot use in one line, with the exit code that its page gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: program with its arguments -> the exit code of a configuration that cannot be used
PROGRAMS = {
    "shared_scheduler.cmd.scheduler": os.EX_CONFIG,
    "shared_scheduler.cmd.stock": os.EX_CONFIG,
    "shared_scheduler.cmd.upgrade upgrade check": 255,
    "shared_scheduler.cmd.manage status": 2,
    "shared_scheduler.cmd.manage why req-7": 2,
    "shared_scheduler.cmd.manage compare": 2,
    "compute_agent.cmd.agent": os.EX_CONFIG,
    "compute_agent.cmd.status": 2,
}


def refused(program: str, conf: Path) -> str:
    """The one line of a program that cannot use its configuration."""
    module, *words = program.split()
    named = ["--config-file", str(conf)]
    command = [sys.executable, "-m", module, *(words + named if module.endswith("manage") else named + words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert (done.returncode, done.stdout) == (PROGRAMS[program], "")
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_comment_in_latin_1_is_refused_with_the_name_of_the_file(program: str, tmp_path: Path) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_bytes("[DEFAULT]\n# Schlüssel\n".encode("latin-1"))

    assert f"{conf}: 'utf-8' codec" in refused(program, conf)


@pytest.mark.parametrize("program", ["shared_scheduler.cmd.scheduler", "compute_agent.cmd.status"])
def test_a_directory_is_refused(program: str, tmp_path: Path) -> None:
    assert f"{tmp_path}: Is a directory" in refused(program, tmp_path)


@pytest.mark.parametrize("program", ["shared_scheduler.cmd.stock", "shared_scheduler.cmd.manage why req-7"])
def test_wrong_syntax_is_not_told_as_an_error_of_one_option(program: str, tmp_path: Path) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text("[DEFAULT\n")

    line = refused(program, conf)

    assert f"Failed to parse {conf}: at {conf}:1" in line and "records_file" not in line
