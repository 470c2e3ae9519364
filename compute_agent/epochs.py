# SPDX-License-Identifier: Apache-2.0
"""Leaves an epoch that is older than the one that schedulers follow.

At its start the agent chooses an epoch above all earlier ones, from its state directory and the clock
(service/state_directory.py).  If the directory is lost and the clock was set back, schedulers follow a greater epoch
and ignore the messages of this run.  One of them then asks for a resync of the epoch that it follows, and the agent
starts a new epoch above it.

=========================  ==================================================================
the epoch asked for        effect
=========================  ==================================================================
not above ours             none: the message asks for a replay or for a snapshot
above ours                 a new epoch, a step above it, if the bucket has a token
above ours, no token       none; the scheduler asks again after a later heartbeat
above ``EPOCH_ASKED_MAX``  refused and logged: no clock and no number of restarts reaches it
=========================  ==================================================================

The step is random, up to ``EPOCH_STEP_MAX``.  An agent that loses its directory again may be asked for the same epoch,
by a scheduler that missed the run before.  With steps of one it would reach the epoch of that run, and schedulers that
follow that run would apply its messages.

A forged resync therefore costs one snapshot and moves the node to ``EPOCH_ASKED_MAX`` plus one step at most.  Each
later start adds one, so the numbers do not run out.  Schedulers that follow an epoch above ``EPOCH_ASKED_MAX`` give
it up when the node sends nothing else but heartbeats of an older one (``protocol/window.py``).  Use host_keys if others
can write to the message queue.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from compute_agent.agent_settings import EPOCH_STEP_MAX, EPOCHS_BURST, EPOCHS_PER_S
from shared_scheduler.protocol.limits import EPOCH_ASKED_MAX
from shared_scheduler.protocol.rate_limits import TokenBucket


class ResyncCase(Enum):
    """How a resync of an epoch is handled."""

    USUAL = "usual"
    SURPASS = "surpass"
    REFUSED = "refused"


class Epochs:
    """The epoch of one node; ``now`` is in seconds of a monotonic clock."""

    def __init__(self, epoch: int, rng: Random) -> None:
        self.epoch = epoch
        self._rng = rng
        self._bucket = TokenBucket(EPOCHS_PER_S, EPOCHS_BURST)

    def judge(self, asked: int, now: float) -> ResyncCase:
        """What to do about a resync of epoch ``asked``; takes a token for SURPASS."""
        if asked <= self.epoch:
            return ResyncCase.USUAL
        if asked > EPOCH_ASKED_MAX:
            return ResyncCase.REFUSED
        return ResyncCase.SURPASS if self._bucket.take(now) else ResyncCase.USUAL

    def surpass(self, asked: int) -> int:
        """The new epoch."""
        self.epoch = max(self.epoch, asked) + self._rng.randint(1, EPOCH_STEP_MAX)
        return self.epoch
