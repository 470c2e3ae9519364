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


def reads_of_deletions(pending: PendingDeallocations, take_s: float, count: int) -> list[int]:
    """How many reads each of some deletions needs, one after the other, that take this time."""
    needed = []
    for number in range(count):
        begun_s = number * 1000.0
        due_s, reads = pending.add("c", begun_s), 0
        while due_s is not None:
            reads += 1
            due_s = pending.note_read({"c"} if due_s < begun_s + take_s else set(), due_s)
        needed.append(reads)
    return needed


def test_the_first_read_comes_when_deletions_on_this_node_have_usually_ended() -> None:
    # given a nova-compute that takes longer for a deletion than the agent waits at first, and one that is quick
    slow, quick = PendingDeallocations(GONE_SOON), PendingDeallocations(GONE_SOON)
    # then the agent learns when to read
    assert reads_of_deletions(slow, 3.3, 3) == [3, 2, 2]
    assert sum(reads_of_deletions(slow, 3.3, 100)) <= 125
    # and does not wait longer than necessary
    reads_of_deletions(quick, 0.4, 100)
    assert 0.3 <= quick.first_s <= 0.6


def test_a_migration_that_holds_its_source_for_long_does_not_delay_the_reads_of_deletions() -> None:
    pending = PendingDeallocations(GONE_SOON)
    for number in range(20):
        due_s = pending.add("migration", number * 1000.0)
        for _ in range(3):
            assert due_s is not None
            due_s = pending.note_read({"migration"}, due_s)
        assert due_s is not None
        pending.note_read(set(), due_s)
    assert pending.first_s == GONE_SOON.deallocation_read_first_s


def test_a_consumer_that_is_gone_is_not_watched_any_more() -> None:
    pending = PendingDeallocations(GONE_SOON)
    pending.add("c", 0.0)
    assert pending.note_read(set(), 0.5) is None
