# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to be asked for a resync, if more nodes need one than a scheduler may ask at a time.

A request takes a token, and a place until the messages of its node are in order, or for ``RESYNC_PATIENCE_S``.  Answers
take milliseconds, so places limit the rate only if answers are missing: there is no agent yet, or the broker is slow.
Each source has few of the places.  A source is a host, or all nodes that no database has.

Nodes that have to wait stand in the line of their source.  The lines take turns, so a host with many nodes delays its
own ones, not those of other hosts.  A line has each node once.  (Lines are an ``OrderedDict``: to find the first entry
of a ``dict``, Python steps over all that were deleted.)

Other requests do not wait, because a later one does as well: whether an agent is there, or that it exceeds an epoch.
They have tokens of their own, and a source has few of these a second.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.rate_limits import TokenBucket, TokenBuckets

#: the source of all nodes that no database has
UNLISTED = ""


class InFlight:
    """The requests that wait for an answer: at most ``RESYNCS_IN_FLIGHT_MAX``, and ``HOST_RESYNCS_IN_FLIGHT_MAX`` for
    each host; besides these ``UNLISTED_RESYNCS_IN_FLIGHT_MAX`` for nodes that no database has."""

    __slots__ = ("_count_of", "_number", "_numbers_of", "_open")

    def __init__(self) -> None:
        self._number = 0
        self._open: OrderedDict[int, tuple[float, str, str]] = OrderedDict()  # number -> (end, source, node)
        self._numbers_of: dict[str, list[int]] = {}  # node -> its requests
        self._count_of: Counter[str] = Counter()  # source -> requests

    @property
    def are_hosts_full(self) -> bool:
        """Whether the places of all hosts together are taken."""
        return len(self._open) - self._count_of[UNLISTED] >= limits.RESYNCS_IN_FLIGHT_MAX

    def has_room(self, source: str) -> bool:
        """Whether a source has a place."""
        if source == UNLISTED:
            return self._count_of[source] < limits.UNLISTED_RESYNCS_IN_FLIGHT_MAX
        return self._count_of[source] < limits.HOST_RESYNCS_IN_FLIGHT_MAX and not self.are_hosts_full

    def begin(self, source: str, node: str, now: float) -> None:
        """Take a place."""
        self._number += 1
        self._open[self._number] = (now + limits.RESYNC_PATIENCE_S, source, node)
        self._numbers_of.setdefault(node, []).append(self._number)
        self._count_of[source] += 1

    def end(self, node: str) -> None:
        """Free the places of a node: an answer arrived."""
        for number in self._numbers_of.get(node, [])[:]:
            self._free(number)

    def expire(self, now: float) -> None:
        """Free the places of requests without an answer."""
        while self._open and (number := next(iter(self._open))) and self._open[number][0] <= now:
            self._free(number)

    def next_end_s(self) -> float | None:
        """When the next place is free without an answer; None if all are."""
        return next((end_s for end_s, _, _ in self._open.values()), None)

    def validate(self) -> None:
        """Check the bounds, for tests and the simulator.

        :raises AssertionError: when one is exceeded
        """
        unlisted, count_of = self._count_of[UNLISTED], dict(self._count_of)
        assert unlisted <= limits.UNLISTED_RESYNCS_IN_FLIGHT_MAX
        assert sum(count_of.values()) == len(self._open) <= limits.RESYNCS_IN_FLIGHT_MAX + unlisted
        assert all(count <= limits.HOST_RESYNCS_IN_FLIGHT_MAX for source, count in count_of.items() if source)

    def _free(self, number: int) -> None:
        _, source, node = self._open.pop(number)
        self._numbers_of[node].remove(number)
        if not self._numbers_of[node]:
            del self._numbers_of[node]
        self._count_of[source] -= 1
        if not self._count_of[source]:
            del self._count_of[source]


class ResyncTurns:
    """The tokens, places and lines of one scheduler; ``source_of`` a node is its host, or ``UNLISTED``."""

    def __init__(self, source_of: Callable[[str], str], bucket: TokenBucket | None = None) -> None:
        self._source_of = source_of
        self._bucket = bucket or TokenBucket(limits.SCHEDULER_RESYNCS_PER_S, limits.SCHEDULER_RESYNCS_BURST)
        self._prompt = TokenBucket(limits.PROMPT_RESYNCS_PER_S, limits.PROMPT_RESYNCS_BURST)
        self._prompt_of = TokenBuckets(
            limits.HOST_PROMPT_RESYNCS_PER_S, limits.HOST_PROMPT_RESYNCS_BURST, limits.PACED_HOSTS_MAX
        )
        self.in_flight = InFlight()
        #: source -> its nodes; the sources in the order of their turns
        self._lines: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._source_in_line: dict[str, str] = {}  # node -> source

    @property
    def waiting(self) -> AbstractSet[str]:
        """The nodes that wait."""
        return self._source_in_line.keys()

    def take(self, node: str, now: float) -> bool:
        """Take a token for a request that does not wait; False if there is none."""
        return self._prompt_of.take(self._source_of(node), now) and self._prompt.take(now)

    def begin(self, node: str, now: float) -> bool:
        """Take a token and a place; if it is not the turn of the node, it waits (again)."""
        self._join(node)
        if self.next(now) != node:
            return False
        source = self._source_in_line[node]
        self.leave(node)
        if source in self._lines:
            self._lines.move_to_end(source)
        self._bucket.take(now)
        self.in_flight.begin(source, node, now)
        return True

    def next(self, now: float) -> str | None:
        """The node whose turn it is; None if there is none, or no token or place for any."""
        self.in_flight.expire(now)
        if not self._lines or self._bucket.wait_s(now):
            return None
        line = self._next_line()
        return None if line is None else next(iter(line))

    def next_s(self, now: float) -> float | None:
        """When it is the turn of some node next, if nothing is answered before; None if none waits."""
        if not self._lines:
            return None
        self.in_flight.expire(now)
        return now + self._bucket.wait_s(now) if self._next_line() is not None else self.in_flight.next_end_s()

    def leave(self, node: str) -> None:
        """Note that a node needs no turn any more."""
        source = self._source_in_line.pop(node, None)
        if source is not None:
            del self._lines[source][node]
            if not self._lines[source]:
                del self._lines[source]

    def moved(self, node: str) -> None:
        """Note that a node may have another source now."""
        if self._source_in_line.get(node, self._source_of(node)) != self._source_of(node):
            self.leave(node)
            self._join(node)

    def _join(self, node: str) -> None:
        if node not in self._source_in_line:
            self._source_in_line[node] = source = self._source_of(node)
            self._lines.setdefault(source, OrderedDict())[node] = None

    def _next_line(self) -> OrderedDict[str, None] | None:
        """The first line whose source has a place.  Few sources have taken theirs while there are others."""
        if self.in_flight.are_hosts_full:
            return self._lines.get(UNLISTED) if self.in_flight.has_room(UNLISTED) else None
        return next((line for source, line in self._lines.items() if self.in_flight.has_room(source)), None)

    def validate(self) -> None:
        """Check the invariants, for tests and the simulator.

        :raises AssertionError: when one is broken
        """
        self.in_flight.validate()
        assert sum(map(len, self._lines.values())) == len(self._source_in_line), "each node waits in one line"
        assert all(self._lines.values()), "no line is empty"
