# SPDX-License-Identifier: Apache-2.0
"""Whoever reads what a command prints may have had enough of it: ``| head``, a pager that was left."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable

#: what shells say of a command that a closed pipe has ended
READER_LEFT = 128 + signal.SIGPIPE


def until_reader_leaves(command: Callable[[], int]) -> int:
    """Run a command to its exit code; quietly ended, with ``READER_LEFT``, once nobody reads its output.

    Any other broken pipe is an error as before.
    """
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()  # here, and not while the interpreter ends, where nobody can catch it
    except BrokenPipeError:
        if not _reader_left():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still buffered
        return READER_LEFT


def _reader_left() -> bool:
    """Ask by writing: ``poll`` would tell, but eventlet takes it away.  Something is wrong in any case."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except BrokenPipeError:
        return True
    except (io.UnsupportedOperation, ValueError):  # no file
        return False
    return False
