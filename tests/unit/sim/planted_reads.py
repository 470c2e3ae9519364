# SPDX-License-Identifier: Apache-2.0
"""Planted bugs as in ``planted.py``, of reads that need a world of their own: each is caught there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared_scheduler.sim import orphan_sweeps
from shared_scheduler.sync import orphan_search
from shared_scheduler.sync.orphan_search import OrphanSearch, Share, Suspect
from shared_scheduler.sync.refusal_ages import RefusalAges
from shared_scheduler.sync.shared_read import SharedRead
from tests.unit.sim.planted import bug

# -- the search for orphans


@bug("left_is_found")
def search_as_before_the_review(patch: pytest.MonkeyPatch) -> None:
    """Ten checks a sweep, of 200 servers, the newest first, and every scheduler checks the same ones (D5)."""

    patch.setattr(orphan_sweeps, "LISTED_MAX", 200)
    patch.setattr(orphan_search, "CHECKS_A_SWEEP", 10)
    patch.setattr(Share, "rank", lambda self, server: 1)
    check_the_newest_first.patch(patch)


@bug("left_is_found")
def check_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    """The servers that came to cell 0 last are checked first, so others wait behind each new one."""

    def order(self: OrphanSearch[None], suspect: Suspect[None]) -> tuple[int, int]:
        return self.of(suspect).tries, -self._places[suspect]

    patch.setattr(OrphanSearch, "_order", order)


@bug("left_is_found")
def check_what_all_others_check(patch: pytest.MonkeyPatch) -> None:
    """Every scheduler checks the same servers, so all of them check no more than one."""
    patch.setattr(Share, "rank", lambda self, server: 0)


@bug("left_is_found")
def check_again_before_the_others(patch: pytest.MonkeyPatch) -> None:
    """Second checks of older servers come before first ones of newer ones, whoever has these in its share."""

    def order(self: OrphanSearch[None], suspect: Suspect[None]) -> tuple[int, int]:
        return -self.of(suspect).tries, self._places[suspect]

    patch.setattr(OrphanSearch, "_order", order)
    patch.setattr(OrphanSearch, "_mixed", lambda self, due: due)
    patch.setattr(Share, "rank", lambda self, server: 0)


@bug("left_is_found")
def check_all_others_before_a_second_time(patch: pytest.MonkeyPatch) -> None:
    """First checks of the shares of others come before second ones of the own share."""

    def due(self: OrphanSearch[None], now: float, share: Share, _has_turn: object) -> Sequence[Suspect[None]]:
        due = [each for each in self._places if self.of(each).is_due(now)]
        due.sort(key=lambda each: (self.of(each).tries, share.rank(each.server) > 0, self._places[each]))
        return due[: orphan_search.CHECKS_A_SWEEP]

    patch.setattr(OrphanSearch, "due", due)


SEARCHES = (
    search_as_before_the_review,
    check_the_newest_first,
    check_what_all_others_check,
    check_again_before_the_others,
)
#: those that find late writes too late
REPEATED_SEARCHES = (check_all_others_before_a_second_time,)


# -- the reads that a refusal waits for


@bug("few_reads")
def read_anew_for_each_refusal(patch: pytest.MonkeyPatch) -> None:
    """Each refusal waits for a read of the list of nodes that begins after it (D8)."""
    patch.setattr(RefusalAges, "max_age_s", lambda self, now: 0.0)


@bug("few_reads")
def share_no_read_that_has_ended(patch: pytest.MonkeyPatch) -> None:
    """A refusal shares the read that is in flight, and none that has ended a moment ago."""

    def wanted(self: SharedRead, now: float, max_age_s: float) -> int:
        self.newest_s, newest_s = float("-inf"), self.newest_s
        number = real(self, now, max_age_s)
        self.newest_s = newest_s
        return number

    real = SharedRead.wanted
    patch.setattr(SharedRead, "wanted", wanted)


@bug("no_is_checked")
def believe_the_last_read(patch: pytest.MonkeyPatch) -> None:
    """In a storm of refusals, any read that has ended is young enough."""
    real = RefusalAges.max_age_s
    patch.setattr(RefusalAges, "max_age_s", lambda self, now: real(self, now) and float("inf"))


@bug("no_is_checked")
def wait_for_no_read(patch: pytest.MonkeyPatch) -> None:
    """A refusal asks for a read, and does not wait for it."""

    def wanted(self: SharedRead, now: float, max_age_s: float) -> int:
        real(self, now, max_age_s)
        return self.ended

    real = SharedRead.wanted
    patch.setattr(SharedRead, "wanted", wanted)


READS = (
    read_anew_for_each_refusal,
    share_no_read_that_has_ended,
    believe_the_last_read,
    wait_for_no_read,
)
