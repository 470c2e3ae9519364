# SPDX-License-Identifier: Apache-2.0
"""The lowest nova-compute version of all cells, without a query for each cell and request.

Nova's ``owner_nova_filter`` demands the trait OWNER_NOVA only once every compute is new enough to
report it.  A positive answer is cached for some seconds.  A negative answer, or one without all cells, is
not cached.  An older compute that registers in between is not selected for these seconds at most, which is
harmless.

A cell that hangs delays the answer by minutes.  Requests that come meanwhile use the last answer if that was positive,
for the same reason; otherwise all of them wait for the same answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

from nova import context as nova_context
from nova import exception
from nova.objects import service

LOG = logging.getLogger(__name__)

#: How long a positive answer is cached.
YES_KEPT_S = 10.0
#: How long requests wait for a new answer if the last one was positive.
LATE_S = 5.0


@dataclass(frozen=True, slots=True)
class _Question:
    asked_at_s: float
    answer: futures.Future[int] = field(default_factory=futures.Future)


class MinimumComputeVersion:
    """Whether every nova-compute has at least a given version."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known = 0
        self._until_s = float("-inf")
        self._question: _Question | None = None

    def reached(self, version: int) -> bool:
        """Whether all have ``version``.  Runs one query for each cell if the cached answer is too old or too low."""
        was_reached = self._known >= version
        if was_reached and self._clock() < self._until_s:
            return True
        asked = self._ask()
        left_s = max(0.0, asked.asked_at_s + LATE_S - self._clock()) if was_reached else None
        try:
            return asked.answer.result(left_s) >= version
        except futures.TimeoutError:
            return True

    def forget(self) -> None:
        """Ask again, because cells may have changed."""
        with self._lock:
            self._until_s, self._question = float("-inf"), None

    def _ask(self) -> _Question:
        """The question under way, which begins now if there is none."""
        with self._lock:
            if self._question is None:
                question = _Question(self._clock())
                thread = threading.Thread(target=self._answer, args=(question,), name="compute-versions", daemon=True)
                thread.start()
                self._question = question  # only now, because there may be no thread free
            return self._question

    def _answer(self, question: _Question) -> None:
        try:
            found, kept_s = _of_all_cells()
        except Exception as error:
            self._end(question)
            question.answer.set_exception(error)
        else:
            self._end(question, found, kept_s)
            question.answer.set_result(found)

    def _end(self, question: _Question, found: int | None = None, kept_s: float = 0.0) -> None:
        with self._lock:
            if self._question is not question:
                return  # cells have changed since
            self._question = None
            if found is not None:
                self._known, self._until_s = found, question.asked_at_s + kept_s


def _of_all_cells() -> tuple[int, float]:
    """The lowest version, and how long it is cached."""
    context = nova_context.get_admin_context()
    try:
        return int(_minimum(context, require_all=True)), YES_KEPT_S
    except exception.CellTimeout:
        LOG.warning("A cell did not report its compute versions; using those of the other cells once")
        return int(_minimum(context, require_all=False)), 0.0


def _minimum(context: Any, require_all: bool) -> Any:
    return service.get_minimum_version_all_cells(context, ["nova-compute"], require_all=require_all)
