# SPDX-License-Identifier: Apache-2.0
"""Probes of deployments look for a process by its name, which holds the connections to the message queue.

That is a worker if there are several, and a worker is started by the interpreter.
"""

from __future__ import annotations

import subprocess
import sys

#: the kernel keeps 15 characters; kolla's ``healthcheck_port`` shortens its argument as well
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
