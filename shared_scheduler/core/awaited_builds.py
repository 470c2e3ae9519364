# SPDX-License-Identifier: Apache-2.0
"""The servers that this scheduler has placed and whose builds have not ended.

An agent reports how a build ended.  A node without an agent reports nothing, a message may be lost, and a request may
fail before nova-compute has begun.  Therefore Nova's databases are read for a server whose end is due, at growing
intervals, until they show that it is active, that it failed for good, or that it is gone.

A scheduler that starts awaits the builds that its records show as unfinished (``resumed``).

A failed build is not the end: nova-conductor tries the next host.  An end that an agent has reported is not recorded
again from the databases.  A success that is reported by another host than the one on which the server was placed, and
any failure, does not end the wait, because the report may be of the next host, or false: the databases are read soon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cachetools import FIFOCache

from shared_scheduler.core.effects import Choice, ReadBuild, RecordBuild
from shared_scheduler.core.events import BuildRead, BuildsRead, BuildState, UnfinishedBuild
from shared_scheduler.core.step import Step, Timers

#: Servers that are awaited; beyond, the oldest is forgotten.
AWAITED_MAX = 16_384
#: Time from the placement, or from the last failure that an agent has reported, to each read.
READ_AFTER_S = (15.0, 30.0, 60.0, 120.0, 240.0, 600.0, 1200.0, 2400.0, 3600.0)
#: When a server is forgotten: the answer to the last read takes a while, and the database may not answer at once.
FORGOTTEN_AFTER_S = READ_AFTER_S[-1] + 900.0
#: The first of these reads for a node with an agent, which usually reports the end.
WITH_AGENT = READ_AFTER_S.index(240.0)

#: the kind of the timers
TIMER = "build"


@dataclass(slots=True)
class _Awaited:
    """``failed_on`` and ``built_on``: the hosts whose failures, or whose successes, are recorded already; ``reads``:
    the number of the next read."""

    cell: str
    node: str
    host: str
    placed_s: float
    since_s: float
    reads: int
    failed_on: set[str] = field(default_factory=set)
    built_on: set[str] = field(default_factory=set)


class AwaitedBuilds:
    """Counts ``builds_read`` and ``builds_forgotten``."""

    def __init__(self, timers: Timers, agent_speaks_for: Callable[[str], bool]) -> None:
        self.counters: Counter[str] = Counter()
        self._timers = timers
        self._agent_speaks_for = agent_speaks_for
        self._awaited: FIFOCache[str, _Awaited] = FIFOCache(AWAITED_MAX)

    def placed(self, step: Step, server: str, choice: Choice) -> None:
        """A server was placed: its build will end."""
        first = WITH_AGENT if self._agent_speaks_for(choice.node) else 0
        self._await(server, _Awaited(choice.cell, choice.node, choice.host, step.now, step.now, first))

    def resumed(self, step: Step, cell: str, node: str, build: UnfinishedBuild) -> None:
        """A server was placed before this scheduler started; its agent may have reported the end meanwhile."""
        if build.server not in self._awaited:
            placed_s = step.now - build.age_s
            self._await(build.server, _Awaited(cell, node, build.host, placed_s, step.now, 0, set(build.failed_on)))

    def _await(self, server: str, awaited: _Awaited) -> None:
        if server not in self._awaited and len(self._awaited) == AWAITED_MAX:
            self._timers.cancel((TIMER, self._awaited.popitem()[0]))
            self.counters["builds_forgotten"] += 1
        self._awaited[server] = awaited
        self._set_timer(server)

    def end_reported(self, step: Step, server: str, host: str, succeeded: bool) -> None:
        """An agent has reported an end, maybe again; this scheduler or another one records it."""
        awaited = self._awaited.get(server)
        if awaited is None:
            return
        known = awaited.built_on if succeeded else awaited.failed_on
        if succeeded and host == awaited.host:
            self._forget(server)
        elif host not in known:
            known.add(host)
            awaited.since_s, awaited.reads = step.now, 0
            self._set_timer(server)

    def on_timer(self, step: Step, server: str) -> None:
        """A read is due, or the last one has not shown the end."""
        awaited = self._awaited[server]
        if awaited.reads == len(READ_AFTER_S):
            self.counters["builds_forgotten"] += 1
            self._forget(server)
            return
        step.emit(ReadBuild(awaited.cell, server, step.now - awaited.placed_s, cause=step.cause))
        awaited.reads += 1
        self._set_timer(server)

    def read(self, step: Step, event: BuildsRead) -> None:
        """Record what the databases show and no agent has reported."""
        for build in event.builds:
            if (awaited := self._awaited.get(build.server)) is not None:
                self._record(step, awaited, build)
                if build.state != BuildState.UNDER_WAY:
                    self._forget(build.server)

    def _record(self, step: Step, awaited: _Awaited, build: BuildRead) -> None:
        for failure in build.failures:
            if failure.on_node and failure.host not in awaited.failed_on:
                self._emit(step, awaited, build.server, failure.host, failure.reason, failure.at_s)
                awaited.failed_on.add(failure.host)
        if build.state == BuildState.ACTIVE and build.host not in awaited.built_on:
            self._emit(step, awaited, build.server, build.host, "", build.at_s)
        elif build.state == BuildState.FAILED and build.failures and not self._has_begun(awaited, build):
            last = build.failures[-1]  # of nova-conductor
            self._emit(step, awaited, build.server, awaited.host, last.reason, last.at_s)

    @staticmethod
    def _has_begun(awaited: _Awaited, build: BuildRead) -> bool:
        """Whether any node has begun the build.  Of other hosts only the databases count: a report may be false."""
        return awaited.host in awaited.failed_on or any(failure.on_node for failure in build.failures)

    def _emit(self, step: Step, awaited: _Awaited, server: str, host: str, reason: str, at_s: float | None) -> None:
        self.counters["builds_read"] += 1
        node = awaited.node if host == awaited.host else ""
        step.emit(RecordBuild(node, host, server, not reason, reason, at_s, cause=step.cause))

    def _set_timer(self, server: str) -> None:
        awaited = self._awaited[server]
        due_s = (*READ_AFTER_S, FORGOTTEN_AFTER_S)[awaited.reads]
        self._timers.set((TIMER, server), awaited.since_s + due_s)

    def _forget(self, server: str) -> None:
        del self._awaited[server]
        self._timers.cancel((TIMER, server))
