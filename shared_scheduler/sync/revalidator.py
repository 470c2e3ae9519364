# SPDX-License-Identifier: Apache-2.0
"""The revalidator: runs every read of Nova's databases and of Placement that ``sync.read_registry`` lists.

- One read is in flight for each key of a source.  A caller that needs a key that is in flight shares the next read,
  which begins after the request; a caller that waits may accept a read that began shortly before.
- Reads are polled at jittered intervals after the newest read, regardless of its cause.
- A failed read is repeated after a full-jitter wait that doubles.  Until it succeeds no caller waits for it, or for
  other reads of the same authority (``sync.authorities``), so an outage delays a few requests, not every one.  It is
  logged once a minute.
- Each authority and each cell has a lane of threads, so one that does not answer does not delay the others.  A cell has
  a second one for its nodes, so that many of them do not delay its polls.
- A caller that has to wait for a key that no thread reads has it read at once by a thread of its own, behind which no
  other read waits.  It waits for that read as long as for one of a lane, and then goes on with what was read last.

A read is a function that takes the key and the time at which it began, and yields events for the core and requests
for further reads.  If it fails, the events that it yielded before stay valid.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from shared_scheduler.core.events import Event
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.sync import cost
from shared_scheduler.sync.authorities import Authorities
from shared_scheduler.sync.bounded_reads import begin
from shared_scheduler.sync.cost import Cost
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.flight import Flight, Key, Place, ReadRequest, authority_of
from shared_scheduler.sync.lane import Lane
from shared_scheduler.sync.read_registry import LANES, NODE, NODES, QUESTIONS, SOURCES, WIDE, ReadFrom, ReadKey, Source
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

#: The maximum number of keys of all sources that wait to be read.
MAX_WAITING = 50_000
#: A caller does not wait for a read that has been in flight for this time, also if it has begun it itself, because its
#: source does not answer.  A caller that has waited for this time begins no more reads.
MAX_WAIT_S = 3.0
#: How long the stop waits for threads that are in a call.
JOIN_S = 12.0

Read = Callable[[Key, float], Iterable[Event | ReadRequest]]


def _nodes_of(cell: str) -> str:
    """The name of the lane of the nodes of a cell."""
    return f"{NODES} {cell}"


class Revalidator:
    """``read``, ``request`` and ``wait_for`` may be called from any thread."""

    def __init__(
        self,
        submit: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
        *,
        sources: Sequence[Source] = SOURCES,
        max_waiting: int = MAX_WAITING,
        max_wait_s: float = MAX_WAIT_S,
        threads: Mapping[str, int] | None = None,
    ) -> None:
        """``threads``: the number of threads of some lanes; the others have those of ``LANES``."""
        self.sources: Mapping[str, Source] = {source.name: source for source in sources}
        self._submit = submit
        self._clock = clock
        self._rng = rng or Random()
        self._max_waiting = max_waiting
        self._max_wait_s = max_wait_s
        self._reads: dict[str, Read] = {}
        self._flights: dict[Place, Flight] = {}
        self._costs = {name: Cost() for name in self.sources}
        self._lock = threading.Lock()
        self._outages = RateLimitedLog(LOG, clock)
        self._failing: dict[str, set[Key]] = {}  # name in the log -> the keys whose last read has failed
        self._authorities = Authorities(max_wait_s)
        self._started = False
        self._threads = {**LANES, **(threads or {})}
        self._lanes = {name: Lane(name, self._lock, clock) for name in LANES}
        #: Grows with each event that a decision could have waited for.
        self.news = 0

    # -- life cycle

    def provide(self, reads: Mapping[str, Read]) -> None:
        """Set the functions that read, by source, and begin to poll the sources of the whole cloud."""
        self._reads.update(reads)
        self._add([name for name in reads if self.sources[name].key is ReadKey.CLOUD], ())

    def add_cell(self, cell: str) -> None:
        """Begin to poll the sources of a cell."""
        lanes = {cell: Lane(f"cell-{cell}", self._lock, self._clock)}
        lanes[_nodes_of(cell)] = Lane(f"nodes-{cell}", self._lock, self._clock)
        with self._lock:
            self._lanes.update(lanes)
        self._add([name for name in self._reads if self.sources[name].key is ReadKey.CELL], (cell,))
        if self._started:
            self._start_lanes(lanes)

    def remove_cell(self, cell: str, within_s: float = JOIN_S) -> None:
        """Stop polling a cell; returns when no thread reads it, or after this time."""
        with self._lock:
            lanes = [self._lanes.pop(name) for name in (cell, _nodes_of(cell))]
            for place in [place for place in self._flights if place[1][:1] == (cell,)]:
                self._authorities.forget(self._flights[place])
                self._failing.pop(self._described(self._flights.pop(place)), None)
        self._end_lanes(lanes, within_s)

    def start(self) -> None:
        """Begin to poll and to serve requests; the first poll of each key is due within its interval."""
        self._started = True
        self._start_lanes(dict(self._lanes))

    def _start_lanes(self, lanes: Mapping[str, Lane]) -> None:
        for name, lane in lanes.items():
            lane.start(self._work, self._threads.get(name.partition(" ")[0], 1))

    def stop_polls(self) -> None:
        """End all threads except those that answer questions; waits for reads in flight as long as a decision would.
        What callers wait for is read by threads of their own then.  Idempotent.
        """
        polling = [lane for name, lane in list(self._lanes.items()) if name not in (QUESTIONS, WIDE)]
        self._end_lanes(polling, self._max_wait_s)

    def stop(self) -> None:
        """End all threads.  Idempotent."""
        self._end_lanes(list(self._lanes.values()), JOIN_S)

    def _end_lanes(self, lanes: Sequence[Lane], within_s: float) -> None:
        with self._lock:
            for lane in lanes:
                lane.stop()
        until_s = time.monotonic() + within_s
        for lane in lanes:
            lane.join(until_s)

    def _add(self, names: Iterable[str], key: Key) -> None:
        with self._lock:
            for name in names:
                flight = self._flights[name, key] = Flight(self.sources[name], key, self._rng)
                if (poll_s := flight.source.poll_s) is not None:
                    flight.schedule.ask(self._clock() + self._rng.uniform(0, poll_s))
                    self._lane(flight).put(flight)

    def _lane(self, flight: Flight) -> Lane:
        own = _nodes_of(flight.key[0]) if flight.source.name == NODE else ""
        return self._lanes.get(own) or self._lanes[flight.source.lane or flight.key[0]]

    # -- who wants something read

    def request(self, wanted: ReadRequest) -> None:
        """Request the read of a key; never blocks."""
        with self._lock:
            flight = self._flight(wanted.place)
            if flight is not None:
                flight.schedule.ask(self._clock() + wanted.in_s)
                self._lane(flight).put(flight)
        if flight is None and wanted.source == NODE:
            self._outages.failed("the revalidator", f"more than {self._max_waiting} keys wait; some are not read")

    def _flight(self, place: Place) -> Flight | None:
        """The existing flight, or a new one of a node or a question."""
        name, key = place
        flight = self._flights.get(place)
        room = len(self._flights) < self._max_waiting or name != NODE  # questions have their own bound
        if flight is None and self.sources[name].is_on_request and room:
            flight = self._flights[place] = Flight(self.sources[name], key, self._rng)
        return flight

    def read(self, source: str, key: Key = ()) -> None:
        """Read a key now, in this thread, regardless of its schedule.

        :raises DatabaseError: when a database cannot be read
        :raises PlacementError: when Placement cannot be read
        """
        with cost.measured() as spent:
            self._carry_out(self._reads[source](key, self._clock()), self.sources[source])
        with self._lock:
            self._costs[source].add(spent)

    def wait_for(self, places: Iterable[Place], max_age_s: float, *, bounded: bool = True) -> frozenset[Place]:
        """Return when each place has been read by a read that began after the call, or at most ``max_age_s`` before it.

        Does not wait for a place whose last read failed or whose read in flight takes too long.  Returns the reads that
        these reads have requested.  ``bounded`` False: the calling thread is there for these reads; it carries them out
        without another thread, and may be kept by one that hangs.
        """
        with self._lock:
            now = self._clock()
            there = [flight for place in places if (flight := self._flights.get(place)) is not None]
            wanted = {each: each.wanted(now, max_age_s) for each in there if self._may_answer(each, now)}
        self._wait_until_read(wanted, self._run_within_bound if bounded else self._run)
        return frozenset(place for flight in wanted for place in flight.requested)

    def wait_for_requested(self, places: Iterable[Place]) -> None:
        """Return when all requests for these places that are due by now have been served, with the same exceptions; if
        they are many, after ``max_wait_s`` and the reads that are in flight then.
        """
        with self._lock:
            now = self._clock()
            there = [flight for place in places if (flight := self._flights.get(place)) is not None]
            wanted = {each: each.pending(now) for each in there if self._may_answer(each, now)}
        self._wait_until_read(wanted, self._run_within_bound)

    def _wait_until_read(self, wanted: Mapping[Flight, int], run: Callable[[Flight], None]) -> None:
        left = {flight: number for flight, number in wanted.items() if flight.ended < number}
        if not left:
            return
        with self._lock:
            until_s = self._clock() + self._max_wait_s
            for flight in list(left)[1:]:  # the caller begins with the first one, the lanes with the others
                if self._flights.get(flight.place) is flight:  # otherwise its cell was removed
                    self._lane(flight).put(flight)
        while (mine := self._next_of(left, until_s)) is not None:
            run(mine)

    def _run_within_bound(self, flight: Flight) -> None:
        """Carry out the read that has begun in a thread of its own, which goes on if it takes too long."""
        try:
            read = begin(f"read-{flight.source.name}", self._run, flight)
        except RuntimeError:  # no thread can be started, and the read has begun
            self._run(flight)
            return
        with suppress(TimeoutError):
            read.result(self._max_wait_s)

    def _next_of(self, left: dict[Flight, int], until_s: float) -> Flight | None:
        """Begin one of these reads, which the caller carries out; None if there is nothing left to wait for."""
        with self._lock:
            while True:
                now = self._clock()
                for flight, number in list(left.items()):
                    if flight.ended >= number or not self._may_answer(flight, now):
                        del left[flight]
                if now < until_s and (mine := next((each for each in left if each.begin(now)), None)) is not None:
                    return mine
                for flight in [each for each in left if not self._is_worth_waiting_for(each, now)]:
                    del left[flight]
                if not left:
                    return None
                flight = next(iter(left))
                flight.wait(self._lock, flight.began_s + self._max_wait_s - now)

    def _may_answer(self, flight: Flight, now: float) -> bool:
        return not flight.schedule.failures and self._authorities.are_worth_waiting_for(flight, now)

    def _is_worth_waiting_for(self, flight: Flight, now: float) -> bool:
        return flight.schedule.reading and now - flight.began_s < self._max_wait_s

    # -- reads

    def _work(self, lane: Lane) -> None:
        while True:
            with self._lock:
                flight = lane.wait()
            if flight is None:
                return
            self._run(flight)

    def work_off(self) -> None:
        """Read everything in this thread that is due by now, one lane after the other."""
        for lane in list(self._lanes.values()):
            while (flight := self._take(lane)) is not None:
                self._run(flight)

    def _take(self, lane: Lane) -> Flight | None:
        with self._lock:
            return lane.take()

    def _run(self, flight: Flight) -> None:
        """Carry out the read that has begun."""
        requested: frozenset[Place] = frozenset()
        succeeded = answers = False
        with self._lock:
            if flight.source.is_waited_for and self._flights.get(flight.place) is flight:
                self._authorities.begun(flight)
        with cost.measured() as spent:
            started_s = self._clock()
            try:
                read = self._reads[flight.source.name]
                found = self._while_wanted(flight, read(flight.key, flight.began_s))
                requested = self._carry_out(found, flight.source)
                succeeded = answers = True
            except (DatabaseError, PlacementError) as error:
                self._outages.failed(self._described(flight), f"{self._described(flight)} cannot be read: {error}")
            except Exception:
                answers = True
                text, name = "reading %s failed with an unexpected error", self._described(flight)
                self._outages.write(logging.ERROR, ("unexpected", name), text, name, exc_info=True)
            finally:
                spent.seconds, spent.failures = self._clock() - started_s, not succeeded
                self._end(flight, succeeded, answers, requested, spent)
        if succeeded and self._described(flight) not in self._failing:
            self._outages.recovered(self._described(flight))

    def _while_wanted(self, flight: Flight, found: Iterable[Event | ReadRequest]) -> Iterator[Event | ReadRequest]:
        """What a read finds until its cell is removed: the cell may be read elsewhere then."""
        for one in found:
            with self._lock:
                if self._flights.get(flight.place) is not flight:
                    return
            yield one

    def _carry_out(self, read: Iterable[Event | ReadRequest], source: Source) -> frozenset[Place]:
        requested = []
        for found in read:
            if isinstance(found, ReadRequest):
                self.request(found)
                if source.is_waited_for and not found.in_s:
                    requested.append(found.place)
                continue
            self._submit(found)
            if source.is_waited_for:
                with self._lock:
                    self.news += 1
        return frozenset(requested)

    def _end(self, flight: Flight, succeeded: bool, answers: bool, requested: frozenset[Place], spent: Cost) -> None:
        with self._lock:
            now = self._clock()
            flight.served(now, succeeded, requested | self._unread(flight.requested, now))
            self._costs[flight.source.name].add(spent)
            self._authorities.ended(flight)
            if self._flights.get(flight.place) is not flight:  # its cell was removed
                return
            self._note_failing(flight, not succeeded)
            if flight.source.is_waited_for:
                self._report(flight, answers, now)
            if flight.source.is_on_request and flight.is_idle:
                del self._flights[flight.place]
            else:
                self._lane(flight).put(flight)

    def _note_failing(self, flight: Flight, failing: bool) -> None:
        name = self._described(flight)
        if failing:
            self._failing.setdefault(name, set()).add(flight.key)
        elif name in self._failing:
            self._failing[name].discard(flight.key)
            if not self._failing[name]:
                del self._failing[name]

    def _unread(self, places: Iterable[Place], now: float) -> frozenset[Place]:
        """The places that are due or in flight; the next read does not find again what caused their requests."""
        there = [flight for place in places if (flight := self._flights.get(place)) is not None]
        return frozenset(each.place for each in there if each.schedule.reading or each.schedule.is_due(now))

    def _report(self, flight: Flight, answers: bool, now: float) -> None:
        if answers:
            self._authorities.answered(flight)
        else:
            self._authorities.failed(flight, now)

    @staticmethod
    def _described(flight: Flight) -> str:
        """The name in the log, which is the same for all nodes of a cell."""
        return " ".join((flight.source.name, *flight.key[:1]))

    # -- reports

    def is_away(self, cell: str) -> bool:
        """Whether the database of a cell is known not to answer."""
        with self._lock:
            return self._authorities.is_away(authority_of(cell), self._clock())

    def longest_read_s(self, cell: str) -> float:
        """For how long the oldest query of a cell that is in flight has taken; 0 without any."""
        with self._lock:
            now = self._clock()
            return max((now - each.began_s for each in self._polled(cell) if each.schedule.reading), default=0.0)

    def in_flight(self, cell: str) -> frozenset[str]:
        """The sources that are read from a cell now."""
        with self._lock:
            return frozenset(each.source.name for each in self._polled(cell) if each.schedule.reading)

    def have_answered(self, cell: str, sources: Collection[str]) -> bool:
        """Whether each of these sources of a cell has been read since it was added."""
        with self._lock:
            wanted = [each for each in self._polled(cell) if each.source.name in sources]
            return all(each.newest_s > float("-inf") for each in wanted)

    def _polled(self, cell: str) -> list[Flight]:
        """What is read from the database of a cell alone."""
        places = ((name, (cell,)) for name, source in self.sources.items() if source.authority is ReadFrom.CELL)
        return [self._flights[place] for place in places if place in self._flights]

    def due(self, source: str) -> int:
        """The number of keys of a source that are due by now."""
        with self._lock:
            now = self._clock()
            return sum(each.schedule.is_due(now) for each in self._flights.values() if each.source.name == source)

    def report(self) -> list[dict[str, Any]]:
        """The registry with ages and costs, one row for each source, in its order."""
        with self._lock:
            now = self._clock()
            flights: dict[str, list[Flight]] = {name: [] for name in self.sources}
            for each in self._flights.values():
                flights[each.source.name].append(each)
            return [self._row(source, flights[name], now) for name, source in self.sources.items()]

    def _row(self, source: Source, flights: Sequence[Flight], now: float) -> dict[str, Any]:
        spent = self._costs[source.name]
        read = [each.newest_s for each in flights if each.newest_s > float("-inf")]
        return {
            "source": source.name,
            "authority": source.authority.value,
            "key": source.key.value,
            "poll_s": source.poll_s,
            "triggers": source.triggers,
            "decision_waits": source.decision.value,
            "refusal_waits": source.refusal.value,
            "keys": len(flights),
            "oldest_s": round(now - min(read), 3) if read else None,
            "due": sum(each.schedule.is_due(now) for each in flights),
            "waiting": sum(each.waiting for each in flights),
            "in_flight": sum(each.schedule.reading for each in flights),
            "failing": sum(each.schedule.failures > 0 for each in flights),
            "reads": spent.reads,
            "failures": spent.failures,
            "seconds": round(spent.seconds, 6),
            "queries": spent.queries,
            "rows": spent.rows,
        }
