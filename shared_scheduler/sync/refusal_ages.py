# SPDX-License-Identifier: Apache-2.0
"""How old a read may be that a refusal waits for.  Pure."""

from __future__ import annotations

from shared_scheduler.protocol.rate_limits import TokenBucket

#: Refusals that may start reads of their own at once, and then per second.  The others share a read of the last second.
REFUSALS_BURST = 10
REFUSALS_PER_S = 1.0
SHARED_S = 1.0


class RefusalAges:
    """Refusals are checked by reads that begin after them, except if there are many."""

    def __init__(self) -> None:
        self._own_reads = TokenBucket(REFUSALS_PER_S, REFUSALS_BURST)

    def max_age_s(self, now: float) -> float:
        """How long before this refusal its reads may have begun."""
        return 0.0 if self._own_reads.take(now) else SHARED_S
