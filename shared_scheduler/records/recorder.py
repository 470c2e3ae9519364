# SPDX-License-Identifier: Apache-2.0
"""Carries decision records to where they are kept, beside the decisions: never in their way.

Records wait in a bounded queue; when a sink is slower than the decisions the newest ones are dropped
and counted.  A sink that fails is left alone for a while and said so once.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

LOG = logging.getLogger(__name__)

#: Records that may wait.
QUEUE_MAX = 1_000
#: Records written together.
BATCH_MAX = 100
#: How long a sink that failed is not tried again.
PAUSE_AFTER_FAILURE_S = 30.0
#: How long ``stop`` waits for a sink that hangs: first for room in the queue, then for the end.
STOP_WAIT_S = 5.0

Record = Mapping[str, Any]


class Sink(Protocol):
    """A place for records."""

    def write(self, records: Sequence[Record]) -> None:
        """Keep them; raises when it cannot."""

    def close(self) -> None:
        """No more will come."""


class Recorder:
    """One thread writes to all sinks.  Without sinks it costs nothing."""

    def __init__(
        self, sinks: Sequence[Sink], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sinks = list(sinks)
        self._clock = clock
        self._queue: queue.Queue[Record | None] = queue.Queue(QUEUE_MAX)
        self._paused_until_s: dict[int, float] = {}
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def __bool__(self) -> bool:
        """Whether a record given to ``add`` goes anywhere."""
        return bool(self._sinks)

    def start(self) -> None:
        """Begin to write; after any fork."""
        if self._sinks:
            self._thread = threading.Thread(target=self._work, name="records", daemon=True)
            self._thread.start()

    def add(self, record: Record) -> None:
        """Hand over one record; never blocks."""
        if not self._sinks:
            return
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                LOG.warning("Decision records come faster than they can be kept; dropping some")

    def stop(self) -> None:
        """Write what waits, then close the sinks.  A sink that hangs is left behind after a while."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=STOP_WAIT_S)
        thread.join(STOP_WAIT_S)
        if thread.is_alive():
            LOG.warning("Decision records cannot be kept in time; about %d are lost",
                        self._queue.qsize())
            return  # its sinks are still in use
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:  # a full disk takes the last lines no better than the others
                LOG.error("The last decision records may be lost in %s: %s", type(sink).__name__, error)

    def _work(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._take()
            for number, sink in enumerate(self._sinks):
                if batch and self._clock() >= self._paused_until_s.get(number, float("-inf")):
                    self._write(number, sink, batch)

    def _take(self) -> tuple[list[Record], bool]:
        """Wait for one record, then take what else is there; and whether that was the end."""
        batch: list[Record] = []
        found = self._queue.get()
        while found is not None:
            batch.append(found)
            if len(batch) == BATCH_MAX:
                return batch, False
            try:
                found = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _write(self, number: int, sink: Sink, batch: list[Record]) -> None:
        try:
            sink.write(batch)
        except Exception as error:  # whatever a disk or a database driver raises
            self._paused_until_s[number] = self._clock() + PAUSE_AFTER_FAILURE_S
            LOG.error(
                "Decision records cannot be kept in %s: %s; trying again in %.0f seconds",
                type(sink).__name__, error, PAUSE_AFTER_FAILURE_S,
            )
