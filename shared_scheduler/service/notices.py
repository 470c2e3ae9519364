# SPDX-License-Identifier: Apache-2.0
"""What the core only counts and operators have to know, as lines in the log: the core does no I/O.

Looked at now and then, so that a line sums up what has happened since the last one, however much that is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.service.loop import Engine

LOG = logging.getLogger(__name__)

#: How often counters are looked at.
LOOK_EVERY_S = 10.0
#: What goes on for hours is said once in this time.
AGAIN_S = 300.0


class Notices:
    """``look`` is called again and again by one thread."""

    def __init__(
        self, engine: Engine, nodes_max: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._nodes_max = nodes_max
        self._clock = clock
        self._turned_away = 0
        self._turned_away_said_s = float("-inf")
        self._quarantined = 0

    def look(self) -> None:
        """Say what has happened since the last look."""
        turned_away, quarantines, alone = self._engine.look(_seen)
        self._say_turned_away(turned_away)
        self._say_quarantined(quarantines, alone)

    def _say_turned_away(self, count: int) -> None:
        """Who is turned away goes on to speak: every beat counts."""
        now = self._clock()
        if count == self._turned_away or now - self._turned_away_said_s < AGAIN_S:
            return
        more, self._turned_away, self._turned_away_said_s = count - self._turned_away, count, now
        LOG.warning(
            "There are more compute nodes than this scheduler keeps (%d): %d messages and rows of further ones "
            "were dropped, and nothing is placed there. Raise [shared_scheduler] nodes_max and restart",
            self._nodes_max, more,
        )  # fmt: skip

    def _say_quarantined(self, count: int, alone: frozenset[str]) -> None:
        more, self._quarantined = count - self._quarantined, count
        if more:
            LOG.warning(
                "Compute nodes refused claim after claim ([shared_scheduler] refusals_max) and were left alone "
                "for a while, %d times since this was last looked at; at present: %s",
                more, ", ".join(sorted(alone)) or "none",
            )  # fmt: skip


def _seen(core: SchedulerCore) -> tuple[int, int, frozenset[str]]:
    counters, nodes = core.nodes.counters, core.nodes
    turned_away = counters["messages_of_too_many_nodes"] + counters["rows_of_too_many_nodes"]
    return turned_away, counters["quarantined"], nodes.quarantined
