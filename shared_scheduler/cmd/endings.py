# SPDX-License-Identifier: Apache-2.0
"""Exit codes of a command that a signal or an unexpected error ends, and the handling of these signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
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
