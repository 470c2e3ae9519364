# SPDX-License-Identifier: Apache-2.0
"""How fast Placement writes: how many allocations go into one call, and which writes are not worth sending.

Placement may become a hundred times slower, because its database is busy or because its cache is empty.  A queue that
keeps its order then collapses, and stays collapsed after Placement is well again: each write that is sent has waited
almost until its deadline, so it is late, so it has to be deleted, and the delete takes the time of the next writes.
(*Metastable failures in distributed systems*, Bronson et al., HotOS 2021.)  Four rules prevent this:

* A batch holds no more consumers than Placement writes in ``CALL_S``, by the time that the last calls took.
* While writes wait longer than ``OVERLOADED_AFTER_S``, those of the newest request are sent first.  Those that cannot
  be served are then the oldest, whose callers give up anyway, and the others are served in time.  (*Fail at Scale*,
  Maurer, ACM Queue 2015, calls it adaptive LIFO.)  The writes of one request keep their order, because the request
  needs all of them.
* A write that cannot end before its deadline is not sent.  It needs no delete either.
* Deletes have a writer of their own, and others only take one while no write can be sent.

A request for many servers that cannot be written before its deadline fails (``time_left.py``).

A call with a few consumers does not show what a full batch takes, only that it takes at least as long as this call.
The forecast assumes that, so a request that arrives is not refused if Placement could write it in time.  The later
looks count calls under way as if they were not begun, so a request may fail that would have ended in its last seconds.
A call that was sent while Placement was slow ends long after others show that it is well; it says nothing then.

All bounds of the queue of writes are here.
"""

from __future__ import annotations

#: Threads that write, and threads that only delete.  More are of no use for a Placement with a few cores.
WRITERS = 4
DELETERS = 1
#: A second writer, and any further one, takes a batch when a write of it has waited for this time.  Until then writes
#: gather for the one at work, because stock Placement needs half of the time for a consumer if four share a call.
FURTHER_WRITER_AFTER_S = 0.1
#: Further threads that write while writes wait until they are sent again, which takes no time of Placement.
SPARE_WRITERS = 32
#: Consumers in one POST, whose rows stay locked until it commits.
MAX_BATCH = 16
#: Maximum number of waiting jobs; the core's bound of claims is far below.
MAX_WAITING = 4096
#: Time that one call may take: a fifth of ``write_timeout_s``.
CALL_S = 2.0
#: A write that waits longer than this shows that Placement does not keep up.
OVERLOADED_AFTER_S = 3.0
#: Claims of one request that are not written yet: at most so many, and no more than Placement writes in this time,
#: which is half of ``write_timeout_s``.  The maximum fills the batches of all writers twice.
UNWRITTEN_MAX = 2 * WRITERS * MAX_BATCH
UNWRITTEN_S = 5.0
#: The same, before a pace is known.  Two for each writer show one, and keep all writers busy until then.
UNPACED_MAX = 2 * WRITERS
#: A request fails when every answer to its writes has said for this time that it cannot end: long enough for batches to
#: grow, and for the pace to forget the calls of before.
DOUBT_S = 3.0
#: Calls of one delete: the consumer is read first.
DELETE_CALLS = 2
#: A pace that was measured longer ago says nothing: a request for many servers is then tried.
FORECAST_VALID_S = 30.0
#: Weight of the newest measurement.  Four or five calls of a Placement that is well again are enough.
NEWEST_WEIGHT = 0.5


class WritePace:
    """The time that Placement takes for one consumer, as the last calls have shown.  Not thread-safe."""

    def __init__(self) -> None:
        self._consumer_s: float | None = None
        self._filled_consumer_s = 0.0
        self._answered_s = float("-inf")  # when the newest call began that was answered

    @property
    def consumer_s(self) -> float:
        """Seconds for which one consumer occupies a writer; 0 before the first measurement."""
        return self._consumer_s or 0.0

    @property
    def filled_consumer_s(self) -> float:
        """The least seconds of a writer for each consumer of a full batch, if one takes no less than the last calls."""
        return self._filled_consumer_s

    def measured(self, consumers: int, began_s: float, took_s: float, answered: bool = True) -> None:
        """Note that a call took so long.  Without an answer it would have taken longer, so the pace does not rise.

        It says nothing if Placement has answered a call that began more than ``CALL_S`` later."""
        if began_s + CALL_S < self._answered_s:
            return
        if answered:
            self._answered_s = max(self._answered_s, began_s)
        first = self._consumer_s is None
        self._consumer_s = _moved(self.consumer_s, took_s / consumers, answered, first)
        filled_s = took_s / max(consumers, self.batch_max())
        self._filled_consumer_s = _moved(self._filled_consumer_s, filled_s, answered, first)

    def batch_max(self) -> int:
        """The number of consumers of the next call, from 1 to ``MAX_BATCH``."""
        if self.consumer_s * MAX_BATCH <= CALL_S:
            return MAX_BATCH
        return max(1, int(CALL_S / self.consumer_s))

    def is_too_late(self, deadline_s: float, now: float) -> bool:
        """Whether a write cannot end in time.  No measurement makes one late that has ``CALL_S`` left: otherwise
        nothing would be sent after a standstill, and nothing would show that it is over."""
        return now + min(self.consumer_s, CALL_S) >= deadline_s


def _moved(before_s: float, measured_s: float, answered: bool, first: bool) -> float:
    measured_s = measured_s if answered else max(measured_s, before_s)
    return measured_s if first else before_s + NEWEST_WEIGHT * (measured_s - before_s)


class BurstForecast:
    """How long Placement needs for a request, by the pace that the answers to the last writes carry."""

    def __init__(self) -> None:
        self._consumer_s = 0.0
        self._heard_s = float("-inf")

    def heard(self, consumer_s: float, now: float) -> None:
        """An answer to a write carried this pace, the seconds of a writer for a consumer of a full batch; 0: none."""
        if consumer_s:
            self._consumer_s, self._heard_s = consumer_s, now

    def needed_s(self, consumers: int, now: float) -> float:
        """Seconds for so many consumers; 0 if no pace was heard lately.

        Other writes are not counted: while Placement does not keep up, the newest are sent first.
        """
        return consumers * self._pace_s(now) / WRITERS

    def taken_back_s(self, written: int, claimed: int, now: float) -> float:
        """Seconds until nothing is left of a request with so many servers that are written, and claims whose writes are
        still carried out, if it fails now."""
        deletes_s = (written + claimed) * DELETE_CALLS * self._pace_s(now) / (WRITERS + DELETERS)
        return self.needed_s(claimed, now) + deletes_s

    def unwritten_max(self, now: float) -> int:
        """How many claims of one request may wait for their write."""
        pace_s = self._pace_s(now)
        if not pace_s:
            return UNPACED_MAX
        return max(WRITERS, min(UNWRITTEN_MAX, int(UNWRITTEN_S * WRITERS / pace_s)))

    def _pace_s(self, now: float) -> float:
        return 0.0 if now - self._heard_s > FORECAST_VALID_S else self._consumer_s
