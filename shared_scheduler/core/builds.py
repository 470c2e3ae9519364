# SPDX-License-Identifier: Apache-2.0
"""The ends of builds, which one of the schedulers records.

The agent names the scheduler whose claim placed the instance.  If that one has left, or is not known, the first of the
live schedulers records the end.  Two schedulers that differ about who is alive may both record it; a reader sees it
twice, which is harmless, and nobody waits for the other.

An agent sends each end, and later a heartbeat of the agent carries it once more.  This scheduler remembers those that
it has recorded.  Ends of past epochs are dropped, because anybody who reads the broker can send them again.  What no
agent reports is read from Nova's databases (``awaited_builds.py``).
"""

from __future__ import annotations

from collections import Counter

from cachetools import FIFOCache

from shared_scheduler.core.awaited_builds import AwaitedBuilds
from shared_scheduler.core.effects import RecordBuild
from shared_scheduler.core.peers import Peers
from shared_scheduler.core.scheduler_settings import Identity
from shared_scheduler.core.step import Step
from shared_scheduler.protocol.messages import BuildResult, Heartbeat
from shared_scheduler.protocol.rate_limits import TokenBuckets
from shared_scheduler.table.host_table import HostTable

#: Ends of builds of one node that are recorded: a hundred at once, or one a second for long.
BUILDS_PER_S, BUILDS_BURST = 1.0, 128
#: Ends of builds that are remembered, so that one that arrives again is not recorded again.
REMEMBERED_MAX = 16_384


class Builds:
    """Selects the ends of builds that this scheduler records.

    Counts ``builds_recorded``, ``builds_left_out`` and ``builds_of_past_epochs``.
    """

    def __init__(self, identity: Identity, table: HostTable, peers: Peers, awaited: AwaitedBuilds) -> None:
        self.counters: Counter[str] = Counter()
        self._identity = identity
        self._table = table
        self._peers = peers
        self._buckets = TokenBuckets(BUILDS_PER_S, BUILDS_BURST, REMEMBERED_MAX)
        self._awaited = awaited
        #: node, epoch and number of those that were recorded
        self._recorded: FIFOCache[tuple[str, int, int], None] = FIFOCache(REMEMBERED_MAX)

    def heard(self, step: Step, cell: str, heartbeat: Heartbeat) -> None:
        """Handle the ends of builds that a heartbeat of the node's own agent carries once more."""
        row = self._table.row_of(heartbeat.node)
        for end in heartbeat.ends if row is not None and row.host == heartbeat.host else ():
            step.trigger = end
            self.ended(step, cell, end)

    def ended(self, step: Step, cell: str, result: BuildResult) -> None:
        """Handle the end of a build on a known node."""
        row = self._table.row_of(result.node)
        if row is None:
            return
        if result.epoch < row.epoch:
            self.counters["builds_of_past_epochs"] += 1
            return
        key = (result.node, result.epoch, result.number)
        if key in self._recorded:  # its server may have been placed once more since
            return
        self._awaited.end_reported(step, result.consumer, row.host, result.succeeded)
        if not self._is_ours(cell, result.scheduler):
            return
        if not self._buckets.take(row.node, step.now):
            self.counters["builds_left_out"] += 1
            return
        if result.number:  # a release that sends an end once does not number it
            self._recorded[key] = None
        self.counters["builds_recorded"] += 1
        step.emit(RecordBuild(
            row.node, row.host, result.consumer, result.succeeded, result.reason, cause=step.cause,
        ))  # fmt: skip

    def _is_ours(self, cell: str, scheduler: str) -> bool:
        live = self._peers.live(cell)
        return self._identity.address(cell) == (scheduler if scheduler in live else live[0])
