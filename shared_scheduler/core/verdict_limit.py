# SPDX-License-Identifier: Apache-2.0
"""How long a request waits for an agent before it claims another host.

The limit follows the answers of the agents as TCP's retransmission timeout follows the round trips (RFC 6298): a
smoothed time plus four times its smoothed deviation, doubled for each agent that was late for the same server.  One
estimate serves all agents, because most nodes get a claim too rarely for one of their own.  Two rules keep one agent,
which is frozen or takes its time on purpose, from raising it for the others:

* A slow answer takes more than a third of the limit.  The slow answers of one agent count once, until another agent is
  slow.  Quicker answers cannot raise the limit, in whatever order they come: the time and four deviations are at most
  2.8 times the longest of them.
* A late answer counts as at most twice the limit, so a fleet that is slow as a whole is followed within a few answers.
"""

from __future__ import annotations

#: The limit before the first answer: RFC 6298, section 2.1.
FIRST_S = 1.0
#: No shorter limit: pauses of a loaded machine are no reason to claim another host.
SHORTEST_S = 0.18
#: Weights of the newest answer in the time and in its deviation, and the number of deviations: RFC 6298, section 2.3.
ALPHA, BETA, K = 1 / 8, 1 / 4, 4
#: A late answer counts as at most so many limits.
LATE_MAX = 2.0
#: An answer is slow if it takes more than this part of the limit.
SLOW_PART = 1 / 3


class VerdictLimit:
    """The estimate; times in seconds."""

    def __init__(self, longest_s: float) -> None:
        """``longest_s``: after this time an agent does not answer at all (``verdict_timeout_s``)."""
        self._longest_s = longest_s
        self._answer_s = 0.0
        self._deviation_s = 0.0
        self._limit_s = min(FIRST_S, longest_s)
        self._last_slow = ""

    def after(self, late: int = 0) -> float:
        """The limit for a claim of a server for which ``late`` agents were late already; at most ``longest_s``."""
        return float(min(self._limit_s * 2**late, self._longest_s))

    def answered(self, node: str, took_s: float) -> None:
        """The agent of ``node`` answered a claim after ``took_s``, in time or late."""
        if took_s > SLOW_PART * self._limit_s:
            if node == self._last_slow:
                return
            self._last_slow = node
        self._measured(min(took_s, LATE_MAX * self._limit_s))

    def _measured(self, took_s: float) -> None:
        if not self._answer_s:
            self._answer_s, self._deviation_s = took_s, took_s / 2
        else:
            self._deviation_s += BETA * (abs(took_s - self._answer_s) - self._deviation_s)
            self._answer_s += ALPHA * (took_s - self._answer_s)
        self._limit_s = min(max(SHORTEST_S, self._answer_s + K * self._deviation_s), self._longest_s)
