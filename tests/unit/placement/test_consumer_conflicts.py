# SPDX-License-Identifier: Apache-2.0
"""The table of consumer consumer_conflicts, row by row."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from shared_scheduler.core.effects import ConsumerPolicy
from shared_scheduler.model.resources import same_allocations
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.consumer_conflicts import ConflictAction, ConflictCase, ConsumerAllocations
from shared_scheduler.placement.in_doubt_writes import WriteAttempt

SOURCE = {"node1": {"VCPU": 2, "MEMORY_MB": 512}, "shared": {"DISK_GB": 10}}
TARGET = {"node2": {"VCPU": 2, "MEMORY_MB": 512}, "shared": {"DISK_GB": 10}}

allocations = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.dictionaries(st.sampled_from(["VCPU", "DISK_GB"]), st.integers(1, 9), min_size=1),
    max_size=4,
)


def test_an_evacuation_holds_both_hosts_and_shared_storage_once() -> None:
    both = consumer_conflicts.union(SOURCE, TARGET)
    assert both == {
        "node1": {"VCPU": 2, "MEMORY_MB": 512},
        "node2": {"VCPU": 2, "MEMORY_MB": 512},
        "shared": {"DISK_GB": 10},
    }


def test_nova_and_we_merge_alike() -> None:
    from nova.scheduler.client import report

    standing = {name: {"resources": part} for name, part in SOURCE.items()}
    wanted = {"allocations": {name: {"resources": part} for name, part in TARGET.items()}}
    theirs = report._move_operation_alloc_request(standing, wanted)["allocations"]
    ours = consumer_conflicts.union(SOURCE, TARGET)
    assert {name: part["resources"] for name, part in theirs.items()} == ours


@given(allocations, allocations)
def test_a_union_keeps_all_existing_allocations(
    standing: dict[str, dict[str, int]], wanted: dict[str, dict[str, int]]
) -> None:
    both = consumer_conflicts.union(standing, wanted)
    assert same_allocations({name: both[name] for name in standing}, standing)
    assert set(both) == set(standing) | set(wanted)


@given(allocations)
def test_added_amounts_are_found_again(standing: dict[str, dict[str, int]]) -> None:
    assert same_allocations(consumer_conflicts.without(standing, standing), {})
    assert consumer_conflicts.holds(standing, standing) is bool(standing)


def held(allocations: dict[str, dict[str, int]], owner: str = "us", times: int = 1) -> ConsumerAllocations:
    """By one project's consumer that was written so often."""
    return ConsumerAllocations(allocations, times, owner, owner)


def test_new() -> None:
    wanted = held(TARGET)
    assert consumer_conflicts.find_new(ConsumerAllocations(), wanted) is ConflictCase.NOTHING
    assert consumer_conflicts.find_new(held(TARGET), wanted) is ConflictCase.UNCLEAR
    assert consumer_conflicts.find_new(held(TARGET, times=2), held(TARGET, times=2)) is ConflictCase.UNCLEAR
    assert consumer_conflicts.find_new(held(TARGET, times=2), wanted) is ConflictCase.TWIN
    assert consumer_conflicts.find_new(held(TARGET), wanted, unsure=False) is ConflictCase.TWIN
    assert consumer_conflicts.find_new(held(SOURCE), wanted) is ConflictCase.FOREIGN
    assert consumer_conflicts.find_new(held(SOURCE), wanted, (WriteAttempt(SOURCE, {}, 1),)) is ConflictCase.OWN_ATTEMPT


def test_what_another_scheduler_wrote_last_is_no_own_attempt() -> None:
    # given a scheduler whose first write has no answer, and another one, with the same request, that has written there
    # in the place of a write of its own
    attempt, twin = WriteAttempt(SOURCE, {}, 1), ConsumerAllocations(SOURCE, 2, "us", "us")
    assert consumer_conflicts.find_new(twin, held(TARGET), (attempt,)) is ConflictCase.FOREIGN


def test_a_merge_is_no_attempt_of_a_new_consumer() -> None:
    merged = WriteAttempt(SOURCE, TARGET, 1)
    assert consumer_conflicts.find_new(held(SOURCE), held(TARGET), (merged,)) is ConflictCase.FOREIGN


def test_equal_amounts_of_another_writer_are_not_ours() -> None:
    attempt = WriteAttempt(SOURCE, {}, 1)
    assert consumer_conflicts.find_new(held(TARGET, "them"), held(TARGET)) is ConflictCase.FOREIGN
    assert consumer_conflicts.find_new(held(SOURCE, "them"), held(TARGET), (attempt,)) is ConflictCase.FOREIGN


def test_every_finding_of_a_rule_has_its_step() -> None:
    new, merge = consumer_conflicts.RULES[ConsumerPolicy.NEW], consumer_conflicts.RULES[ConsumerPolicy.MERGE]
    assert set(ConflictCase) - set(new) == {ConflictCase.UNCHANGED, ConflictCase.AS_WANTED}
    assert set(ConflictCase) - set(merge) == {ConflictCase.NOTHING, ConflictCase.TWIN, ConflictCase.UNCLEAR}
    for rule in (new, merge):
        assert rule[ConflictCase.FOREIGN] is ConflictAction.REFUSE


def test_a_conflict_that_shows_nothing_is_the_consumers_where_no_provider_has_moved() -> None:
    assert consumer_conflicts.is_consumers({"a": 3, "b": 4}, {"a": 3, "b": 4})
    assert not consumer_conflicts.is_consumers({"a": 3, "b": 4}, {"a": 3, "b": 5})
    # where they could not be read, it is taken for a race as ever
    assert not consumer_conflicts.is_consumers(None, {"a": 3})
    assert not consumer_conflicts.is_consumers({"a": 3}, None)
    assert not consumer_conflicts.is_consumers(None, None)


def test_waits_grow_to_a_bound_and_some_fit_into_the_patience() -> None:
    backoff = consumer_conflicts.CONFLICT_BACKOFF
    longest = [backoff.longest_s(sent) for sent in range(1, 10)]
    assert longest == sorted(longest) and longest[-1] == backoff.max_s
    assert sum(longest[:5]) < consumer_conflicts.ORPHAN_AFTER_S


def test_merge() -> None:
    before, both = ConsumerAllocations(SOURCE, 3), consumer_conflicts.union(SOURCE, TARGET)
    assert consumer_conflicts.find_merge(ConsumerAllocations(SOURCE, 3), before, both) is ConflictCase.UNCHANGED
    assert consumer_conflicts.find_merge(ConsumerAllocations(both, 4), before, both) is ConflictCase.AS_WANTED
    assert consumer_conflicts.find_merge(ConsumerAllocations(TARGET, 4), before, both) is ConflictCase.FOREIGN
    assert consumer_conflicts.find_merge(ConsumerAllocations(), before, both) is ConflictCase.FOREIGN


def test_delete() -> None:
    assert consumer_conflicts.find_delete(ConsumerAllocations(), TARGET, 1) is ConflictCase.NOTHING
    assert consumer_conflicts.find_delete(ConsumerAllocations(TARGET, 1), TARGET, 1) is ConflictCase.AS_WANTED
    assert consumer_conflicts.find_delete(ConsumerAllocations(TARGET, 1), TARGET, None) is ConflictCase.AS_WANTED
    assert consumer_conflicts.find_delete(ConsumerAllocations(TARGET, 2), TARGET, 1) is ConflictCase.FOREIGN
    assert consumer_conflicts.find_delete(ConsumerAllocations(SOURCE, 1), TARGET, 1) is ConflictCase.FOREIGN


def test_order_and_empty_parts_do_not_count() -> None:
    assert same_allocations({"a": {"VCPU": 1, "PCPU": 0}, "b": {}}, {"a": {"VCPU": 1}})
