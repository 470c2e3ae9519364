# SPDX-License-Identifier: Apache-2.0
"""Times and bounds of the agent's pure part.  Options fill in the times, the bounds are fixed."""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.protocol.limits import BEAT_INTERVAL_S, COUNT_MAX

#: Verdicts remembered, so that a claim that arrives twice is answered the same way.
MAX_RECENT_VERDICTS = 2048
#: Releases remembered that came before their claims.
MAX_EARLY_RELEASES = 2048
#: Schedulers that wait for a snapshot one by one; one more, and the next is broadcast to all.
MAX_WAITING_SCHEDULERS = 64
#: Consumers watched until their allocation is seen gone.
MAX_WATCHED_CONSUMERS = 1024
#: The highest epoch that a scheduler may ask an agent to surpass: half of the numbers that the protocol
#: has remain for the lives after it (epochs.py).  As milliseconds it is the year 146 million.
EPOCH_ASKED_MAX = COUNT_MAX // 2
#: How far above it the agent goes on at most.  As milliseconds it is a quarter of an hour: so far the epoch
#: may be ahead of the clock, which is what the next life begins with if the memory is lost again.
EPOCH_STEP_MAX = 2**20
#: New epochs that schedulers may make one node begin, for each is a snapshot to all and a write to disk.
EPOCHS_BURST = 4
EPOCHS_PER_S = 1 / 30


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator may change while the agent runs.  All in seconds."""

    beat_interval_s: float = BEAT_INTERVAL_S
    #: Placement is read in full this often (plus or minus a fifth) even if nothing happens: two calls of
    #: each of 10,000 agents are 33 a second.
    placement_poll_s: float = 600.0
    #: A pending claim this old makes the agent look in Placement, and again each time this passes.
    claim_check_after_s: float = 15.0
    #: After a consumer left the tracker: the first look, each next one after twice the time.
    first_look_s: float = 0.05
    #: ... and the longest wait: where nova-compute is slow to free an allocation the poll is far away.
    last_look_s: float = 120.0
    #: After Placement did not answer: bounds of the full-jitter wait.
    retry_first_s: float = 0.5
    retry_most_s: float = 30.0
