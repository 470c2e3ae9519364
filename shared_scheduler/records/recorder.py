# SPDX-License-Identifier: Apache-2.0
"""Writes records to their stores in a separate thread, so that decisions do not wait for a disk or database.

Records wait in a bounded queue.  When a store is slower than the decisions, the newest records are dropped and
counted.  A store that fails is not used for a while.  The records that it misses are counted; the log shows how many at
each failure, and when the store works again.  A record that a store refuses is counted and told as well; the others
of its batch are written.

Between two writes, the thread lets each store do a step of retention (``store.Store.retain``) when one is due.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared_scheduler.records.errors import RecordRefused
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import Record, RecordWriter
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

#: Maximum number of records that wait.
QUEUE_MAX = 1_000
#: Maximum number of records in one write.
BATCH_MAX = 100
#: Records that follow each other faster than this are written together.
GATHER_S = 0.1
#: Time after which a store that failed is used again.
PAUSE_AFTER_FAILURE_S = 30.0
#: Time between two lines about records that are dropped.
DROPPED_EVERY_S = 30.0
#: Time that ``stop`` waits for a store that hangs: once for room in the queue, once for the end of the thread.
STOP_WAIT_S = 5.0
#: Time between two searches for records that are too old or too many.
RETAIN_EVERY_S = 60.0


@dataclass(slots=True)
class _UsedStore:
    """A store, the number of records that it has missed since it failed, until when it is not used, and when its next
    step of retention is due."""

    store: RecordWriter
    missed: int = 0
    paused_until_s: float = float("-inf")
    retain_at_s: float = float("-inf")

    @property
    def name(self) -> str:
        return type(self.store).__name__

    @property
    def next_step_s(self) -> float:
        """When the next step of retention is possible: not before the store is used again."""
        return max(self.retain_at_s, self.paused_until_s)


class Recorder:
    """Queues records; one thread writes them to all stores.  Without stores there is no thread."""

    def __init__(
        self,
        stores: Sequence[RecordWriter],
        counters: Counter[str],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``counters`` gets ``records_dropped`` and, for each store, ``records_lost``."""
        self._stores = [_UsedStore(store) for store in stores]
        self._counters = counters
        self._counting = threading.Lock()
        self._clock = clock
        self._log = RateLimitedLog(LOG, clock, DROPPED_EVERY_S)
        self._pause = pause
        self._queue: queue.Queue[Record | None] = queue.Queue(QUEUE_MAX)
        self._thread: threading.Thread | None = None
        self._wrote_at_s = float("-inf")

    def __bool__(self) -> bool:
        """Whether there is any store."""
        return bool(self._stores)

    def waiting(self) -> int:
        """The number of records that are queued."""
        return self._queue.qsize()

    def start(self) -> None:
        """Start the thread.  Call it after the last fork, which threads do not survive."""
        if self._stores:
            self._thread = threading.Thread(target=self._write_until_stopped, name="records", daemon=True)
            self._thread.start()

    def add(self, record: Record) -> None:
        """Queue one record; drop it if the queue is full.  Never blocks."""
        if not self._stores:
            return
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            with self._counting:  # many threads add
                self._counters["records_dropped"] += 1
                dropped = self._counters["records_dropped"]
            line = "Records arrive faster than they can be written; %d dropped so far"
            self._log.write(logging.WARNING, "dropped", line, dropped)

    def stop(self) -> None:
        """Write the queued records, then close the stores.  Gives up on a store that hangs after ``STOP_WAIT_S``."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=STOP_WAIT_S)
        thread.join(STOP_WAIT_S)
        if thread.is_alive():
            LOG.warning("Records cannot be written in time; about %d are lost", self._queue.qsize())
            return  # the thread still uses the stores
        for used in self._stores:
            try:
                used.store.close()
            except Exception as error:  # on a full disk, closing fails as writing did
                LOG.error("The last records may be lost in %s: %s", used.name, error)

    def keep(self, batch: Sequence[Record]) -> None:
        """Write a batch to each store that is in use.  Called by one thread at a time."""
        for used in self._stores:
            self._keep_in(used, batch)

    def _keep_in(self, used: _UsedStore, batch: Sequence[Record]) -> None:
        if self._clock() < used.paused_until_s:
            self._miss(used, batch)
        else:
            self._write(used, batch)

    def _write_until_stopped(self) -> None:
        ended = False
        while not ended:
            due_s = min(used.next_step_s for used in self._stores) - self._clock()
            batch, ended = self._next_batch(max(due_s, 0.0))
            if batch:
                self.keep(batch)
                self._wrote_at_s = self._clock()
            if not ended:
                self.retain(time.time())

    def retain(self, now_s: float) -> None:
        """Let each store do a step of retention for which one is due.  Called by the thread that writes."""
        for used in self._stores:
            if self._clock() >= used.next_step_s:
                used.retain_at_s = self._clock() + (0.0 if self._retain(used, now_s) else RETAIN_EVERY_S)

    def _retain(self, used: _UsedStore, now_s: float) -> bool:
        try:
            return used.store.retain(now_s)
        except Exception as error:  # the exceptions depend on the database driver
            LOG.error("Old records stay in %s: %s; retrying after %.0f seconds", used.name, error, RETAIN_EVERY_S)
            return False

    def _next_batch(self, wait_s: float) -> tuple[list[Record], bool]:
        """Wait for one record, then take those that are queued.  Returns them, and whether ``stop`` was called."""
        batch: list[Record] = []
        with contextlib.suppress(queue.Empty):
            found = self._queue.get(timeout=wait_s)
            self._gather()
            while found is not None:
                batch.append(found)
                if len(batch) == BATCH_MAX:
                    return batch, False
                found = self._queue.get_nowait()
            return batch, True
        return batch, False

    def _gather(self) -> None:
        """Wait for further records if the last ones were written a moment ago.

        A write costs some twenty calls of the operating system, however many records it has."""
        left_s = self._wrote_at_s + GATHER_S - self._clock()
        if left_s > 0 and self._queue.qsize() < BATCH_MAX:
            self._pause(min(left_s, GATHER_S))

    def _write(self, used: _UsedStore, batch: Sequence[Record]) -> None:
        try:
            used.store.write(batch)
        except RecordRefused as error:
            self._write_apart(used, batch, error)
            return
        except Exception as error:  # the exceptions depend on the database driver
            self._miss(used, batch)
            used.paused_until_s = self._clock() + PAUSE_AFTER_FAILURE_S
            LOG.error(
                "Records cannot be written to %s: %s; %d lost so far, retrying after %.0f seconds",
                used.name, error, used.missed, PAUSE_AFTER_FAILURE_S,
            )  # fmt: skip
            return
        if used.missed:
            LOG.warning("Records are written to %s again; %d were lost", used.name, used.missed)
            used.missed = 0

    def _write_apart(self, used: _UsedStore, batch: Sequence[Record], error: RecordRefused) -> None:
        """Write each record of a refused batch alone."""
        if len(batch) > 1:
            for record in batch:
                self._keep_in(used, [record])
            return
        [record] = batch
        self._counters["records_lost"] += 1
        name = printable(str(record.get("request_id") or record.get("kind")))
        LOG.error("%s refuses the record of %s, which is lost: %s", used.name, name, error)

    def _miss(self, used: _UsedStore, batch: Sequence[Record]) -> None:
        used.missed += len(batch)
        self._counters["records_lost"] += len(batch)
