# SPDX-License-Identifier: Apache-2.0
"""The command that is printed to run a world again, in a form that can be copied and run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from shared_scheduler.sim.replay import PROGRAM

#: file to which this command writes its trace
TRACE_FILE = "trace.txt"


def with_trace(command: str) -> str:
    """The same command with a trace, and with the path of the program if its name is not on the PATH."""
    return f"{program()}{command.removeprefix(PROGRAM)} --trace {TRACE_FILE}"


def program() -> str:
    """The name of the program if it is on the PATH, otherwise its path."""
    called = Path(sys.argv[0])
    if called.name != PROGRAM or shutil.which(PROGRAM):
        return PROGRAM
    near = os.path.relpath(called)
    return shlex.quote(str(called) if near.startswith(os.pardir) else near)
