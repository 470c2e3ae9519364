# SPDX-License-Identifier: Apache-2.0
"""Columns over slots: one value for each host, in NumPy arrays that grow by doubling.

The ``array`` of a column is replaced when the columns grow, so get it again for each use.  ``cells`` is a view of the
same memory for single values; it is twice as fast for those.

``BitColumns`` holds a set of names for each slot.  ``Kinds`` gives hosts with equal, rarely changing facts the same
code: ten thousand hosts have a dozen hypervisors and a dozen sets of aggregates, so a result that depends only on these
is computed once for each kind and not once for each host (``decision/masks.py``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: slots of a new set of columns
CAPACITY_MIN = 64
#: names in one word of a bit column
WORD_BITS = 64
#: Names that a bit column has at the same time: 2 KiB for each host.  Placement defines some hundred traits.
NAMES_MAX = 16_384


class Column:
    """One value for each slot; ``fill`` is the value of a slot without a host."""

    __slots__ = ("array", "cells", "fill")

    def __init__(self, dtype: npt.DTypeLike, fill: float, capacity: int) -> None:
        self.fill = fill
        self._hold(np.full(capacity, fill, dtype=dtype))

    def _hold(self, array: Array) -> None:
        self.array = array
        self.cells: Any = array.data

    def __deepcopy__(self, memo: dict[int, Any]) -> Column:
        """A column with its own array; a view of memory cannot be copied."""
        found = Column(self.array.dtype, self.fill, 0)
        found._hold(self.array.copy())
        return found

    def grow(self, capacity: int) -> None:
        """Keep the values, and fill new slots."""
        larger: Array = np.full(capacity, self.fill, dtype=self.array.dtype)
        larger[: len(self.array)] = self.array
        self._hold(larger)


class ColumnSet:
    """Columns of the same length."""

    def __init__(self) -> None:
        self.capacity = CAPACITY_MIN
        self._columns: list[Column] = []

    def add(self, dtype: npt.DTypeLike, fill: float) -> Column:
        """Add a column."""
        column = Column(dtype, fill, self.capacity)
        self._columns.append(column)
        return column

    def remove(self, columns: Iterable[Column]) -> None:
        """Free the memory of columns that are not used any more."""
        gone = set(map(id, columns))
        self._columns = [column for column in self._columns if id(column) not in gone]

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` slots."""
        if slots <= self.capacity:
            return
        while self.capacity < slots:
            self.capacity *= 2
        for column in self._columns:
            column.grow(self.capacity)

    def clear(self, slot: int) -> None:
        """Reset a slot that has no host any more."""
        for column in self._columns:
            column.array[slot] = column.fill

    @property
    def nbytes(self) -> int:
        """Memory of all columns."""
        return sum(column.array.nbytes for column in self._columns)


class BitColumns:
    """A set of names for each slot, as bits of 64-bit words; words are added for new names.

    When there are ``NAMES_MAX``, the names that no slot has are forgotten; if that is not enough, new ones are ignored.
    """

    def __init__(self, columns: ColumnSet) -> None:
        self._columns = columns
        self._words: list[Column] = []
        self._bit: dict[str, int] = {}
        self._free: list[int] = []  # bits without a name, below the highest one

    def __len__(self) -> int:
        """The number of names."""
        return len(self._bit)

    def put(self, slot: int, names: frozenset[str]) -> None:
        """Set the names of a slot."""
        for word, bits in enumerate(self._bits_of(names, learn=True)):
            self._words[word].array[slot] = bits

    def having_all(self, names: frozenset[str], high: int) -> BoolArray:
        """The mask of those of the first ``high`` slots that have every name."""
        found = np.ones(high, dtype=np.bool_)
        if not names <= self._bit.keys():
            return np.zeros(high, dtype=np.bool_)
        for word, bits in enumerate(self._bits_of(names)):
            if bits:
                need = np.uint64(bits)
                found &= (self._words[word].array[:high] & need) == need
        return found

    def having_any(self, names: frozenset[str], high: int) -> BoolArray:
        """The mask of those of the first ``high`` slots that have at least one of the names."""
        found = np.zeros(high, dtype=np.bool_)
        for word, bits in enumerate(self._bits_of(names)):
            if bits:
                found |= (self._words[word].array[:high] & np.uint64(bits)) != 0
        return found

    def _bits_of(self, names: frozenset[str], learn: bool = False) -> list[int]:
        if learn:
            self._learn(names)
        bits = [0] * len(self._words)
        for name in names:
            bit = self._bit.get(name)
            if bit is not None:
                bits[bit // WORD_BITS] |= 1 << (bit % WORD_BITS)
        return bits

    def _learn(self, names: frozenset[str]) -> None:
        new = names - self._bit.keys()
        if len(self._bit) + len(new) > NAMES_MAX:
            self._forget_unused(names)
        for name in sorted(new)[: NAMES_MAX - len(self._bit)]:
            self._bit[name] = self._free.pop() if self._free else len(self._bit)
        while len(self._words) * WORD_BITS < len(self._bit) + len(self._free):
            self._words.append(self._columns.add(np.uint64, 0))

    def _forget_unused(self, wanted: frozenset[str]) -> None:
        used = [int(np.bitwise_or.reduce(word.array)) for word in self._words]
        for name, bit in list(self._bit.items()):
            if name not in wanted and not used[bit // WORD_BITS] >> (bit % WORD_BITS) & 1:
                self._free.append(self._bit.pop(name))


#: the kind of a slot without a host
NOBODY = 0


class Kinds:
    """Codes of slots: slots with equal facts have the same code.  A code without slots is reused."""

    def __init__(self, columns: ColumnSet) -> None:
        self._column = columns.add(np.int32, NOBODY)
        self._code_of: dict[Hashable, int] = {}
        self._facts: list[Hashable] = [None]
        self._hosts = [0]
        self._free: list[int] = []

    def __len__(self) -> int:
        """The number of kinds."""
        return len(self._code_of)

    @property
    def codes(self) -> Array:
        """The kind of each slot.  Do not change the array."""
        return self._column.array

    @property
    def end(self) -> int:
        """The upper bound of all codes, exclusive."""
        return len(self._hosts)

    def put(self, slot: int, facts: Hashable) -> None:
        """Set the facts of the host in a slot."""
        code = self._code_of.get(facts)
        if code is None:
            code = self._code_of[facts] = self._new(facts)
        self._hosts[code] += 1
        self.clear(slot)
        self._column.array[slot] = code

    def clear(self, slot: int) -> None:
        """Remove the facts of a slot that has no host any more."""
        code = int(self._column.array[slot])
        self._column.array[slot] = NOBODY
        if code == NOBODY:
            return
        self._hosts[code] -= 1
        if not self._hosts[code]:
            del self._code_of[self._facts[code]]
            self._facts[code] = None
            self._free.append(code)

    def _new(self, facts: Hashable) -> int:
        if self._free:
            code = self._free.pop()
            self._facts[code] = facts
            return code
        self._hosts.append(0)
        self._facts.append(facts)
        return len(self._hosts) - 1
