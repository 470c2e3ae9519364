# SPDX-License-Identifier: Apache-2.0
"""Probes of deployments look for the process that is connected to the message queue: by the name of the process, or, as
those of kolla and openstack-helm do now, by its command line.

That process is a worker if there are several, and a worker is started by the interpreter.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shared_scheduler.nova import process

#: the kernel keeps 15 characters
NAME = "shared-schedule"

STARTED_AS_A_WORKER_IS = """
import sys
from shared_scheduler.cmd.scheduler import main
sys.argv = ["shared-scheduler", "--version"]
main()
print(open("/proc/self/comm").read())
"""


def test_a_worker_has_the_name_of_the_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", STARTED_AS_A_WORKER_IS], check=True, capture_output=True, text=True
    ).stdout

    assert shown.split()[-1] == NAME


def test_a_worker_has_the_command_line_of_the_command(tmp_path: Path) -> None:
    # given the script that pip installs
    script = tmp_path / "bin" / "shared-scheduler"
    script.parent.mkdir()
    script.write_text("import sys; print(sys.argv)")

    # when its workers are started as it was
    command = process.worker_command([str(script), "--config-file", "/etc/nova/nova.conf"])

    # then they run the same script with the same arguments
    assert command[1:] == [str(script), "--config-file", "/etc/nova/nova.conf"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown == f"{[str(script), '--config-file', '/etc/nova/nova.conf']}\n"


def test_a_worker_of_a_module_runs_the_module() -> None:
    """As under a debugger, or ``python -m``: the file is none that can be run by itself."""
    for started_as in ("/usr/lib/python3/dist-packages/shared_scheduler/cmd/scheduler.py", "shared-scheduler"):
        command = process.worker_command([started_as, "--config-file", "/etc/nova/nova.conf"])

        assert command == [
            sys.executable, "-m", "shared_scheduler.cmd.scheduler", "--config-file", "/etc/nova/nova.conf"
        ]  # fmt: skip
