# SPDX-License-Identifier: Apache-2.0
"""The table of consumer generations, row by row."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from shared_scheduler.core.effects import ConsumerPolicy
from shared_scheduler.placement import policy
from shared_scheduler.placement.policy import Finding, Standing, Step

SOURCE = {"node1": {"VCPU": 2, "MEMORY_MB": 512}, "shared": {"DISK_GB": 10}}
TARGET = {"node2": {"VCPU": 2, "MEMORY_MB": 512}, "shared": {"DISK_GB": 10}}

allocations = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.dictionaries(st.sampled_from(["VCPU", "DISK_GB"]), st.integers(1, 9), min_size=1),
    max_size=4,
)


def test_an_evacuation_holds_both_hosts_and_shared_storage_once() -> None:
    both = policy.union(SOURCE, TARGET)
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
    ours = policy.union(SOURCE, TARGET)
    assert {name: part["resources"] for name, part in theirs.items()} == ours


@given(allocations, allocations)
def test_a_union_keeps_everything_that_stood_there(
    standing: dict[str, dict[str, int]], wanted: dict[str, dict[str, int]]
) -> None:
    both = policy.union(standing, wanted)
    assert policy.same({name: both[name] for name in standing}, standing)
    assert set(both) == set(standing) | set(wanted)


@given(allocations)
def test_what_was_added_is_found_again(standing: dict[str, dict[str, int]]) -> None:
    assert policy.same(policy.without(standing, standing), {})
    assert policy.holds(standing, standing) is bool(standing)


def held(allocations: dict[str, dict[str, int]], owner: str = "us") -> Standing:
    """By one project's consumer that was written once."""
    return Standing(allocations, 1, owner, owner)


def test_new() -> None:
    wanted = held(TARGET)
    assert policy.find_new(Standing(), wanted) is Finding.NOTHING
    assert policy.find_new(held(TARGET), wanted) is Finding.AS_WANTED
    assert policy.find_new(held(TARGET), wanted, unsure=False) is Finding.TWIN
    assert policy.find_new(held(SOURCE), wanted) is Finding.FOREIGN
    assert policy.find_new(held(SOURCE), wanted, (SOURCE,)) is Finding.OWN_ATTEMPT


def test_the_same_amounts_of_somebody_else_are_not_ours() -> None:
    assert policy.find_new(held(TARGET, "them"), held(TARGET)) is Finding.FOREIGN
    assert policy.find_new(held(SOURCE, "them"), held(TARGET), (SOURCE,)) is Finding.FOREIGN


def test_every_finding_of_a_rule_has_its_step() -> None:
    new, merge = policy.RULES[ConsumerPolicy.NEW], policy.RULES[ConsumerPolicy.MERGE]
    assert set(Finding) - set(new) == {Finding.UNCHANGED}
    assert set(Finding) - set(merge) == {Finding.NOTHING, Finding.OWN_ATTEMPT, Finding.TWIN}
    for rule in (new, merge):
        assert rule[Finding.FOREIGN] is Step.REFUSE
        assert rule[Finding.AS_WANTED] is Step.DONE


def test_a_conflict_that_shows_nothing_is_the_consumers_where_no_provider_has_moved() -> None:
    assert policy.is_consumers({"a": 3, "b": 4}, {"a": 3, "b": 4})
    assert not policy.is_consumers({"a": 3, "b": 4}, {"a": 3, "b": 5})
    # where they could not be read, it is taken for a race as ever
    assert not policy.is_consumers(None, {"a": 3})
    assert not policy.is_consumers({"a": 3}, None)
    assert not policy.is_consumers(None, None)


def test_waits_grow_to_a_bound_and_outlast_the_patience() -> None:
    waits = [policy.wait_s(sent, 0.0) for sent in range(1, policy.MAX_ATTEMPTS)]
    assert waits == sorted(waits) and waits[-1] == policy.LONGEST_WAIT_S / 2
    assert sum(waits) > policy.ORPHAN_AFTER_S
    assert sum(policy.wait_s(sent, 1.0) for sent in range(1, policy.MAX_ATTEMPTS)) < 10


def test_an_orphan_is_waited_for_longer_while_a_write_of_ours_may_be_out() -> None:
    assert policy.patience_s(unsure=True) > policy.patience_s(unsure=False)


def test_merge() -> None:
    before, both = Standing(SOURCE, 3), policy.union(SOURCE, TARGET)
    assert policy.find_merge(Standing(SOURCE, 3), before, both) is Finding.UNCHANGED
    assert policy.find_merge(Standing(both, 4), before, both) is Finding.AS_WANTED
    assert policy.find_merge(Standing(TARGET, 4), before, both) is Finding.FOREIGN
    assert policy.find_merge(Standing(), before, both) is Finding.FOREIGN


def test_delete() -> None:
    assert policy.find_delete(Standing(), TARGET) is Finding.NOTHING
    assert policy.find_delete(Standing(TARGET, 1), TARGET) is Finding.AS_WANTED
    assert policy.find_delete(Standing(SOURCE, 1), TARGET) is Finding.FOREIGN


def test_order_and_empty_parts_do_not_count() -> None:
    assert policy.same({"a": {"VCPU": 1, "PCPU": 0}, "b": {}}, {"a": {"VCPU": 1}})
