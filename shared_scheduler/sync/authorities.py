# SPDX-License-Identifier: Apache-2.0
"""Keeps track of which authorities do not answer, for all sources that read from the same authority.

Without it, each source of a database that does not answer would delay a decision by one time-out.
"""

from __future__ import annotations

from shared_scheduler.sync.flight import Flight
from shared_scheduler.sync.read_registry import RETRY_MOST_S


class Authorities:
    """The authorities of the reads that decisions wait for.  Guarded by the revalidator's lock."""

    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._in_flight: dict[str, set[Flight]] = {}
        self._failed_s: dict[str, float] = {}

    def begun(self, flight: Flight) -> None:
        """Record that a read has begun."""
        self._in_flight.setdefault(flight.authorities[0], set()).add(flight)

    def ended(self, flight: Flight) -> None:
        """Record that the read in flight has ended."""
        name = flight.authorities[0]
        in_flight = self._in_flight.get(name, set())
        in_flight.discard(flight)
        if not in_flight:
            self._in_flight.pop(name, None)

    def failed(self, flight: Flight, now: float) -> None:
        """Record that a read got an error or no answer."""
        self._failed_s[flight.authorities[0]] = now

    def answered(self, flight: Flight) -> None:
        """Record that a read got an answer."""
        self._failed_s.pop(flight.authorities[0], None)

    def forget(self, flight: Flight) -> None:
        """Remove the state of a flight whose cell was removed; the cell may be added again with another database."""
        self._failed_s.pop(flight.authorities[0], None)
        self._in_flight.pop(flight.authorities[0], None)

    def are_worth_waiting_for(self, flight: Flight, now: float) -> bool:
        """Whether all authorities that a read needs are expected to answer."""
        if not self._failed_s and not self._in_flight:  # the common case; each decision calls this
            return True
        return not any(self.is_away(name, now) for name in flight.authorities)

    def is_away(self, name: str, now: float) -> bool:
        """Whether it failed recently without an answer since, or its read takes longer than a decision should wait."""
        if now - self._failed_s.get(name, float("-inf")) < RETRY_MOST_S:
            return True
        return any(now - flight.began_s >= self._max_wait_s for flight in self._in_flight.get(name, ()))
