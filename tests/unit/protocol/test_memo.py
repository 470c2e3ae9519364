# SPDX-License-Identifier: Apache-2.0
"""A memo never has more entries than it may have."""

from __future__ import annotations

from shared_scheduler.protocol.memo import Memo


def test_a_new_entry_of_a_full_memo_empties_it_first() -> None:
    memo: Memo[str, int] = Memo(2)
    assert [memo.learn("a", 1), memo.learn("b", 2)] == [1, 2]
    assert not memo.was_emptied
    assert memo.learn("c", 3) == 3
    assert memo == {"c": 3} and memo.was_emptied


def test_an_entry_that_is_learnt_again_drops_nothing() -> None:
    memo: Memo[str, int] = Memo(2)
    memo.learn("a", 1)
    memo.learn("b", 2)
    memo.learn("a", 3)
    assert memo == {"a": 3, "b": 2} and not memo.was_emptied
