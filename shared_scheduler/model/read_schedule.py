# SPDX-License-Identifier: Apache-2.0
"""Plans the reads of a source: at most one in flight, the next one now, later, or after a failure.

=======  ===========  ========================================================
state    event        next
=======  ===========  ========================================================
resting  ask(at)      resting, due at the earlier of both
resting  ask_at_once  resting, due now, also after a failure
resting  due          reading
reading  ask(at)      reading, due again at ``at`` when it is finished
reading  finished     resting, due when asked meanwhile, otherwise at the poll
reading  failed       resting, due after a full-jitter wait
resting  new times    resting, due no later than the poll of the new times
=======  ===========  ========================================================

Both programs use it: the agent's core for its provider tree and allocations, the scheduler's ``sync`` for each
source and key.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from shared_scheduler.protocol.backoff import Backoff, jittered_s

#: Jitter of the poll, as a part of the interval, so that many programs do not read in step.
POLL_JITTER = 0.2
#: The cause of a read that was not requested.
POLL = "poll"


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """``poll_s`` None: read on request only.  After a failure: between 0 and ``retry_first_s`` doubled with each
    failure, ``retry_most_s`` at most."""

    poll_s: float | None
    retry_first_s: float
    retry_most_s: float


class ReadSchedule:
    """The plan for one kind of read.  Times are seconds of the caller's clock."""

    __slots__ = ("_cause", "_due_s", "_failures", "_not_before_s", "_reading", "_rng", "_times")

    def __init__(self, times: ReadTimes, rng: random.Random) -> None:
        self._times = times
        self._rng = rng
        self._due_s: float | None = None
        self._cause = POLL
        self._not_before_s = float("-inf")
        self._reading = False
        self._failures = 0

    def reconfigure(self, times: ReadTimes, now: float) -> None:
        """Replace the times; the next read is due no later than the new times require."""
        self._times = times
        if not self._reading:  # otherwise it is planned when the read has finished
            self._plan(now)

    def ask(self, at_s: float, cause: str = POLL) -> None:
        """Request a read no later than ``at_s``; a read that is in flight does not count."""
        at_s = self.earliest_s(at_s)
        if self._due_s is None or at_s < self._due_s:
            self._due_s, self._cause = at_s, cause

    def earliest_s(self, at_s: float) -> float:
        """When a read could begin that is requested for ``at_s``: after a failure it waits."""
        return max(at_s, self._not_before_s)

    def ask_at_once(self, now: float, cause: str = POLL) -> None:
        """Request a read now, also after failures, because the caller knows that the source answers."""
        self._not_before_s = float("-inf")
        self.ask(now, cause)

    @property
    def cause(self) -> str:
        """The cause id of the request for the read that is due next, or that has begun."""
        return self._cause

    @property
    def reading(self) -> bool:
        """Whether a read is in flight."""
        return self._reading

    @property
    def failures(self) -> int:
        """Failed reads since the last one that succeeded."""
        return self._failures

    def due_s(self) -> float | None:
        """When the next read may begin; None while one is in flight, or when none is planned."""
        return None if self._reading else self._due_s

    @property
    def planned_s(self) -> float | None:
        """When the next read is due, also while one is in flight; None: none is planned."""
        return self._due_s

    def is_due(self, now: float) -> bool:
        """Whether a read is due."""
        due_s = self.due_s()
        return due_s is not None and due_s <= now

    def begin(self, now: float) -> bool:
        """Begin a read if one is due; returns whether the caller must read now."""
        if not self.is_due(now):
            return False
        self._reading, self._due_s = True, None
        return True

    def finished(self, now: float) -> None:
        """Plan the next read after a success."""
        self._reading, self._failures = False, 0
        self._plan(now)

    def _plan(self, now: float) -> None:
        if self._times.poll_s is not None:
            self.ask(now + jittered_s(self._times.poll_s, POLL_JITTER, self._rng))

    def failed(self, now: float) -> None:
        """Plan the next read after a failure.  Requests that arrived during the read wait for it as well."""
        self._reading, self._failures = False, self._failures + 1
        backoff = Backoff(self._times.retry_first_s, self._times.retry_most_s)
        self._due_s = self._not_before_s = now + backoff.wait_s(self._rng, self._failures)
