# SPDX-License-Identifier: Apache-2.0
"""Ends a command quietly when the reader of its output closes the pipe, for example ``| head`` or a pager."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable

#: exit code of a command that SIGPIPE ends, by the convention of shells
READER_LEFT = 128 + signal.SIGPIPE


def until_reader_leaves(command: Callable[[], int]) -> int:
    """Run a command and return its exit code, or ``READER_LEFT`` if the reader of its output closed the pipe.

    :raises BrokenPipeError: when the broken pipe is another one than standard output
    """
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()  # now, because an error of the flush at interpreter exit cannot be caught
    except BrokenPipeError:
        if not _reader_left():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what is still buffered
        return READER_LEFT


def _reader_left() -> bool:
    """Test by a write, because eventlet removes ``select.poll``.  One more newline does no harm after an error."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except BrokenPipeError:
        return True
    except (io.UnsupportedOperation, ValueError):  # standard output is not a file
        return False
    return False
