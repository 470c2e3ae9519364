# SPDX-License-Identifier: Apache-2.0
"""What a delete leaves, and what it tells of others."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core.effects import DeleteAllocation
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.delete_course import DeleteCourse
from shared_scheduler.protocol.messages import Allocations

SOURCE: Allocations = {"source": {"VCPU": 1}}
TARGET: Allocations = {"target": {"VCPU": 1}}
PORT: Allocations = {"port": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}}
#: takes a first write back, which was answered
FIRST = DeleteAllocation("claim", "server", TARGET, "req", generation=1, stood=True)
#: takes a merge back
MERGE = DeleteAllocation("claim", "server", SOURCE | TARGET, "req", SOURCE, generation=2, stood=True)


def read(effect: DeleteAllocation, allocations: Allocations, generation: int | None) -> DeleteCourse:
    """A delete that has read its consumer once."""
    course = DeleteCourse.begin(effect)
    course.compare(ConsumerAllocations(allocations, generation))
    return course


def test_what_stands_as_written_is_replaced_by_what_was_before() -> None:
    assert read(FIRST, TARGET, 1).rest == {}
    assert read(MERGE, SOURCE | TARGET, 2).rest == SOURCE


def test_of_a_merge_to_which_others_have_added_only_its_part_is_removed() -> None:
    course = read(MERGE, SOURCE | TARGET | PORT, 3)
    assert course.rest == SOURCE | PORT
    assert course.is_changed and course.is_news


def test_what_others_have_changed_stays_if_it_contains_the_part() -> None:
    course = read(FIRST, TARGET | PORT, 2)
    assert course.rest is None
    answer = course.ended()
    assert (answer.gone, answer.left_alone) == (False, True)


def test_what_others_have_replaced_is_gone() -> None:
    course = read(FIRST, SOURCE, 2)
    assert course.rest is None and course.ended().gone


def test_a_change_that_is_recorded_is_no_news() -> None:
    assert not read(replace(FIRST, noted=2), TARGET | PORT, 2).is_news


def test_others_have_removed_a_write_that_stood() -> None:
    assert read(FIRST, {}, None).is_removed
    assert not read(replace(FIRST, stood=False), {}, None).is_removed


def test_what_an_own_call_without_an_answer_has_left_is_no_change_of_others() -> None:
    # given a call that puts back what was before the merge, and gets no answer
    course = read(MERGE, SOURCE | TARGET, 2)
    course.putting_back(SOURCE)
    # when it was carried out
    course.compare(ConsumerAllocations(SOURCE, 3))
    # then nothing is left to delete
    assert not course.is_news and not course.is_removed
    assert course.was_called and course.rest is None and course.ended().gone


def test_a_merge_that_was_not_carried_out_is_no_change_by_others() -> None:
    # given what stood before a merge whose write got no answer
    course = read(replace(MERGE, stood=False), SOURCE, 1)
    # then nothing is to be deleted, and nobody has changed anything
    assert course.ended().gone
    assert not course.is_news
    # but whoever removes what was merged makes a later generation
    assert read(MERGE, SOURCE, 3).is_news


def test_what_a_merge_may_never_have_found_is_no_change_by_others() -> None:
    # given a merge that was never answered, and of which nothing stands
    lost = DeleteAllocation("claim", "server", TARGET, "req")
    assert not read(lost, SOURCE, 3).is_news
    # but what was added to it is one
    assert read(lost, TARGET | PORT, 3).is_news
