# SPDX-License-Identifier: Apache-2.0
"""Leaving an epoch of the past.

A life of the agent takes an epoch greater than all before from its memory and the clock
(service/state.py).  If the memory is lost and the clock was set back, schedulers follow a greater
epoch and believe nothing that this life says.  One of them then asks for a resync of the epoch that it
follows, and the agent goes on above it.

==============================  =================================================================
the epoch asked for             what follows
==============================  =================================================================
not above ours                  nothing: it is an ask for a replay or for a snapshot
above ours                      a new epoch, a step above it, if the bucket has a token
the same, but no token          nothing; the scheduler asks again after a later beat
above ``EPOCH_ASKED_MAX``       refused and logged: no clock and no row of lives leads there
==============================  =================================================================

The step is drawn, up to ``EPOCH_STEP_MAX``.  A life that loses its memory again may be told the same
epoch, by a scheduler that did not hear of the life before; steps of one would lead it where that life
was, and who follows that one would take its messages for news.

So one forged ask costs a snapshot and moves the node no further than ``EPOCH_ASKED_MAX`` and a step,
from where each new life adds one: the numbers do not run out.  Only a forged ask for one of the highest
epochs *and* the loss of the state directory after it leave a node that old schedulers do not believe
until they are restarted.  Where strangers may write to the message queue, signing is the answer.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from compute_agent.settings import EPOCH_ASKED_MAX, EPOCH_STEP_MAX, EPOCHS_BURST, EPOCHS_PER_S
from shared_scheduler.protocol.bucket import TokenBucket


class Ask(Enum):
    """What an ask for an epoch comes to."""

    USUAL = "usual"
    SURPASS = "surpass"
    REFUSED = "refused"


class Epochs:
    """The epoch of one node; ``now`` is in seconds of a monotonic clock."""

    def __init__(self, epoch: int, rng: Random) -> None:
        self.epoch = epoch
        self._rng = rng
        self._bucket = TokenBucket(EPOCHS_PER_S, EPOCHS_BURST)

    def judge(self, asked: int, now: float) -> Ask:
        """What to do about a resync of epoch ``asked``; takes a token for SURPASS."""
        if asked <= self.epoch:
            return Ask.USUAL
        if asked > EPOCH_ASKED_MAX:
            return Ask.REFUSED
        return Ask.SURPASS if self._bucket.take(now) else Ask.USUAL

    def surpass(self, asked: int) -> int:
        """The new epoch."""
        self.epoch = max(self.epoch, asked) + self._rng.randint(1, EPOCH_STEP_MAX)
        return self.epoch
