# SPDX-License-Identifier: Apache-2.0
"""The cache of masks across decisions.

Many requests have the same requirements (traits, an availability zone, the architecture of an image), and few hosts
change between two of them.  Their masks are cached by key and updated only for the rows that have changed since, as
the generations of the table show.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from cachetools import FIFOCache

from shared_scheduler.table.columns import Array, BoolArray, FloatArray, IntArray, Kinds
from shared_scheduler.table.host_columns import HostColumns
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Row

#: maximum number of cached masks; the oldest is removed first
MASKS_MAX = 1024

#: maximum number of cached results of ``derived``; each may hold some arrays
DERIVED_MAX = 32

#: maximum number of cached texts of requests
TEXTS_MAX = 512

T = TypeVar("T")

#: Computes the result for one row.  It may cache results by the values that it reads.
RowTest = Callable[[Row], bool]
RowNumber = Callable[[Row], float]
#: Computes the results for many slots at once.
SlotsAnswer = Callable[[IntArray], Array]


@dataclass(slots=True)
class _Kept:
    array: Array
    generation: int
    answer: SlotsAnswer | None = None


class MaskCache:
    """Masks and numbers of one table, by key."""

    def __init__(self) -> None:
        self._kept: FIFOCache[Hashable, _Kept] = FIFOCache(MASKS_MAX)
        self._parsed: FIFOCache[str, Any] = FIFOCache(TEXTS_MAX)
        self._derived: FIFOCache[Hashable, Any] = FIFOCache(DERIVED_MAX)
        self._indexes: dict[str, tuple[int, dict[str, list[int]]]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def columns(self, table: HostTable, key: Hashable, compute: Callable[[], BoolArray]) -> BoolArray:
        """A mask that ``compute`` creates from rarely changing columns, in some microseconds."""
        kept = self._kept.get(key)
        if kept is None or kept.generation < table.static_generation:
            kept = _Kept(compute(), table.static_generation)
            self._kept[key] = kept
        return kept.array

    def slots(self, table: HostTable, key: Hashable, answer: SlotsAnswer) -> BoolArray:
        """A mask that ``answer`` creates from columns; called only for the slots that changed since the last call."""
        return self._up_to_date(table, key, lambda: answer, False, np.dtype(np.bool_))

    def rows(
        self, table: HostTable, key: Hashable, make_test: Callable[[], RowTest], *, static: bool = True
    ) -> BoolArray:
        """A mask of a test in Python, which is called only for the rows that changed since the last call.

        ``static``: the test reads only values that change rarely (``static_at``).
        """
        return self._of_rows(table, key, make_test, static, np.dtype(np.bool_))

    def kinds(
        self,
        table: HostTable,
        key: Hashable,
        kinds: Kinds,
        make_test: Callable[[], RowTest],
        *,
        static: bool = True,
    ) -> BoolArray:
        """Like ``rows``, for a test with the same result for all hosts of a kind: it runs once for each kind."""
        return self._of_rows(table, key, make_test, static, np.dtype(np.bool_), kinds)

    def numbers(
        self, table: HostTable, key: Hashable, make_number: Callable[[], RowNumber], *, static: bool = True
    ) -> FloatArray:
        """Like ``rows``, with a number for each slot."""
        return self._of_rows(table, key, make_number, static, np.dtype(np.float64))

    def numbers_of_kinds(
        self, table: HostTable, key: Hashable, kinds: Kinds, make_number: Callable[[], RowNumber]
    ) -> FloatArray:
        """Like ``kinds``, with a number for each slot."""
        return self._of_rows(table, key, make_number, True, np.dtype(np.float64), kinds)

    def parsed(self, text: str, parse: Callable[[str], T]) -> T:
        """The parsed form of a text; flavors recur in requests, and so do their texts."""
        found = self._parsed.get(text)
        if found is None:
            found = self._parsed[text] = parse(text)
        return found

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` creates; ``key`` contains everything on which the result depends."""
        found: T | None = self._derived.get(key)
        if found is None:
            found = self._derived[key] = make()
        return found

    def index(self, table: HostTable, key: str, name_of: Callable[[Row], str]) -> Mapping[str, Sequence[int]]:
        """Slots by a name of the rows; created again when a node is added or removed."""
        known = self._indexes.get(key)
        if known is None or known[0] != table.membership_generation:
            found: dict[str, list[int]] = {}
            for row in table.rows():
                found.setdefault(name_of(row), []).append(row.slot)
            known = self._indexes[key] = (table.membership_generation, found)
        return known[1]

    def _of_rows(
        self,
        table: HostTable,
        key: Hashable,
        make_answer: Callable[[], RowTest | RowNumber],
        static: bool,
        dtype: np.dtype[Any],
        kinds: Kinds | None = None,
    ) -> Array:
        def make() -> SlotsAnswer:
            answer = make_answer()
            if kinds is None:
                return lambda slots: _answers(table, answer, dtype, slots)
            return lambda slots: _answers_of_kinds(table, answer, dtype, slots, kinds)

        return self._up_to_date(table, key, make, static, dtype)

    def _up_to_date(
        self,
        table: HostTable,
        key: Hashable,
        make_answer: Callable[[], SlotsAnswer],
        static: bool,
        dtype: np.dtype[Any],
    ) -> Array:
        newest = table.static_generation if static else table.generation
        kept = self._kept.get(key)
        if kept is None:
            kept = _Kept(np.zeros(0, dtype=dtype), 0, make_answer())
            self._kept[key] = kept
        if kept.generation < newest:
            _refresh(table.columns, kept, static)
            kept.generation = newest
        return kept.array


def _refresh(columns: HostColumns, kept: _Kept, static: bool) -> None:
    """Compute the results again for the slots that have changed."""
    assert kept.answer is not None
    high = columns.high
    if len(kept.array) < high:
        grown = np.zeros(high, dtype=kept.array.dtype)
        grown[: len(kept.array)] = kept.array
        kept.array = grown
    at = columns.static_at if static else columns.changed_at
    changed = np.flatnonzero(at.array[:high] > kept.generation)
    kept.array[changed] = kept.answer(changed)


def _answers(table: HostTable, answer: RowTest | RowNumber, dtype: np.dtype[Any], slots: IntArray) -> Array:
    """The result for each of these slots; 0 for a slot without a host."""
    rows = map(table.row, slots.tolist())
    return np.array([row is not None and answer(row) for row in rows], dtype=dtype)


def _answers_of_kinds(
    table: HostTable, answer: RowTest | RowNumber, dtype: np.dtype[Any], slots: IntArray, kinds: Kinds
) -> Array:
    """The result for each of these slots, computed for one host of each kind."""
    codes = kinds.codes.take(slots)
    one_of = np.full(kinds.end, -1, dtype=np.int64)
    one_of[codes] = slots
    asked = np.flatnonzero(one_of >= 0)
    by_code = np.zeros(kinds.end, dtype=dtype)
    by_code[asked] = _answers(table, answer, dtype, one_of[asked])
    answers: Array = by_code[codes]
    return answers


def mask_of_slots(high: int, slots: Iterable[int]) -> BoolArray:
    """True at these slots only."""
    mask: BoolArray = np.zeros(high, dtype=np.bool_)
    mask[list(slots)] = True
    return mask
