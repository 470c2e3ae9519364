# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-manage``, forked from a process that has imported Nova: a command then costs no import of its own.

An import takes three CPU seconds, and the tests of a cloud compare its sources some sixty times. Each command still has
its own process, arguments and configuration; the program itself is run by ``cloud_state.manage``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
COMMAND_MAX_S = 300
"""A command that takes longer is ended, and fails."""


@cache
def _server(python: Path) -> subprocess.Popen[str]:
    """The process that forks; it ends with this one, whose end closes its input."""
    command = [str(python), "-m", "tests.support.forked_commands"]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``shared-scheduler-manage`` with these arguments, in an environment that contains Nova."""
    server = _server(python)
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(arguments) + "\n")
    server.stdin.flush()
    return subprocess.CompletedProcess(arguments, **json.loads(server.stdout.readline()))


def _become(arguments: list[str], out: IO[str], err: IO[str]) -> None:
    """In the forked child: redirect the output, and run the command."""
    from shared_scheduler.cmd import manage

    code = 1
    try:
        signal.alarm(COMMAND_MAX_S)
        for number, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), number)
        code = manage.main(arguments)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    """Fork a command for each line of arguments; answer with a line of its exit code and output."""
    from shared_scheduler.novalib import threading_backend

    threading_backend.choose_threads()
    import pymysql  # noqa: F401
    from nova import objects
    from sqlalchemy.orm import configure_mappers

    from shared_scheduler.nova import source_readers  # noqa: F401

    objects.register_all()
    configure_mappers()
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if child == 0:
                _become(json.loads(line), out, err)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            print(json.dumps({"returncode": code, "stdout": out.read(), "stderr": err.read()}), flush=True)


if __name__ == "__main__":
    _serve()
