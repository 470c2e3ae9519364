# SPDX-License-Identifier: Apache-2.0
"""Mode shadow beside the requests: ours decides in threads of its own, and never delays or changes an answer.

A request takes one of ``WAITING_MAX`` places before it is passed on, and gives it back when its comparison is recorded.
Without a place, ours is not asked and the comparison is *dropped*, which is recorded and counted.  The threads of the
requests only put work into a queue, or hand a dropped comparison to the record writer, which does not block; all errors
of ours are caught, counted and logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from shared_scheduler.core.effects import Answer, Fail, FailureCode
from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.decision.request import Request
from shared_scheduler.records.agreement import REFUSAL, REQUEST_FILTER, Agreement, Chosen, ComparedRequest, compare

LOG = logging.getLogger(__name__)

#: Maximum number of requests whose comparison is not recorded yet.
WAITING_MAX = 256
WORKERS = 2
#: the time in which ours has to decide
OURS_MAX_S = 5.0

#: what names a request in its record
Asked = Mapping[str, Any]


class Ours(Protocol):
    """The scheduler that is compared."""

    def preview(self, request: Request, timeout_s: float) -> Answer | Fail:
        """Decide without claiming anything."""

    def why_refused(self, request: Request, node: str) -> str:
        """The reason for which this node is refused now.  ``request``: as it was decided, with what was read for it."""

    def near_tie(self) -> float:
        """Up to this difference of weights any host may be chosen."""

    def keep(self, comparison: ComparedRequest) -> None:
        """Record a comparison; must not block."""


@dataclass(frozen=True, slots=True)
class _Decided:
    outcome: Answer | Fail
    took_ms: float

    @property
    def chosen(self) -> Chosen:
        """The hosts of ours."""
        choices = self.outcome.choices if isinstance(self.outcome, Answer) else ()
        return Chosen(tuple((inner[0].node, inner[0].host) for inner in choices), self.outcome.record.failure,
                      self.took_ms)  # fmt: skip


class Pending:
    """The comparison of one request that was passed on."""

    def __init__(self, asked: Asked, ours: Future[_Decided] | None) -> None:
        self.asked = asked
        self.ours = ours


class Comparisons:
    """``begin`` and ``end`` may be called by any thread; they never raise and never block."""

    def __init__(self, ours: Ours, counters: Counter[str]) -> None:
        """``counters`` gets ``comparisons``, ``comparisons_dropped`` and ``comparison_failures``."""
        self._ours = ours
        self._counters = counters
        self._counting = threading.Lock()
        self._places = threading.BoundedSemaphore(WAITING_MAX)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="comparison")

    def begin(self, asked: Asked, request: Callable[[], Request]) -> Pending:
        """Let ours decide a request, which its thread makes first."""
        if not self._places.acquire(blocking=False):
            return Pending(asked, None)
        try:
            return Pending(asked, self._pool.submit(self._decide, request))
        except RuntimeError:  # it has stopped
            self._places.release()
            return Pending(asked, None)

    def end(self, pending: Pending, stock: Callable[[], Chosen]) -> None:
        """Compare with the answer of stock, which the thread of ours reads."""
        if pending.ours is None:  # the queue is full
            self._compare(pending, stock)
            return
        try:
            self._pool.submit(self._compare, pending, stock)
        except RuntimeError:  # it has stopped
            self._places.release()

    def stop(self) -> None:
        """End the threads; what has not begun is not compared."""
        self._pool.shutdown(cancel_futures=True)

    def _decide(self, make: Callable[[], Request]) -> _Decided:
        begun_s = time.monotonic()
        outcome = self._ours.preview(make(), OURS_MAX_S)
        return _Decided(outcome, _ms_since(begun_s))

    def _compare(self, pending: Pending, stock: Callable[[], Chosen]) -> None:
        try:
            self._keep(self._comparison(pending, stock()))
        except Exception:
            with self._counting:
                self._counters["comparison_failures"] += 1
            LOG.exception("Request %s was passed on and answered, but not compared", pending.asked["request_id"])
        finally:
            if pending.ours is not None:
                self._places.release()

    def _keep(self, comparison: ComparedRequest) -> None:
        with self._counting:
            if comparison.result is Agreement.DROPPED:
                self._counters["comparisons_dropped"] += 1
            else:
                self._counters["comparisons"] += 1
        self._ours.keep(comparison)

    def _comparison(self, pending: Pending, stock: Chosen) -> ComparedRequest:
        if pending.ours is None:
            return ComparedRequest(pending.asked, Agreement.DROPPED, "", Chosen(), stock)
        try:
            ours = pending.ours.result(2 * OURS_MAX_S)
        except Exception as error:
            return self._without_decision(pending.asked, error, stock)
        return compare(
            pending.asked, ours.outcome.record, ours.chosen, stock, self._ours.near_tie(),
            lambda node: self._ours.why_refused(ours.outcome.request, node),
        )  # fmt: skip

    @staticmethod
    def _without_decision(asked: Asked, error: Exception, stock: Chosen) -> ComparedRequest:
        """Ours did not come to a decision: Nova's request filters refused, or something failed."""
        name = type(error).__name__
        if name != REFUSAL:
            LOG.error("Request %s was passed on; ours failed on it", asked["request_id"], exc_info=error)
        failure = FailureCode.NO_CANDIDATES.value if name == REFUSAL else name
        record = DecisionRecord(asked["request_id"], {}, failure=failure)
        return compare(asked, record, Chosen(error=failure), stock, 0.0, lambda _: REQUEST_FILTER)


def _ms_since(begun_s: float) -> float:
    return round(1000 * (time.monotonic() - begun_s), 3)
