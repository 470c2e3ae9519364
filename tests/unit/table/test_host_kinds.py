# SPDX-License-Identifier: Apache-2.0
"""Hosts that are alike have one code, whoever comes, changes and goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.table.columns import NOBODY, ColumnSet, Kinds

SLOTS = st.integers(0, 7)
FACTS = st.sampled_from([None, "old", "new", "newest"])


@given(st.lists(st.tuples(SLOTS, FACTS), max_size=40))
def test_equal_facts_and_nothing_else_have_equal_codes(changes):
    kinds, facts_of = Kinds(ColumnSet()), dict[int, str]()
    for slot, facts in changes:
        if facts is None:
            kinds.clear(slot)
            facts_of.pop(slot, None)
        else:
            kinds.put(slot, facts)
            facts_of[slot] = facts
    codes = {slot: int(kinds.codes[slot]) for slot in range(8)}
    assert all((codes[slot] == NOBODY) == (slot not in facts_of) for slot in codes)
    for one, its in facts_of.items():
        assert [codes[one] == codes[other] for other in facts_of] == [its == others for others in facts_of.values()]
    assert len(kinds) == len(set(facts_of.values()))


def test_codes_of_kinds_that_died_out_are_used_again():
    kinds = Kinds(ColumnSet())
    for release in range(1000):
        kinds.put(0, f"hypervisor {release}")
    assert len(kinds) == 1
    assert kinds.end <= 3
