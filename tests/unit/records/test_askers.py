# SPDX-License-Identifier: Apache-2.0
"""The end of a build has the ids of the request that placed the server, however many came after it."""

from __future__ import annotations

from shared_scheduler.core.awaited_builds import AWAITED_MAX
from shared_scheduler.records import entries
from shared_scheduler.records.askers import NOBODY, Asker, Askers
from tests.unit.records.test_entries import record


def test_the_newest_servers_are_remembered_and_no_more() -> None:
    # given as many servers as are awaited, and one more
    askers = Askers()
    for number in range(AWAITED_MAX + 1):
        askers.decided(record((f"i-{number}",), request_id=f"req-{number}"))

    # then all but the oldest are known
    assert askers.of("i-1") == Asker("req-1", "", "demo", "u")
    assert askers.of("i-0") == NOBODY


def test_a_request_without_a_host_asks_for_nothing_that_ends() -> None:
    askers = Askers()
    askers.decided(record(failure="no_valid_host", answer=()))

    assert askers.of("i-1") == NOBODY


def test_a_scheduler_that_starts_learns_from_the_records() -> None:
    # given a server that was placed twice before this scheduler started
    first, second = (record(request_id="req-global", local_request_id=name) for name in ("req-1", "req-2"))
    askers = Askers()
    askers.recorded(entries.entry(one, "sched1", at_s) for at_s, one in enumerate((first, second)))

    # then its end belongs to the second request
    assert askers.of("i-1") == Asker("req-2", "req-global", "demo", "u")
