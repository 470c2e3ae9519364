# SPDX-License-Identifier: Apache-2.0
"""A process that has imported what all tests need besides the product, and runs each command in a copy of itself.

Starting an interpreter, pytest and its plug-ins takes seconds, more than most of the tests that notice a mistake.  This
process does it once.  It imports nothing of the product, so each copy imports the modules as they are at that time.

It is started in the copied tree (``python -m tools.laboratory.mutate.prepared``), reads one JSON object in a line,
``{"module": ..., "arguments": [...], "timeout_s": ...}``, and answers with ``{"code": ..., "output": ...}``; the code
is null if the time was over, or the processor time ``CPU_S``.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

#: what most tests import; none of it imports the product
IMPORTED = (
    "cachetools", "hypothesis.stateful", "hypothesis.strategies", "msgpack", "numpy", "oslo_config.cfg", "pytest",
    "yaml",
)  # fmt: skip
#: processor time of one command; a mistake that never rests must not cost more
CPU_S = 200
#: time between two looks whether a command has ended
POLL_S = 0.05


def main() -> int:
    """Serve until the input ends; returns the exit code."""
    _import_everything()
    for line in sys.stdin:
        asked = json.loads(line)
        code, output = run(asked["module"], asked["arguments"], asked["timeout_s"])
        print(json.dumps({"code": code, "output": output}), flush=True)
    return 0


def _import_everything() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    pytest = importlib.import_module("pytest")
    before, output = Path.cwd(), os.dup(sys.stdout.fileno())
    with tempfile.TemporaryDirectory() as empty:  # pytest loads its plug-ins, and no configuration
        os.chdir(empty)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        try:
            pytest.main(["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", empty])
        finally:
            sys.stdout.flush()
            os.dup2(output, sys.stdout.fileno())
            os.chdir(before)


def run(module: str, arguments: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """Run ``python -m module arguments`` in a copy of this process: its exit code (None: its time was over), and what
    it printed."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            _become(module, arguments, output.fileno())
        code = _wait(child, time.monotonic() + timeout_s)
        output.seek(0)
        return code, output.read()


def _become(module: str, arguments: Sequence[str], output: int) -> None:
    """Run the module in this process, which ends with it."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, until_s: float) -> int | None:
    """The exit code; None, and everything that the process started is ended, if it does not end in time."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else None  # a signal has ended it: it has used too much processor time
        if time.monotonic() > until_s:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(POLL_S)


if __name__ == "__main__":
    sys.exit(main())
