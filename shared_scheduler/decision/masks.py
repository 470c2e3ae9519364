# SPDX-License-Identifier: Apache-2.0
"""Masks that outlive a decision.

Most of what a request asks (traits, an availability zone, an image's architecture) is asked by many
requests and changes on few hosts.  Its mask is kept by key and brought up to date for the rows that
changed since, told by the generations of the table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from shared_scheduler.state.columns import Array, BoolArray, FloatArray, IntArray
from shared_scheduler.state.kinds import Kinds
from shared_scheduler.state.row import Row
from shared_scheduler.state.table import HostTable

#: masks kept; the one that was made first goes first
MASKS_MAX = 1024

#: rows that are asked one by one where all can be asked at once
ONE_BY_ONE_MAX = 32

#: texts of requests whose meaning is kept
TEXTS_MAX = 512

T = TypeVar("T")

#: Answers for one row.  It may remember answers by the values that it looked at.
RowTest = Callable[[Row], bool]
RowNumber = Callable[[Row], float]


@dataclass(slots=True)
class _Kept:
    array: Array
    generation: int
    answer: RowTest | RowNumber | None = None


class MaskCache:
    """Masks and numbers of one table, by key."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._parsed: dict[str, Any] = {}
        self._indexes: dict[str, tuple[int, dict[str, list[int]]]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def columns(
        self, table: HostTable, key: Hashable, compute: Callable[[], BoolArray]
    ) -> BoolArray:
        """A mask that ``compute`` makes from rarely changing columns, in some microseconds."""
        kept = self._kept.get(key)
        if kept is None or kept.generation < table.static_generation:
            kept = _Kept(compute(), table.static_generation)
            self._keep(key, kept)
        return kept.array

    def rows(
        self,
        table: HostTable,
        key: Hashable,
        make_test: Callable[[], RowTest],
        *,
        static: bool = True,
        every: Callable[[], BoolArray] | None = None,
    ) -> BoolArray:
        """A mask of a test in Python, run on the rows that changed since it was last run.

        ``static`` tells that the test looks at rarely changing things only (``static_at``).  ``every``
        answers for all slots at once, which is cheaper where many changed.
        """
        return self._up_to_date(table, key, make_test, static, np.dtype(np.bool_), every=every)

    def kinds(
        self,
        table: HostTable,
        key: Hashable,
        kinds: Kinds,
        make_test: Callable[[], RowTest],
        *,
        static: bool = True,
    ) -> BoolArray:
        """As ``rows``, of a test that hosts of one kind answer alike: one of them is asked."""
        return self._up_to_date(table, key, make_test, static, np.dtype(np.bool_), kinds)

    def numbers(
        self,
        table: HostTable,
        key: Hashable,
        make_number: Callable[[], RowNumber],
        *,
        static: bool = True,
    ) -> FloatArray:
        """As ``rows``, a number a slot."""
        return self._up_to_date(table, key, make_number, static, np.dtype(np.float64))

    def numbers_of_kinds(
        self, table: HostTable, key: Hashable, kinds: Kinds, make_number: Callable[[], RowNumber]
    ) -> FloatArray:
        """As ``kinds``, a number a slot."""
        return self._up_to_date(table, key, make_number, True, np.dtype(np.float64), kinds)

    def parsed(self, text: str, parse: Callable[[str], T]) -> T:
        """What a text of a request means; flavors repeat, so do their texts."""
        found = self._parsed.get(text)
        if found is None:
            if len(self._parsed) >= TEXTS_MAX:
                self._parsed.clear()
            found = self._parsed[text] = parse(text)
        return found

    def index(
        self, table: HostTable, key: str, name_of: Callable[[Row], str]
    ) -> Mapping[str, Sequence[int]]:
        """Slots by a name of the rows; made again when a node comes or goes."""
        known = self._indexes.get(key)
        if known is None or known[0] != table.membership_generation:
            found: dict[str, list[int]] = {}
            for row in table.rows():
                found.setdefault(name_of(row), []).append(row.slot)
            known = self._indexes[key] = (table.membership_generation, found)
        return known[1]

    def _up_to_date(
        self,
        table: HostTable,
        key: Hashable,
        make_answer: Callable[[], RowTest | RowNumber],
        static: bool,
        dtype: np.dtype[Any],
        kinds: Kinds | None = None,
        every: Callable[[], BoolArray] | None = None,
    ) -> Array:
        newest = table.static_generation if static else table.generation
        kept = self._kept.get(key)
        if kept is None:
            kept = _Kept(np.zeros(0, dtype=dtype), 0, make_answer())
            self._keep(key, kept)
        if kept.generation < newest:
            self._refresh(table, kept, static, kinds, every)
            kept.generation = newest
        return kept.array

    @staticmethod
    def _refresh(
        table: HostTable,
        kept: _Kept,
        static: bool,
        kinds: Kinds | None,
        every: Callable[[], BoolArray] | None,
    ) -> None:
        columns = table.columns
        high = columns.high
        if len(kept.array) < high:
            grown = np.zeros(high, dtype=kept.array.dtype)
            grown[: len(kept.array)] = kept.array
            kept.array = grown
        at = columns.static_at if static else columns.changed_at
        changed = np.flatnonzero(at.array[:high] > kept.generation)
        is_new = not kept.generation
        if every is not None and (is_new or len(changed) > ONE_BY_ONE_MAX):
            kept.array = every()
        elif kinds is None:
            kept.array[changed] = _answers(table, kept, changed)
        else:
            kept.array[changed] = _answers_of_kinds(table, kept, changed, kinds)

    def _keep(self, key: Hashable, kept: _Kept) -> None:
        self._kept[key] = kept
        self._kept.move_to_end(key)
        if len(self._kept) > MASKS_MAX:
            self._kept.popitem(last=False)


def _answers(table: HostTable, kept: _Kept, slots: IntArray) -> Array:
    """What each of these slots answers; 0 where no host is."""
    answer = kept.answer
    assert answer is not None
    rows = map(table.row, slots.tolist())
    return np.array([row is not None and answer(row) for row in rows], dtype=kept.array.dtype)


def _answers_of_kinds(table: HostTable, kept: _Kept, slots: IntArray, kinds: Kinds) -> Array:
    """The same, where one host of each kind is asked."""
    codes = kinds.codes.take(slots)
    one_of = np.full(kinds.end, -1, dtype=np.int64)
    one_of[codes] = slots
    asked = np.flatnonzero(one_of >= 0)
    by_code = np.zeros(kinds.end, dtype=kept.array.dtype)
    by_code[asked] = _answers(table, kept, one_of[asked])
    answers: Array = by_code[codes]
    return answers


def mask_of_slots(high: int, slots: Iterable[int]) -> BoolArray:
    """True at these slots only."""
    mask: BoolArray = np.zeros(high, dtype=np.bool_)
    mask[list(slots)] = True
    return mask
