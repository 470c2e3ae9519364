# SPDX-License-Identifier: Apache-2.0
"""How a command ends by a signal, by an unexpected error, or when the reader of its output leaves (``| head``)."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: exit code after an unexpected error; 1 is taken, because it means that the command found a problem
UNFORESEEN = 2
#: exit code after Control-C, by the convention of shells: 128 plus the number of the signal
INTERRUPTED = 128 + signal.SIGINT
#: signals that end a command besides SIGINT: from a time limit or service manager, and from a closed terminal
ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise ``SystemExit`` on the first signal of ``ENDING``, so that a command cleans up as after Control-C.

    Signals that are ignored stay ignored (``nohup``).
    """
    handled = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _end) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    for one in ENDING:  # ``timeout`` signals the process group as well; a second signal must not interrupt the clean-up
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)


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


def exit_code_of(command: Callable[[], int], called: str, unforeseen: int = UNFORESEEN) -> int:
    """Run a command.  Returns its exit code, ``unforeseen`` after an unexpected error, or 128 plus the number of the
    signal that ended it.  ``called`` begins the line about an unexpected error."""
    try:
        with ended_by_signals():
            return until_reader_leaves(command)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        print(f"{called}: unexpected {type(error).__name__}: {error}", file=sys.stderr)
        return unforeseen


def _reader_left() -> bool:
    """Test by a write, because eventlet removes ``select.poll``.  One more newline does no harm after an error."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except BrokenPipeError:
        return True
    except (io.UnsupportedOperation, ValueError):  # standard output is not a file
        return False
    return False
