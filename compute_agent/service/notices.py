# SPDX-License-Identifier: Apache-2.0
"""Notices of the core as log lines."""

from __future__ import annotations

import logging
import time
from typing import Final

from compute_agent.effects import Notice, NoticeCode

LOG = logging.getLogger(__name__)

#: What repeats itself while something is down is logged this often.
REPEAT_EVERY_S = 60.0

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
        "nova-compute now reports; the claim stays and nova-compute decides",
    ),
    NoticeCode.TREE_MISSING: (
        logging.WARNING,
        "node %(node)s has no resource provider in Placement yet; nova-compute makes it when it starts",
    ),
    NoticeCode.READ_FAILED: (
        logging.WARNING,
        "node %(node)s: Placement does not answer: %(why)s. Check [placement] and the service; the "
        "agent goes on with what it knows and asks again",
    ),
    NoticeCode.UNSENDABLE: (logging.ERROR, "node %(node)s: cannot be told to schedulers: %(why)s"),
    NoticeCode.EPOCH_BEGUN: (
        logging.WARNING,
        "node %(node)s: goes on in epoch %(epoch)s, for a scheduler follows epoch %(asked)s of an earlier "
        "life. [compute_agent] state_path was lost and the clock was set back: check both",
    ),
    NoticeCode.EPOCH_REFUSED: (
        logging.ERROR,
        "node %(node)s: a scheduler asks to surpass epoch %(asked)s, which no agent ever had: ignored. "
        "Look for a stranger on the message queue (and set signing), then restart the scheduler",
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
    """Writes notices; those that repeat themselves once a minute for each node."""

    def __init__(self) -> None:
        self._written_at_s: dict[tuple[NoticeCode, str], float] = {}

    def write(self, notice: Notice) -> None:
        if notice.code in _REPEATING and not self._is_due(notice):
            return
        level, line = _LINES[notice.code]
        LOG.log(level, line, {"node": notice.node, "why": "", **notice.detail})

    def _is_due(self, notice: Notice) -> bool:
        key, now = (notice.code, notice.node), time.monotonic()
        due = now - self._written_at_s.get(key, float("-inf")) >= REPEAT_EVERY_S
        if due:
            self._written_at_s[key] = now
        return due
