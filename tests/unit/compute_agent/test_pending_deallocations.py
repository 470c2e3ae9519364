# SPDX-License-Identifier: Apache-2.0
"""Consumers whose allocations the agent reads until Placement has deleted them."""

from __future__ import annotations

from compute_agent.agent_settings import AgentSettings
from compute_agent.pending_deallocations import PendingDeallocations

GONE_SOON = AgentSettings(deallocation_read_first_s=1.0, deallocation_read_max_s=8.0)


def test_reads_are_twice_as_far_apart_each_time_and_end() -> None:
    pending = PendingDeallocations(GONE_SOON)
    reads = [pending.add("c", 0.0)]
    while (due_s := reads[-1]) is not None:
        reads.append(pending.note_read({"c"}, due_s))
    assert reads == [1.0, 3.0, 7.0, 15.0, None]


def test_a_read_before_a_consumer_is_due_does_not_shorten_its_watch() -> None:
    # given a consumer that is watched
    pending = PendingDeallocations(GONE_SOON)
    pending.add("patient", 0.0)

    # when Placement is read many times for other consumers, which are gone at once
    for number in range(20):
        pending.add(f"hasty-{number}", number / 100)
        due_s = pending.note_read({"patient"}, number / 100 + 0.001)

    # then the read of the first consumer is due when it was
    assert due_s == 1.0


def test_a_consumer_that_is_gone_is_not_watched_any_more() -> None:
    pending = PendingDeallocations(GONE_SOON)
    pending.add("c", 0.0)
    assert pending.note_read(set(), 0.5) is None
