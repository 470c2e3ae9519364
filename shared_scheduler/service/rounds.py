# SPDX-License-Identifier: Apache-2.0
"""Jobs that are done again and again by one thread, each at its own jittered interval."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from shared_scheduler.placement.client import PlacementError
from shared_scheduler.service.databases import DatabaseError
from shared_scheduler.service.outages import Outages

LOG = logging.getLogger(__name__)

#: Intervals vary by this share to both sides, so that schedulers do not ask in step.
JITTER = 0.2
#: How long ``stop`` waits for a job in the middle of a call.
JOIN_S = 12.0


@dataclass(frozen=True, slots=True)
class Round:
    """One job.  ``source`` names what it asks, for the log."""

    source: str
    interval_s: float
    run: Callable[[], object]


class Rounds:
    """A thread.  A job that meets an outage is done again at its next turn, and said once a while."""

    def __init__(
        self, name: str, rounds: Sequence[Round], clock: Callable[[], float], rng: Random
    ) -> None:
        self._rounds = rounds
        self._clock = clock
        self._rng = rng
        self._stopped = threading.Event()
        self._outages = Outages(LOG, clock)
        self._thread = threading.Thread(target=self._loop, name=f"rounds-{name}", daemon=True)

    def start(self) -> None:
        """Begin; the first turn of each job comes within its interval."""
        self._thread.start()

    def stop(self) -> None:
        """End it, also from one of its own jobs' threads; idempotent."""
        self._stopped.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _loop(self) -> None:
        start_s = self._clock()
        due = [start_s + self._rng.uniform(0, one.interval_s) for one in self._rounds]
        while not self._stopped.wait(max(0.0, min(due, default=0.0) - self._clock())):
            for index, one in enumerate(self._rounds):
                if due[index] <= self._clock() and not self._stopped.is_set():
                    self._do(one)
                    jitter = self._rng.uniform(1 - JITTER, 1 + JITTER)
                    due[index] = self._clock() + one.interval_s * jitter

    def _do(self, one: Round) -> None:
        try:
            one.run()
        except (DatabaseError, PlacementError) as error:
            self._outages.failed(one.source, str(error))
        except Exception:
            LOG.exception("asking %s failed in an unforeseen way", one.source)
        else:
            self._outages.recovered(one.source)
