# SPDX-License-Identifier: Apache-2.0
"""A log that cannot be written ends the start of both programs with one line, and the right exit code."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared_scheduler.daemon.log_setup import LogError, LogUnavailableError, explained

PROGRAMS = ["shared_scheduler.cmd.scheduler", "compute_agent.cmd.agent"]
WRONG = {
    "no directory": "log_dir = {place}/missing",
    "a directory": "log_file = {place}",
    "no configuration": "log_config_append = {place}/missing.conf",
    "no such facility": "use_syslog = true\nsyslog_log_facility = NOPE",
    "no such level": "default_log_levels = nova",
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("option", WRONG.values(), ids=WRONG)
def test_a_wrong_option_of_the_log_is_told_in_one_line(program: str, option: str, tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    lines = ["[DEFAULT]", "transport_url = rabbit://nova@192.0.2.7/", option.format(place=tmp_path)]
    lines += ["[compute_agent]", f"state_path = {tmp_path}/agent"]
    file.write_text("\n".join(lines))

    done = subprocess.run(
        [sys.executable, "-m", program, "--config-file", str(file)], capture_output=True, text=True, timeout=1500
    )

    assert done.returncode == os.EX_CONFIG, done.stderr
    assert len((done.stdout + done.stderr).splitlines()) == 1, done.stdout + done.stderr
    assert option.partition(" = ")[0] in done.stderr or "log" in done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_is_full_lets_systemd_start_the_program_again(number: int) -> None:
    with pytest.raises(LogUnavailableError), explained():
        raise OSError(number, os.strerror(number), "/var/log/nova/nova-scheduler.log")


def test_permissions_do_not() -> None:
    with pytest.raises(LogError, match="/var/log/nova") as found, explained():
        raise PermissionError(errno.EACCES, "Permission denied", "/var/log/nova/nova-scheduler.log")
    assert not isinstance(found.value, LogUnavailableError)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG])
def test_a_place_where_no_file_can_be_does_not(number: int) -> None:
    # as with ProtectSystem of a unit whose ReadWritePaths lack the directory
    with pytest.raises(LogError) as found, explained():
        raise OSError(number, os.strerror(number), "/var/log/nova/nova-scheduler.log")
    assert not isinstance(found.value, LogUnavailableError)
