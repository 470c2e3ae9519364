# SPDX-License-Identifier: Apache-2.0
"""Reads for threads that have other work: a database that hangs keeps none of them.

A query to a database that accepts it and does not answer may not return for hours.  It is carried out in a thread of
its own, which goes on when the caller has stopped waiting.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from shared_scheduler.sync.databases import DatabaseError

Found = TypeVar("Found")

#: Time for which a caller waits for an answer.
ANSWERS_WITHIN_S = 3.0
#: Reads of one database that hang; while there are so many, it is not asked again.  A query on another connection may
#: be answered.
HANGING_MAX = 4


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


class BoundedReads:
    """Any thread may use it.  ``within_s``: the time for which a caller waits for an answer."""

    def __init__(self, within_s: float = ANSWERS_WITHIN_S) -> None:
        self._within_s = within_s
        self._lock = threading.Lock()
        self._hanging: Counter[object] = Counter()  # by database

    def read(self, database: object, function: Callable[[], Found]) -> Found:
        """The result of the function, which reads this database: an ``ApiDatabase``, a ``CellDatabase``, which is
        another one when the cell was opened again, or its name.

        :raises DatabaseError: when it raises that, or does not end in time, or too many reads of the database hang
        """
        if self._hanging[database] >= HANGING_MAX:
            raise DatabaseError(f"{database} does not answer")
        future = begin("bounded read", function)
        try:
            return future.result(self._within_s)
        except TimeoutError:
            self._count(database, 1)
            future.add_done_callback(lambda _: self._count(database, -1))
            raise DatabaseError(f"{database} has not answered for {self._within_s:.0f} s") from None

    def _count(self, database: object, more: int) -> None:
        with self._lock:
            self._hanging[database] += more
            if not self._hanging[database]:
                del self._hanging[database]
