# SPDX-License-Identifier: Apache-2.0
"""Durations and bounds of the agent's core.  Options set the durations; the bounds are fixed."""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.model.read_schedule import ReadTimes
from shared_scheduler.protocol.limits import HEARTBEAT_INTERVAL_S

#: Verdicts that are remembered, so that a claim that arrives twice gets the same verdict.
MAX_RECENT_VERDICTS = 2048
#: Releases that are remembered because they came before their claims.
MAX_EARLY_RELEASES = 2048
#: Schedulers that wait for their own snapshot.  If there are more, the next snapshot is broadcast.
MAX_WAITING_SCHEDULERS = 64
#: Consumers that are watched until a read shows that their allocation is gone.
MAX_WATCHED_CONSUMERS = 1024
#: From this age on, a claim for an instance that the tracker has counted before is no waiting resize to the same host.
SETTLED_AFTER_S = 1800.0
#: The same where no migration waits: nova-compute has audited the node since, and counts no failed build any more.
AUDITED_AFTER_S = 150.0
#: The largest step above the epoch that was asked for.  In milliseconds it is a quarter of an hour: the epoch may be
#: that far ahead of the clock, from which the next run starts if the state directory is lost again.
EPOCH_STEP_MAX = 2**20
#: Bound of the new epochs that schedulers can cause, because each costs a broadcast snapshot and a write to disk.
EPOCHS_BURST = 4
EPOCHS_PER_S = 1 / 30


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Durations that an operator may change while the agent runs, in seconds."""

    heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S
    #: The interval of full reads of Placement without a trigger, plus or minus a fifth.  Three calls of each of 10,000
    #: agents are 25 a second.
    placement_poll_s: float = 1200.0
    #: A pending claim makes the agent read Placement at this age and at each multiple of it.
    claim_check_after_s: float = 15.0
    #: After a consumer left the tracker: the wait before the first read, until the agent has learnt how long deletions
    #: take (``pending_deallocations.py``).  It doubles with each read.
    deallocation_read_first_s: float = 0.15
    #: ... and the longest wait.  It covers a nova-compute that is slow to delete; later only the poll reads.
    deallocation_read_max_s: float = 120.0
    #: Bounds of the wait with full jitter after Placement did not answer.
    retry_first_s: float = 0.5
    retry_most_s: float = 30.0

    @property
    def read_times(self) -> ReadTimes:
        """The durations of each kind of read of Placement."""
        return ReadTimes(self.placement_poll_s, self.retry_first_s, self.retry_most_s)
