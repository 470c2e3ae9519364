# SPDX-License-Identifier: Apache-2.0
"""How a command ends before its time: by a signal, or by what nobody foresaw."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: exit code after a mistake of ours: 1 says that something was found, which it was not
UNFORESEEN = 2
#: exit code after Ctrl-C, as shells have it: 128 and the number of the signal
INTERRUPTED = 128 + signal.SIGINT
#: what ends a command beside Ctrl-C: a time limit or a service manager, and a terminal that has gone
ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let ``ENDING`` raise ``SystemExit``, once: a command puts away what it holds, as after Ctrl-C.

    What is ignored stays so (``nohup``).
    """
    heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _end) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    for one in ENDING:  # a time limit tells the whole process group too; what is put away is not disturbed
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)
