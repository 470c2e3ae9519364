# SPDX-License-Identifier: Apache-2.0
"""Tells systemd when the process is ready, reloads or stops, and that it is alive (sd_notify(3)).

Each message is one datagram to the socket that ``NOTIFY_SOCKET`` names.  Without systemd nothing is sent.  The
libraries for it need a compiler on each host, or are not maintained, for these few lines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"
#: pings within the time after which systemd restarts the process
PINGS = 3


def reloading() -> str:
    """The message at the begin of a reload; READY follows at its end."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def notify(message: str) -> None:
    """Send a message.  An error is only logged, because the process works without systemd."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(message.encode(), address)
    except OSError as error:
        LOG.warning("systemd is not told %s: %s", message.partition("\n")[0], error)


def watchdog_s() -> float | None:
    """The time after which systemd restarts a process that does not ping (``WatchdogSec``); None: never."""
    with contextlib.suppress(ValueError):
        found = int(os.environ.get("WATCHDOG_USEC", ""))
        return found / 1e6 if found > 0 else None
    return None


class Watchdog:
    """Pings while ``alive`` returns.  If it hangs or raises, no ping is sent, and systemd restarts the process."""

    def __init__(self, alive: Callable[[], object]) -> None:
        self._alive = alive
        self._stopped = threading.Event()

    def start(self) -> None:
        """Ping from a thread, if systemd wants pings."""
        timeout_s = watchdog_s()
        if timeout_s is not None:
            pings = threading.Thread(target=self._run, args=(timeout_s / PINGS,), name="watchdog", daemon=True)
            pings.start()

    def stop(self) -> None:
        """End the pings.  Idempotent."""
        self._stopped.set()

    def _run(self, pause_s: float) -> None:
        while not self._stopped.is_set():
            try:
                self._alive()
            except Exception:
                LOG.exception("The process does not handle events; systemd is not told that it is alive")
            else:
                notify(ALIVE)
            self._stopped.wait(pause_s)
