# SPDX-License-Identifier: Apache-2.0
"""The engine: owns the core, passes events to it, and carries out its effects.

Each event goes through ``handle``: one at a time, in the order of arrival.  An effect is passed to its sink at once,
and a sink only puts it into a queue; the threads behind the queues do the work and report it as events.  RPC threads
wait for their answer outside.

A sink that answers at once (the in-process bus) calls ``handle`` from inside ``handle``: the new event waits until the
present one is complete, but is carried out before the outer call returns, so a caller that returns from ``handle``
knows that its event was processed.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import Protocol, TypeVar

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler import SchedulerCore, StepFailedError
from shared_scheduler.core.write_queue import Work, Writer
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Claim
from shared_scheduler.service.cell_channel import CellChannel
from shared_scheduler.service.fair_lock import FairLock

LOG = logging.getLogger(__name__)

#: How long a thread may compute while another one waits; Python's default is 5 ms.  A decision must not wait that long
#: for the thread that decodes a burst.
SWITCH_S = 0.001
#: When Python searches for garbage in cycles: after so many new objects, so many searches of the youngest, and of the
#: young ones.  With Python's own (700, 10, 10), a request with its thousands of objects causes a dozen searches.
COLLECT_AFTER = (20_000, 20, 20)

#: Time after the core's deadline at which a waiting caller gets an internal error.
GRACE_S = 5.0

#: How often an engine that is drained looks whether all deletes have ended.
DRAIN_POLL_S = 0.05
#: The number of servers that are named at the end, because their allocations may be left.
LEFT_TOLD_MAX = 20

T = TypeVar("T")

Outcome = ef.Answer | ef.Fail
Wanted = ef.RefreshNode | ef.ReadBuild | ef.AskCandidates | ef.AskFitting | ef.AskConsumer | ef.AskGroup


class Reader(Protocol):
    """``sync.state_sync.StateSync``: reads databases and Placement, periodically and on request."""

    def start(self) -> None: ...
    def submit(self, effect: Wanted) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Sinks:
    """The parts that carry out effects; created with the engine's ``handle``, to which they report."""

    writer: Writer
    reader: Reader
    #: begins to read the service of a host (claim id, cell, host) while its agent judges a claim; must not block
    check_service: Callable[[str, str, str], None] = lambda claim_id, cell, host: None
    #: keeps the end of a build, or a change of a node; must not block
    record: Callable[[ef.RecordBuild | ef.RecordNode], None] = lambda effect: None
    #: examines a change that another writer made, and records it; must not block
    examine: Callable[[ef.ExamineChange], None] = lambda effect: None


class EngineBrokenError(Exception):
    """The core did not answer; this is a bug, and the log contains the details."""


class RequestOverdueError(EngineBrokenError):
    """The core was too busy, or the process stopped, until the caller's time was over."""


class Engine:
    """The core of one scheduler process, with its threads and queues.  Create it after any fork."""

    def __init__(self, core: SchedulerCore, clock: Callable[[], float] = time.monotonic) -> None:
        self.core = core
        self.clock = clock
        self.channels: dict[str, CellChannel] = {}
        self.counters: Counter[str] = Counter()
        #: of each channel that a cell uses or has used, so that their sums never go back
        self.channel_counters: list[Counter[str]] = []
        self._sinks: Sinks | None = None
        self._turns = FairLock()
        self._owner = 0
        self._pending: deque[ev.Event] = deque()
        self._waiting: dict[int, futures.Future[Outcome]] = {}
        self._alarm = threading.Condition()
        self._alarm_at_s: float | None = None
        self._wakes_s = float("-inf")  # until when the timer sleeps; in the past while it does not
        self._stopped = threading.Event()
        self._told_left: set[str] = set()  # servers
        self._timer = threading.Thread(target=self._ring, name="engine-timer", daemon=True)

    # -- life cycle

    def start(self, sinks: Sinks) -> None:
        """Begin to carry out effects."""
        sys.setswitchinterval(SWITCH_S)
        gc.set_threshold(*COLLECT_AFTER)
        self._sinks = sinks
        for sink in (sinks.writer, sinks.reader):
            sink.start()
        self._timer.start()

    def add_channel(self, channel: CellChannel) -> None:
        """Add the channel of a cell."""
        self.use_channel(channel.cell, channel)
        channel.start()

    def use_channel(self, cell: str, channel: CellChannel) -> None:
        """Let a cell use this channel from now on; several cells may use one."""
        self.channels[cell] = channel
        if all(channel.channel.counters is not known for known in self.channel_counters):
            self.channel_counters.append(channel.channel.counters)

    def stop_within(self, timeout_s: float) -> None:
        """Limit the time of requests from now on; new ones are still accepted."""
        self.handle(ev.Stopping(self.clock() + timeout_s))

    def drain(self, timeout_s: float) -> bool:
        """Refuse new requests, and wait for those in flight, and for the deletes of what failed ones have written.

        Deletes that are due after ``timeout_s`` are not waited for.  Servers of which something may be left are named
        at the end, because the time of the process may be over before ``stop`` returns.  Returns whether all requests
        have ended.
        """
        until_s = self.clock() + timeout_s
        self.handle(ev.Draining())
        ended = not futures.wait(list(self._waiting.values()), timeout_s).not_done
        while ended and self.inspect(lambda core: core.claims.ending_by(until_s)) and self.clock() < until_s:
            self._stopped.wait(DRAIN_POLL_S)
        self._tell_what_is_left()
        return ended

    def stop(self) -> None:
        """Stop everything; requests that still wait end with an error.  Idempotent."""
        with self._alarm:
            if self._stopped.is_set():
                return
            self._stopped.set()
            self._alarm.notify()
        if self._sinks is not None:
            self._sinks.writer.stop()  # first, because a delete that it still sends reads the reader's databases
            self._sinks.reader.stop()
            self._tell_what_is_left()
        for own in list(self.channels.values()):
            own.channel.close()
        for waiting in list(self._waiting.values()):
            _end(waiting, EngineBrokenError("the scheduler has stopped"))
        if self._timer.is_alive() and self._timer is not threading.current_thread():
            self._timer.join()

    def _tell_what_is_left(self) -> None:
        """Name the servers of which allocations may be left, each once."""
        claims = self.inspect(lambda core: list(core.claims.open()))
        servers = sorted({claim.intent.consumer for claim in claims if claim.writing_s is not None} - self._told_left)
        self._told_left.update(servers)
        if servers:
            more = f" and {len(servers) - LEFT_TOLD_MAX} others" if len(servers) > LEFT_TOLD_MAX else ""
            LOG.warning("Allocations may be left of servers %s%s", ", ".join(servers[:LEFT_TOLD_MAX]), more)

    # -- requests

    def decide(self, request: Request, timeout_s: float) -> Outcome:
        """Select hosts; blocks the calling thread until the answer, for about ``timeout_s`` at most.

        :raises RequestOverdueError: when there is no answer in time; the hosts of a later one are given back
        :raises EngineBrokenError: when there will be no answer
        """
        answer: futures.Future[Outcome] = futures.Future()
        self._waiting[id(request)] = answer
        try:
            self.handle(ev.RequestArrived(request, self.clock() + timeout_s))
            return answer.result(timeout_s + GRACE_S)
        except futures.TimeoutError as error:
            if not answer.cancel():
                return answer.result()  # it arrived at this moment
            raise RequestOverdueError(f"no answer within {timeout_s + GRACE_S:.0f} s") from error
        finally:
            self._waiting.pop(id(request), None)

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for their answer."""
        return len(self._waiting)

    # -- events

    def handle(self, event: ev.Event) -> None:
        """Pass one event to the core and carry out its effects; returns when that is done."""
        if self._owner == threading.get_ident():
            self._pending.append(event)
            return
        with self._turns:
            self._owner = threading.get_ident()
            try:
                self._pending.append(event)
                self._step_all()
                if self._is_due(self.core.next_deadline_s()):  # as for alternates, which are searched after the claims
                    self._pending.append(ev.Tick())
                    self._step_all()
            finally:
                self._owner = 0
            self._set_alarm(self.core.next_deadline_s())

    def inspect(self, question: Callable[[SchedulerCore], T]) -> T:
        """Call a function with the core while no event is processed; it must be short."""
        with self._turns:
            return question(self.core)

    def _step_all(self) -> None:
        while self._pending:
            self._step(self._pending.popleft())

    def _step(self, event: ev.Event) -> None:
        self.counters[type(event).__name__] += 1
        try:
            wanted = self.core.step(event, self.clock())
        except StepFailedError as error:
            for raised in error.errors:
                LOG.error("%s: the core failed on part of %s", event.cause, type(event).__name__, exc_info=raised)
            wanted = error.effects
            self._failed(event, error.of_event)
        except Exception as error:
            LOG.exception("%s: the core failed on %s; the event is lost", event.cause, type(event).__name__)
            self._failed(event, error)
            return
        self._carry_out(wanted)

    def _failed(self, event: ev.Event, error: Exception | None) -> None:
        """``error`` is None if the error was in a part beside the event."""
        self.counters["core_failures"] += 1
        if error is not None and isinstance(event, ev.RequestArrived):
            self._break(event.request, error)

    def _carry_out(self, wanted: Iterable[ef.Effect]) -> None:
        for effect in wanted:
            try:
                self._carry_out_one(effect)
            except Exception:
                LOG.exception("%s: effect %s was not carried out", effect.cause, type(effect).__name__)
                self.counters["effect_failures"] += 1

    def _carry_out_one(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Send():
                self._send(effect)
            case ef.Broadcast(cell, message):
                if (own := self.channels.get(cell)) is not None:
                    own.channel.broadcast(message)
            case ef.Answer() | ef.Fail():
                self._resolve(effect)
            case ef.RecordBuild() | ef.RecordNode():
                self._record(effect)
            case ef.ExamineChange():
                if self._sinks is not None:
                    self._sinks.examine(effect)
            case _:
                self._submit(effect)

    def _send(self, effect: ef.Send) -> None:
        message = effect.message
        if (own := self.channels.get(effect.cell)) is not None:
            own.channel.cast(effect.address, message)
        if isinstance(message, Claim) and effect.service_host and self._sinks is not None:
            self._sinks.check_service(message.claim_id, effect.cell, effect.service_host)

    def _submit(self, effect: Work | Wanted) -> None:
        assert self._sinks is not None, "start() must precede events that have effects"
        match effect:
            case ef.WriteAllocation() | ef.DeleteAllocation():
                self._sinks.writer.submit(effect)
            case _:
                self._sinks.reader.submit(effect)

    def _record(self, effect: ef.RecordBuild | ef.RecordNode) -> None:
        if self._sinks is not None:
            self._sinks.record(effect)

    def _resolve(self, outcome: Outcome) -> None:
        kind = "requests_answered" if isinstance(outcome, ef.Answer) else "requests_failed"
        self.counters["requests_previewed" if outcome.request.dry_run else kind] += 1
        waiting = self._waiting.get(id(outcome.arrived or outcome.request))
        if waiting is not None and _end(waiting, outcome):
            return
        self.counters["outcomes_unheard"] += 1
        if isinstance(outcome, ef.Answer) and outcome.claim_ids:
            name = outcome.request.request_id
            LOG.warning("The caller of %s does not wait any more; its allocations are deleted", name)
            self.counters["answers_unheard"] += 1
            self.handle(ev.AnswerUnheard(outcome.claim_ids, cause=outcome.cause))

    def _break(self, request: Request, error: Exception) -> None:
        waiting = self._waiting.get(id(request))
        if waiting is not None:
            _end(waiting, EngineBrokenError(f"{type(error).__name__}: {error}"))

    # -- time

    def _set_alarm(self, wanted_s: float | None) -> None:
        with self._alarm:
            self._alarm_at_s = wanted_s
            if wanted_s is not None and wanted_s < self._wakes_s:
                self._wakes_s = wanted_s
                self._alarm.notify()

    def _is_due(self, at_s: float | None) -> bool:
        return at_s is not None and at_s <= self.clock()

    def _ring(self) -> None:
        while self._wait_until_due():
            self.handle(ev.Tick())

    def _wait_until_due(self) -> bool:
        """Sleep until the time that the core has requested; False when the engine stops."""
        with self._alarm:
            while not self._stopped.is_set():
                at_s = self._alarm_at_s
                if self._is_due(at_s):
                    return True
                self._wakes_s = float("inf") if at_s is None else at_s
                self._alarm.wait(None if at_s is None else at_s - self.clock())
        return False

    # -- reports

    def status(self) -> Mapping[str, object]:
        """Counters and gauges of the engine."""
        return {
            "in_flight": self.in_flight,
            "events": dict(self.counters),
            "cells": {
                cell: {
                    "connected": own.channel.connected,
                    "address": own.channel.address,
                    "counters": dict(own.channel.counters),
                }
                for cell, own in list(self.channels.items())  # a reload may add channels
            },
        }


def _end(waiting: futures.Future[Outcome], end: Outcome | Exception) -> bool:
    """End the wait of a caller; False if the caller has an answer already, or does not wait any more."""
    try:
        if isinstance(end, Exception):
            waiting.set_exception(end)
        else:
            waiting.set_result(end)
    except futures.InvalidStateError:
        return False
    return True
