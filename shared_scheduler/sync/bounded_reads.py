# SPDX-License-Identifier: Apache-2.0
"""Reads for threads that have other work: a database that hangs keeps none of them.

A query to a database that accepts it and does not answer may not return for hours.  It is carried out in a thread of
its own, which goes on when the caller has stopped waiting.

A query on another connection may be answered meanwhile, for example by another machine that has its address now.
Therefore a database of which as many reads hang as may is asked again after a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shared_scheduler.sync.databases import DatabaseError

Found = TypeVar("Found")

#: Time for which a caller waits for an answer.
ANSWERS_WITHIN_S = 3.0
#: Reads of one database that hang; while there are so many, it is not asked again, ...
HANGING_MAX = 4
#: ... until the last one has hung for so long: then none of them counts any more.  The time doubles with each attempt,
#: because each leaves threads that hang, until all that hung have ended.
AGAIN_AFTER_S, AGAIN_MOST_S = 60.0, 1920.0


def begin(name: str, function: Callable[..., Found], *arguments: Any) -> Future[Found]:
    """Start the function in a thread, which no exit waits for; its queries are added to the cost of this read."""
    future: Future[Found] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # the waiting thread raises it
            future.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return future


@dataclass(slots=True)
class _Hanging:
    """The reads of one database that hang; ``counted``: those since it was asked again, the last one at ``last_s``."""

    every: set[Future[Any]] = field(default_factory=set)
    counted: set[Future[Any]] = field(default_factory=set)
    last_s: float = 0.0
    again_after_s: float = AGAIN_AFTER_S

    def add(self, read: Future[Any], now_s: float) -> None:
        self.every.add(read)
        self.counted.add(read)
        self.last_s = now_s

    def refuses(self, now_s: float) -> bool:
        if len(self.counted) < HANGING_MAX:
            return False
        if now_s - self.last_s < self.again_after_s:
            return True
        self.counted.clear()
        self.again_after_s = min(2 * self.again_after_s, AGAIN_MOST_S)
        return False


class BoundedReads:
    """Any thread may use it.  ``within_s``: the time for which a caller waits for an answer."""

    def __init__(self, within_s: float = ANSWERS_WITHIN_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_s = within_s
        self._clock = clock
        self._lock = threading.Lock()
        self._hanging: dict[object, _Hanging] = {}  # by database

    def read(self, database: object, function: Callable[[], Found], within_s: float | None = None) -> Found:
        """The result of the function, which reads this database: an ``ApiDatabase``, a ``CellDatabase``, which is
        another one when the cell was opened again, or its name.  ``within_s``: a shorter time than the usual one.

        :raises DatabaseError: when it raises that, or does not end in time, or too many reads of the database hang
        """
        with self._lock:
            if database in self._hanging and self._hanging[database].refuses(self._clock()):
                raise DatabaseError(f"{database} does not answer")
        future = begin("bounded read", function)
        waits_s = self._within_s if within_s is None else min(within_s, self._within_s)
        try:
            return future.result(waits_s)
        except TimeoutError:
            with self._lock:
                self._hanging.setdefault(database, _Hanging()).add(future, self._clock())
            future.add_done_callback(lambda _: self._ended(database, future))
            raise DatabaseError(f"{database} has not answered for {waits_s:.0f} s") from None

    def _ended(self, database: object, read: Future[Any]) -> None:
        with self._lock:
            hanging = self._hanging[database]
            hanging.every.discard(read)
            hanging.counted.discard(read)
            if not hanging.every:
                del self._hanging[database]
