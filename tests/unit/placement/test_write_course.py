# SPDX-License-Identifier: Apache-2.0
"""The course of one write, without Placement: what it sends next, and how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.core.allocation_merge import MAX_MERGES
from shared_scheduler.core.effects import ConsumerPolicy, WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.in_doubt_writes import WriteAttempt
from shared_scheduler.placement.own_records import OwnRecord
from shared_scheduler.placement.write_course import WriteCourse
from shared_scheduler.protocol.messages import Consumer

PART = {"target": {"VCPU": 1, "MEMORY_MB": 512}}
BASE = {"source": {"VCPU": 1, "MEMORY_MB": 512}}
ONE_PORT = {"agent": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}}
DEADLINE_S = 100.0


def effect(
    policy: ConsumerPolicy = ConsumerPolicy.NEW, known: Consumer | None = None, is_new: bool = False
) -> WriteAllocation:
    write = WriteAllocation("claim", "vm", PART, {}, "project", "user", policy, False, "req", DEADLINE_S)
    return replace(write, standing=known, is_new=is_new)


def stands(allocations: dict[str, dict[str, int]], generation: int) -> ConsumerAllocations:
    return ConsumerAllocations(allocations, generation, "project", "user")


def compared(
    course: WriteCourse, standing: ConsumerAllocations, now: float = 0.0, move: bool = False
) -> WriteCode | None:
    """What follows after the consumer was read.  ``move``: the option names the move of the server."""
    found = course.find(standing)
    merges = move and course.may_merge(standing, found, now)
    return course.compare(standing, found, now, OwnRecord.NONE, merges=merges)


def of_known() -> WriteCourse:
    """An evacuation that begins with what the table knows."""
    return WriteCourse.begin(effect(ConsumerPolicy.MERGE, Consumer(BASE, True, generation=1)))


def test_a_merged_write_knows_what_remains_if_it_is_taken_back() -> None:
    # given a move to whose server a port was attached
    course = WriteCourse.begin(effect())
    # when the consumer is read
    assert compared(course, stands(ONE_PORT, 1), move=True) is None
    # then both are written, and the port remains
    assert (course.next.allocations, course.next.generation) == (PART | ONE_PORT, 1)
    assert (course.base, course.made(WriteCode.UNREACHABLE)) == (ONE_PORT, 2)
    # and a lost answer is noticed: another scheduler may have written the same, so it is written once more
    course.replied(answered=False, may_arrive=True)
    assert compared(course, stands(PART | ONE_PORT, 2), move=True) is None
    assert (course.next.allocations, course.next.generation) == (PART | ONE_PORT, 2)


def test_a_merge_whose_answer_was_lost_is_written_if_no_time_is_left() -> None:
    course = of_known()
    course.replied(answered=False, may_arrive=False)
    assert compared(course, stands(BASE | PART, 2), now=DEADLINE_S) is WriteCode.WRITTEN
    assert course.made(WriteCode.WRITTEN) == 2


def test_a_write_is_merged_a_bounded_number_of_times() -> None:
    course = WriteCourse.begin(effect())
    for generation in range(1, MAX_MERGES + 1):
        assert compared(course, stands(ONE_PORT, generation), move=True) is None
    assert compared(course, stands(ONE_PORT, 9), move=True) is WriteCode.CONSUMER_CONFLICT


@pytest.mark.parametrize("change", [{"project_id": "other"}, {"user_id": "other"}], ids=["project", "user"])
def test_allocations_of_another_owner_are_not_merged(change: dict[str, str]) -> None:
    course = WriteCourse.begin(effect())
    assert compared(course, replace(stands(ONE_PORT, 1), **change), move=True) is WriteCode.CONSUMER_CONFLICT


def test_the_write_of_a_build_is_not_merged_because_its_server_moves_by_now() -> None:
    # given a build whose request another scheduler has got too, and has answered
    course = WriteCourse.begin(effect(is_new=True))
    # when its write meets what the server has while it is evacuated
    found = compared(course, stands(ONE_PORT, 4), move=True)
    # then it fails
    assert found is WriteCode.CONSUMER_CONFLICT


def test_a_write_that_knew_too_little_is_merged_with_what_stands() -> None:
    course = of_known()
    assert not course.needs_read
    assert (course.next.allocations, course.next.generation, course.base) == (BASE | PART, 1, BASE)
    assert compared(course, stands(BASE | ONE_PORT, 2)) is None
    assert (course.next.allocations, course.next.generation) == (BASE | PART | ONE_PORT, 2)
    assert course.base == BASE | ONE_PORT
    # what was read is not the word of the table any more
    assert compared(course, stands(BASE, 3)) is WriteCode.CONSUMER_CONFLICT


def test_a_part_that_has_arrived_without_an_answer_is_not_what_others_have() -> None:
    course = of_known()
    course.replied(answered=False, may_arrive=True)
    assert compared(course, stands(BASE | PART | ONE_PORT, 3)) is None
    assert (course.next.allocations, course.base) == (BASE | PART | ONE_PORT, BASE | ONE_PORT)


def test_what_another_scheduler_has_merged_for_the_same_evacuation_is_written_again() -> None:
    # given an evacuation that Placement has refused
    course = of_known()
    course.replied(answered=True, may_arrive=False)
    # when what it writes stands: then another scheduler has written it, and it remains if this write is taken back
    assert compared(course, stands(BASE | PART, 2)) is None
    assert (course.next.allocations, course.next.generation, course.base) == (BASE | PART, 2, BASE | PART)


@pytest.mark.parametrize("standing", [stands(BASE | PART, 2), stands(BASE | ONE_PORT, 2)], ids=["a twin", "a port"])
def test_a_merge_does_not_begin_anew_after_its_deadline(standing: ConsumerAllocations) -> None:
    course = of_known()
    course.replied(answered=True, may_arrive=False)
    assert compared(course, standing, now=DEADLINE_S) is WriteCode.PROVIDER_CONFLICT


def test_a_merge_that_finds_nothing_is_the_write_of_a_new_server() -> None:
    course = WriteCourse.begin(effect(ConsumerPolicy.MERGE))
    assert course.needs_read
    course.merge_with(ConsumerAllocations())
    assert (course.policy, course.next.generation, course.base) == (ConsumerPolicy.NEW, None, {})


@pytest.mark.parametrize(("now", "code"), [(0.0, None), (DEADLINE_S, WriteCode.WRITTEN)], ids=["in time", "too late"])
def test_what_either_scheduler_may_have_created_is_written_once_more(now: float, code: WriteCode | None) -> None:
    # given a write without an answer
    course = WriteCourse.begin(effect())
    course.replied(answered=False, may_arrive=True)
    # when what it wrote is found: then it is sent with that generation, or counts as written if there is no time
    assert compared(course, stands(PART, 1), now) is code
    assert (course.next.generation, course.made(WriteCode.WRITTEN), course.unfinished) == (1, 1, WriteCode.WRITTEN)
    # which only says that it stands: another request may have been answered with it
    assert course.is_found
    course.sending()
    assert not course.is_found


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_write_that_is_not_sent_any_more_has_made_the_generation_of_the_call_without_an_answer(
    in_a_batch: bool,
) -> None:
    # given a write without an answer, and a late write of an earlier attempt that it would replace
    course = WriteCourse.begin(effect(), unsure=in_a_batch, may_arrive=in_a_batch)
    if not in_a_batch:
        course.sending()
        course.replied(answered=False, may_arrive=True)
    earlier = WriteAttempt({"other": PART["target"]}, {}, 1)
    found = course.find(stands(dict(earlier.written), 1), [earlier])
    # when there is no time for that
    code = course.compare(stands(dict(earlier.written), 1), found, DEADLINE_S, OwnRecord.NONE, attempts=[earlier])
    # then what was sent makes the first generation, if it is carried out
    assert code is WriteCode.UNREACHABLE
    assert course.attempt(code).generation == 1
