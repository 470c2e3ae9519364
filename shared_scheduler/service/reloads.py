# SPDX-License-Identifier: Apache-2.0
"""Reloads in a thread, because a database that hangs must not keep the process from handling a signal to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from shared_scheduler.daemon.service_manager import READY, notify, reloading

LOG = logging.getLogger(__name__)

#: How long a stop waits for a reload under way: usually it takes less, and then nothing changes beside the stop.
STOP_WAIT_S = 1.0


class Reloads:
    """Runs one reload after the other.  Those that are requested during another one are done by one after it."""

    def __init__(self, reload: Callable[[], None]) -> None:
        self._reload = reload
        self._lock = threading.Lock()
        self._wanted = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    def request(self) -> None:
        """Reload, or reload again; returns at once."""
        with self._lock:
            self._wanted = True
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="reload", daemon=True)
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        """Begin no further reload, and wait for the one under way for a short time."""
        with self._lock:
            self._wanted, self._stopped = False, True
            thread = self._thread
        if thread is not None:
            thread.join(STOP_WAIT_S)

    def _work(self) -> None:
        while self._take():
            self._tell(reloading())
            try:
                self._reload()
            except Exception:
                LOG.exception("Reload failed; the service goes on, with part of its previous configuration")
            self._tell(READY)

    def _take(self) -> bool:
        with self._lock:
            wanted, self._wanted = self._wanted, False
            if not wanted:
                self._thread = None
            return wanted

    def _tell(self, message: str) -> None:
        if not self._stopped:
            notify(message)
