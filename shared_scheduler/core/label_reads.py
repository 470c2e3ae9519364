# SPDX-License-Identifier: Apache-2.0
"""How often the servers of a label are read before a request is refused, and what was found of late.

A *label read* (``spread_check.py``) finds the place of every server of a label that no agent reports as built.  Few
threads read, also for the checks of all other requests, so label reads are rare, and a label has one at a time.

The requests of the label that come after it use what it has found, and read only if they would be refused nevertheless.
One that comes while the answer is on its way, or when only other labels may be read, tries again after pauses that
double; the last one ends after the interval.  It waits somewhat longer if a request that came later has begun a label
read by then.  An answer is for all of them, also if the request that has read has ended by then, or has gone on without
it.

What was found may be wrong by then, as servers come and go.  Only requests use it that would be refused without it, and
those that find a host with it are checked before the answer.  So it leads to no wrong answer, and to no refusal that
lasts: it is forgotten after the interval, and then a request may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cachetools import FIFOCache

from shared_scheduler.protocol.rate_limits import TokenBucket, TokenBuckets

#: the time between two reads of a label, and the labels of which the last is known
LABEL_READ_INTERVAL_S, LABELS_MAX = 5.0, 4096
#: reads of all labels: a second, and at once
LABEL_READS_PER_S, LABEL_READS_BURST = 2.0, 20
#: the part of these that one project may have
PROJECT_PART = 0.5
#: an answer that has not come for so long is lost; until then the label is not read again
LABEL_READ_LOST_S = 60.0
#: how often a request waits for a label read, and the first pause; together longer than the interval
LABEL_READ_WAITS_MAX, LABEL_READ_PAUSE_S = 6, 0.1
#: how often more, each time for the last pause, while an answer is on its way
LATE_WAITS_MAX = 2
#: what was found is kept for so long, and of so many servers of all labels; of a label with more of them, nothing is
KEPT_S, KEPT_SERVERS_MAX = LABEL_READ_INTERVAL_S, 20_000


@dataclass(frozen=True, slots=True)
class Located:
    """Where the servers of a label are, as it was asked at ``asked_s``; the other fields have the same meaning as in
    ``CheckState``."""

    placed: Mapping[str, frozenset[str]]
    vacated: frozenset[tuple[str, str]]
    unsettled: frozenset[str]
    beside: Mapping[str, frozenset[str]]
    asked_s: float = 0.0

    def without(self, servers: Iterable[str]) -> Located:
        """The same for all other servers."""
        left = self.placed.keys() - frozenset(servers)
        return Located(
            {uuid: nodes for uuid, nodes in self.placed.items() if uuid in left},
            frozenset((uuid, node) for uuid, node in self.vacated if uuid in left),
            self.unsettled & left,
            {uuid: nodes for uuid, nodes in self.beside.items() if uuid in left},
            self.asked_s,
        )


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was found, and when."""

    located: Located
    at_s: float

    def size(self) -> int:
        """Its servers; a label without one has its part in the bound as well."""
        return max(1, len(self.located.placed))


class LabelReads:
    """When each label may be read, and what was found.  Labels are the uuids of their groups."""

    def __init__(self) -> None:
        self._of_label = TokenBuckets(1 / LABEL_READ_INTERVAL_S, 1, LABELS_MAX)
        self._of_project = TokenBuckets(LABEL_READS_PER_S * PROJECT_PART, LABEL_READS_BURST * PROJECT_PART, LABELS_MAX)
        self._of_all = TokenBucket(LABEL_READS_PER_S, LABEL_READS_BURST)
        self._kept: FIFOCache[str, _Kept] = FIFOCache(KEPT_SERVERS_MAX, getsizeof=_Kept.size)

    def may_begin(self, label: str, project: str, now: float) -> bool:
        """Whether it is time for a label read, which begins then."""
        # first: the interval of its label begins with a read only
        is_time = self._of_all.wait_s(now) == self._of_project.wait_s(project, now) == 0.0
        if not (is_time and self._of_label.take(label, now)):
            return False
        return self._of_project.take(project, now) and self._of_all.take(now)

    def keep(self, label: str, located: Located, now: float) -> None:
        """Keep what a read has found for the next requests of its label, unless a later read has told already."""
        before = self._kept.get(label)
        if before is not None and before.located.asked_s > located.asked_s:
            return
        self._kept.pop(label, None)
        kept = _Kept(located, now)
        if kept.size() <= KEPT_SERVERS_MAX:
            self._kept[label] = kept

    def kept(self, label: str, now: float) -> Located | None:
        """What a read has found of late; None if there was none."""
        kept = self._kept.get(label)
        return None if kept is None or now > kept.at_s + KEPT_S else kept.located


def pause_s(waits: int, is_under_way: bool = False) -> float | None:
    """How long a request that has waited so often for a label read waits again; None if it does not."""
    waits_max = LABEL_READ_WAITS_MAX + LATE_WAITS_MAX * is_under_way
    return LABEL_READ_PAUSE_S * 2.0 ** min(waits, LABEL_READ_WAITS_MAX - 1) if waits < waits_max else None
