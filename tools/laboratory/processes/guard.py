# SPDX-License-Identifier: Apache-2.0
"""Ends the processes of a table when the process that owns them has ended, for any reason.

A test or a drill stops its services in a `finally`, which does not run after SIGKILL, nor after SIGTERM without a
handler. A guard is a process in its own session: it waits for the end of its owner by a file descriptor of that
process, so that a reused id or a child of the owner cannot be mistaken for it. It runs as
`python -m tools.laboratory.processes.guard`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

from tools.laboratory.processes.table import ProcessTable, clean_environment

ROOT = Path(__file__).resolve().parents[3]
GRACE_S = 5.0
"""The time between TERM and KILL, for processes that are not used again."""


class Guard:
    """Guards the processes of `table` for this process, until `release`. `remove` is deleted after they have ended."""

    def __init__(self, table: ProcessTable, remove: Path | None = None) -> None:
        argv = [sys.executable, "-m", "tools.laboratory.processes.guard",
                str(os.getpid()), str(table.run), table.mark, *([str(remove)] if remove else [])]  # fmt: skip
        self._process = subprocess.Popen(
            argv, env={**clean_environment(), "PYTHONPATH": str(ROOT)}, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        with self._process.stdout as answer:
            answer.readline()  # from here on it has its owner's file descriptor

    def release(self) -> None:
        """The owner has ended the processes itself. Idempotent."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Wait for the end of the owner, then end its processes."""
    owner, run, mark, *remove = sys.argv[1:]
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        ended = select.poll()
        ended.register(os.pidfd_open(int(owner)), select.POLLIN)
        if os.getppid() == int(owner):
            print("guarding", flush=True)
            ended.poll()
    ProcessTable(Path(run), mark).end_all(GRACE_S)
    for directory in remove:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
