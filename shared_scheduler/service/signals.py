# SPDX-License-Identifier: Apache-2.0
"""Signals as a queue that one thread reads, with native threads and under eventlet.

Python writes the number of each signal to a socket (``signal.set_wakeup_fd``); the main thread blocks in ``recv`` on
the other end.  Under eventlet that socket is green, so the hub continues to run.  No other code runs inside a signal
handler.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable
from types import FrameType

#: The maximum number of unread signals; further ones would only repeat them.
QUEUE_LIMIT = 64


class Interrupted(BaseException):
    """Raised in the main thread by a signal while ``SignalQueue.interrupting`` is set."""


class SignalQueue:
    """Install it for some signals, then call ``wait``.  Use it in the main thread only.

    While ``interrupting`` is not empty, the first signal that it contains also raises ``Interrupted``: a long start can
    be interrupted, and no signal before ``wait`` is lost.  Later signals wait in the queue, so the interrupted thread
    can clean up.
    """

    def __init__(self, signals: Iterable[int], interrupting: Iterable[int] = ()) -> None:
        self.interrupting = frozenset(int(number) for number in interrupting)
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        self._wanted = frozenset(int(number) for number in signals)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._arrived) for number in self._wanted}

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        """Python writes the number only for signals with a Python handler; the queue does the rest."""
        if number in self.interrupting:
            self.interrupting = frozenset()
            raise Interrupted

    def wait(self, timeout_s: float | None = None) -> list[int]:
        """The signals that have arrived, in order; empty when ``timeout_s`` has passed without one."""
        self._read.settimeout(timeout_s)
        try:
            return [number for number in self._read.recv(QUEUE_LIMIT) if number in self._wanted]
        except TimeoutError:
            return []

    def close(self) -> None:
        """Restore the previous signal handlers."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._read.close()
        self._write.close()
