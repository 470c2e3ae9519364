# SPDX-License-Identifier: Apache-2.0
"""Reads the state of nova-compute through nova-conductor while the tap is not connected.

==========  ===================================================================  ===========================
state       event                                                                next
==========  ===================================================================  ===========================
RESTING     the tap is away for ``after_s``, its record says up                  WATCHING
WATCHING    nova-compute reported again since                                    READING
WATCHING    its record says down                                                 RESTING
READING     nova-compute is down                                                 RESTING: the agent is told
READING     nova-conductor does not answer                                       READING: logged
READING     nova-conductor has not answered ``FAILURES_MAX`` times               RESTING: the agent is told
any         the tap is back                                                      RESTING
==========  ===================================================================  ===========================

The service record stays up for ``service_down_time`` after nova-compute has died, which is longer than ``after_s``.  A
record that is up therefore does not show that nova-compute runs; a record that *changes* after the tap was lost does.
Times of the record are only compared with one another, so the clocks of other machines do not matter.

``after_s`` is 0 where ``[compute_agent] source`` is "conductor".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from compute_agent.events import Member, TrackerReported
from compute_agent.service.agent import Agent, Do
from shared_scheduler.protocol.messages import Leaf

LOG = logging.getLogger(__name__)

#: The interval at which the thread checks whether a read is due.
CHECK_EVERY_S = 0.2
#: The interval of reads of the service record while nothing else is read.
PROBE_EVERY_S = 5.0
#: After so many failures in a row the agent has no source.
FAILURES_MAX = 3


class Record(Protocol):
    """One node as nova-conductor returned it."""

    node: str
    leaves: dict[str, Leaf]
    members: dict[str, Member]


class ComputeReader(Protocol):
    """``sources.conductor.ConductorReader``."""

    def seen_up(self) -> Hashable | None:
        """A value that changes with each report of nova-compute; None while its service record says down."""

    def nodes(self) -> Sequence[Record]: ...


@dataclass(frozen=True, slots=True)
class FallbackTimes:
    """In seconds; ``busy_s`` while claims are pending, ``idle_s`` otherwise."""

    after_s: float = 30.0
    busy_s: float = 1.0
    idle_s: float = 15.0


class Fallback:
    """One thread that polls nova-conductor."""

    def __init__(self, agent: Agent, reader: ComputeReader, times: FallbackTimes) -> None:
        self.times = times
        self._agent = agent
        self._reader = reader
        self._reading = False
        self._lost_at_s: float | None = None
        self._first_seen: Hashable | None = None  # None: not WATCHING
        self._failures = 0
        self._next_s = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fallback", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(CHECK_EVERY_S):
            try:
                self.turn(time.monotonic())
            except Exception as error:
                self.failed(error)

    def turn(self, now: float) -> None:
        """Do what is due at ``now``.

        :raises ConductorError: when nova-conductor cannot be read
        """
        lost_at_s = self._agent.tap_lost_at_s
        if lost_at_s != self._lost_at_s:
            self._lost_at_s = lost_at_s
            self._rest()
        if lost_at_s is None or now < self._due_s(lost_at_s):
            return
        self._next_s = now + PROBE_EVERY_S
        if not self._lives():
            return
        if not self._reading:
            LOG.warning(
                "the tap is not connected although nova-compute is up: reading through nova-conductor "
                "(degraded). Set [compute_agent] tap_enabled and restart nova-compute"
            )
        self._reading = True
        self._read()
        self._next_s = now + self._interval_s()

    def _lives(self) -> bool:
        seen = self._reader.seen_up()
        if seen is None:
            self._lost("nova-compute is down, as its service record says")
            return False
        if self._first_seen is None:
            self._first_seen = seen
        return self._reading or seen != self._first_seen

    def _due_s(self, lost_at_s: float) -> float:
        return max(self._next_s, lost_at_s + (0 if self._reading else self.times.after_s))

    def _read(self) -> None:
        for record in self._reader.nodes():
            report = TrackerReported(record.leaves, dict(record.members), complete=True)
            self._agent.put(Do(lambda node=record.node, told=report: self._told(node, told)))  # type: ignore[misc]
        self._failures = 0

    def _told(self, node: str, report: TrackerReported) -> None:
        self._agent.fallback_reported(node, report)

    def _interval_s(self) -> float:
        busy = any(core.ledger.pending for core in list(self._agent.cores.values()))
        return self.times.busy_s if busy else self.times.idle_s

    def failed(self, error: Exception) -> None:
        """Count a turn that raised ``error``."""
        self._failures += 1
        self._next_s = time.monotonic() + PROBE_EVERY_S
        if self._failures == FAILURES_MAX:
            LOG.warning("nova-conductor does not answer: %s: %s", type(error).__name__, error)
            self._lost("neither the tap nor nova-conductor answers")

    def _lost(self, why: str) -> None:
        if self._reading:
            self._agent.put(Do(lambda: self._agent.fallback_lost(why)))
        self._rest()

    def _rest(self) -> None:
        self._reading, self._first_seen = False, None
