# SPDX-License-Identifier: Apache-2.0
"""Writes the notices of the core as log lines."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from compute_agent.effects import Notice, NoticeCode
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

_LINES: Final[dict[NoticeCode, tuple[int, str]]] = {
    NoticeCode.READY: (logging.INFO, "node %(node)s: ready, claims are judged (source: %(mode)s)"),
    NoticeCode.NOT_READY: (logging.WARNING, "node %(node)s: not ready, claims are refused: %(why)s"),
    NoticeCode.ACCEPTED: (logging.DEBUG, "node %(node)s: claim %(claim_id)s of %(consumer)s accepted"),
    NoticeCode.REFUSED: (
        logging.INFO,
        "node %(node)s: claim %(claim_id)s of %(consumer)s refused: %(reason)s %(detail)s",
    ),
    NoticeCode.ENDED: (
        logging.DEBUG,
        "node %(node)s: claim %(claim_id)s of %(consumer)s has ended: %(how)s %(why)s",
    ),
    NoticeCode.TOPOLOGY_IN_DOUBT: (
        logging.WARNING,
        "node %(node)s: NUMA or PCI of pending claim %(claim_id)s does not fit beside what "
        "nova-compute now reports; the claim stays pending and nova-compute decides",
    ),
    NoticeCode.TREE_MISSING: (
        logging.WARNING,
        "node %(node)s has no resource provider in Placement yet; nova-compute creates it when it starts",
    ),
    NoticeCode.READ_FAILED: (
        logging.WARNING,
        "node %(node)s: Placement does not answer: %(why)s. Check [placement] and the service; the "
        "agent uses what it read before and tries again",
    ),
    NoticeCode.UNSENDABLE: (logging.ERROR, "node %(node)s: part of its state cannot be sent to schedulers: %(why)s"),
    NoticeCode.EPOCH_BEGUN: (
        logging.WARNING,
        "node %(node)s: continues in epoch %(epoch)s, because a scheduler follows epoch %(asked)s of an earlier "
        "run. [compute_agent] state_path was lost and the clock was set back: check both",
    ),
    NoticeCode.EPOCH_REFUSED: (
        logging.ERROR,
        "node %(node)s: a scheduler asks for an epoch above %(asked)s, which no agent can have had: ignored. "
        "Check who else can write to the message queue, use host_keys, then restart the scheduler",
    ),
}
_REPEATING: Final = frozenset(
    {
        NoticeCode.TREE_MISSING,
        NoticeCode.READ_FAILED,
        NoticeCode.TOPOLOGY_IN_DOUBT,
        NoticeCode.EPOCH_REFUSED,
    }
)


class NoticeLog:
    """Writes notices.  Those of a repeating kind are written at most once a minute for each node."""

    def __init__(self) -> None:
        self._repeating = RateLimitedLog(LOG)
        #: by code
        self.counts: Counter[str] = Counter()

    def write(self, notice: Notice) -> None:
        """Log one line."""
        self.counts[notice.code.value] += 1
        level, line = _LINES[notice.code]
        line += " [%(cause)s]"
        detail = {"node": notice.node, "why": "", **notice.detail, "cause": notice.cause}
        if notice.code in _REPEATING:
            self._repeating.write(level, (notice.code, notice.node), line, detail)
        else:
            LOG.log(level, line, detail)
