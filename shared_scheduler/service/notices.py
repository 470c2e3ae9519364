# SPDX-License-Identifier: Apache-2.0
"""Writes events to the log that the core counts and operators must know, because the core does no I/O.

It runs periodically, so that one line sums up all events since the last one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.release import release
from shared_scheduler.service import inspection
from shared_scheduler.service.engine import Engine

LOG = logging.getLogger(__name__)

#: A condition that lasts for hours is logged once in this time.
AGAIN_S = 300.0
#: The number of nodes that one line names.
SHOWN_MAX = 10


class Notices:
    """One thread calls ``log_new`` periodically."""

    def __init__(self, engine: Engine, nodes_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._nodes_max = nodes_max
        self._clock = clock
        self._turned_away = 0
        self._turned_away_said_s = float("-inf")
        self._quarantined = 0
        self._second_agents_said_s = float("-inf")
        self._releases_due_s = clock() + AGAIN_S
        self._releases_said = frozenset[tuple[str, str]]()

    def log_new(self) -> None:
        """Log the events since the last call."""
        turned_away, quarantines, alone = self._engine.inspect(_seen)
        self._log_turned_away(turned_away)
        self._log_quarantined(quarantines, alone)
        self._log_second_agents()
        self._log_releases()

    def _log_turned_away(self, count: int) -> None:
        """Rejected nodes continue to send: every heartbeat counts."""
        now = self._clock()
        if count == self._turned_away or now - self._turned_away_said_s < AGAIN_S:
            return
        more, self._turned_away, self._turned_away_said_s = count - self._turned_away, count, now
        LOG.warning(
            "There are more compute nodes than this scheduler keeps (%d): %d messages and rows of further nodes "
            "were dropped, and these nodes are not selected. Raise [shared_scheduler] nodes_max and restart",
            self._nodes_max, more,
        )  # fmt: skip

    def _log_quarantined(self, count: int, alone: frozenset[str]) -> None:
        more, self._quarantined = count - self._quarantined, count
        if more:
            LOG.warning(
                "Compute nodes are quarantined because they refused several claims in a row ([shared_scheduler] "
                "refusals_max): %d since the last message; at present: %s",
                more, ", ".join(sorted(alone)) or "none",
            )  # fmt: skip

    def _log_second_agents(self) -> None:
        """The second agents continue to send: every heartbeat counts."""
        now, found = self._clock(), self._engine.inspect(inspection.second_agents)
        if not found or now - self._second_agents_said_s < AGAIN_S:
            return
        self._second_agents_said_s = now
        named = [f"node {one['node']} of host {one['host']}: an agent of host {one['other_host']} speaks for it too"
                 for one in found[:SHOWN_MAX]]  # fmt: skip
        LOG.error(
            "%d compute nodes have two agents, and the messages of the second one are dropped; give that machine a "
            "compute_id and a host of its own if it was cloned, otherwise examine it: %s", len(found), "; ".join(named),
        )  # fmt: skip

    def _log_releases(self) -> None:
        """Name the peers of other releases, again only when another release appears or one disappears."""
        now = self._clock()
        if now < self._releases_due_s:
            return
        self._releases_due_s = now + AGAIN_S
        found = inspection.releases(self._engine)
        others = {(role, told): n for role, counts in found.items() for told, n in counts.items() if told != release()}
        if others and others.keys() != self._releases_said:
            named = ", ".join(f"{count} {role} {told}" for (role, told), count in sorted(others.items()))
            LOG.warning("This scheduler has release %s, and there are %s; finish the upgrade", release(), named)
        self._releases_said = frozenset(others)


def _seen(core: SchedulerCore) -> tuple[int, int, frozenset[str]]:
    counters, quarantine = core.nodes.counters, core.quarantine
    turned_away = counters["messages_of_too_many_nodes"] + counters["rows_of_too_many_nodes"]
    return turned_away, quarantine.counters["quarantined"], quarantine.refusing
