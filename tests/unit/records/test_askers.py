# SPDX-License-Identifier: Apache-2.0
"""The end of a build has the ids of the request that placed the server, however many came after it."""

from __future__ import annotations

import pytest

from shared_scheduler.core.awaited_builds import AWAITED_MAX
from shared_scheduler.records import entries
from shared_scheduler.records.askers import NOBODY, PLACEMENTS_MAX, Asker, Askers
from tests.unit.records.test_entries import record


def test_the_newest_servers_are_remembered_and_no_more() -> None:
    # given as many servers as are awaited, and one more
    askers = Askers()
    for number in range(AWAITED_MAX + 1):
        askers.decided(record((f"i-{number}",), request_id=f"req-{number}"))

    # then all but the oldest are known
    assert askers.of("i-1", "cmp2") == Asker("req-1", "", "demo", "u")
    assert askers.of("i-0", "cmp2") == NOBODY


def test_a_request_without_a_host_asks_for_nothing_that_ends() -> None:
    askers = Askers()
    askers.decided(record(failure="no_valid_host", answer=()))

    assert askers.of("i-1", "cmp2") == NOBODY


def test_a_scheduler_that_starts_learns_from_the_records() -> None:
    # given a server that was placed twice before this scheduler started
    first, second = (record(request_id="req-global", local_request_id=name) for name in ("req-1", "req-2"))
    askers = Askers()
    askers.recorded(entries.entry(one, "sched1", at_s) for at_s, one in enumerate((first, second)))

    # then its end belongs to the second request
    assert askers.of("i-1", "cmp2") == Asker("req-2", "req-global", "demo", "u")


@pytest.mark.parametrize("host", ["cmp2", "cmp9"])
def test_an_end_belongs_to_the_request_that_named_its_host(host: str) -> None:
    # given a server that is placed again before the first host, or its alternate, has told how the build ended
    askers = Askers()
    askers.decided(record(request_id="req-1", answer=(("cmp2", "cmp9"),)))
    askers.decided(record(request_id="req-2", answer=(("cmp3", "cmp4"),)))

    # then the end on that host is that of the first request, and those elsewhere are those of the second
    assert askers.of("i-1", host).request_id == "req-1"
    assert [askers.of("i-1", other).request_id for other in ("cmp3", "cmp4", "cmp7")] == ["req-2"] * 3


def test_an_end_on_a_host_that_two_requests_named_belongs_to_the_newer_one() -> None:
    askers = Askers()
    for number in range(2 * PLACEMENTS_MAX):
        askers.decided(record(request_id=f"req-{number}"))

    assert askers.of("i-1", "cmp2").request_id == f"req-{2 * PLACEMENTS_MAX - 1}"


def test_each_server_of_a_request_has_hosts_of_its_own() -> None:
    # given two servers of one request; the other one is placed again elsewhere
    askers = Askers()
    askers.decided(record(("i-1", "i-2"), request_id="req-1", answer=(("cmp2",), ("cmp3",))))
    askers.decided(record(("i-2",), request_id="req-2", answer=(("cmp4",),)))

    assert [askers.of("i-2", host).request_id for host in ("cmp2", "cmp3", "cmp4")] == ["req-2", "req-1", "req-2"]
