# SPDX-License-Identifier: Apache-2.0
"""Which authorities do not answer: what one source has found out, the others of the same authority need not.

Without this, a decision would wait one time-out for each source of a database that hangs, and each such source would
hold up a decision.
"""

from __future__ import annotations

from shared_scheduler.sync.flight import Flight
from shared_scheduler.sync.sources import RETRY_MOST_S


class Authorities:
    """Of the reads that decisions wait for.  Guarded by the revalidator's lock."""

    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._in_flight: dict[str, set[Flight]] = {}
        self._failed_s: dict[str, float] = {}

    def begun(self, flight: Flight) -> None:
        """A read of it has begun."""
        self._in_flight.setdefault(flight.authorities[0], set()).add(flight)

    def ended(self, flight: Flight) -> None:
        """The read in flight has ended."""
        name = flight.authorities[0]
        in_flight = self._in_flight.get(name, set())
        in_flight.discard(flight)
        if not in_flight:
            self._in_flight.pop(name, None)

    def failed(self, flight: Flight, now: float) -> None:
        """There was no answer, or an error."""
        self._failed_s[flight.authorities[0]] = now

    def answered(self, flight: Flight) -> None:
        """There was an answer."""
        self._failed_s.pop(flight.authorities[0], None)

    def forget(self, flight: Flight) -> None:
        """Its cell was removed, and may be added again with another database."""
        self._failed_s.pop(flight.authorities[0], None)
        self._in_flight.pop(flight.authorities[0], None)

    def are_worth_waiting_for(self, flight: Flight, now: float) -> bool:
        """Whether all that a read of it needs answer, as far as is known."""
        if not self._failed_s and not self._in_flight:  # as nearly always; each decision asks
            return True
        return not any(self._is_away(name, now) for name in flight.authorities)

    def _is_away(self, name: str, now: float) -> bool:
        """Failed lately without an answer since, or holds up a read for longer than anybody should wait for it."""
        if now - self._failed_s.get(name, float("-inf")) < RETRY_MOST_S:
            return True
        return any(now - flight.began_s >= self._max_wait_s for flight in self._in_flight.get(name, ()))
