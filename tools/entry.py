# SPDX-License-Identifier: Apache-2.0
"""Starts a tool with the Python that tools/install has prepared. A signal, or the end of the reader of its output, ends
it as Control-C does: the processes that it started are stopped."""

import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENVS = Path(os.environ.get("SHARED_SCHEDULER_VENVS", HERE.parent / ".venv"))


def run(module: str, takes_arguments: bool = True) -> int:
    """Call `main` of this module; returns the exit code. Any Python from 3.11 on may call it."""
    if len(sys.argv) > 1 and not takes_arguments:
        print(f"tools/{Path(sys.argv[0]).name}: takes no arguments", file=sys.stderr)
        return 2
    python = VENVS.absolute() / "nova" / "bin" / "python"
    if Path(sys.prefix) != python.parent.parent:
        if not python.exists():
            print(f"tools/{Path(sys.argv[0]).name}: {python} is not there; run tools/install first", file=sys.stderr)
            return 1
        os.execv(python, [str(python), *sys.argv])
    sys.path.insert(0, str(HERE.parent))
    from shared_scheduler.daemon.endings import ended_by_signals, until_reader_leaves

    with ended_by_signals():
        return until_reader_leaves(importlib.import_module(module).main)
