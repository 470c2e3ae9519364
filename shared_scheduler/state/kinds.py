# SPDX-License-Identifier: Apache-2.0
"""Which hosts are alike in facts that change rarely, as a number a slot.

Ten thousand hosts have a dozen hypervisors and a dozen sets of aggregates between them.  What is asked
of those is answered once for each kind and not once for each host (``decision/masks.py``).
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from shared_scheduler.state.columns import Array, ColumnSet

#: the kind of a slot without a host
NOBODY = 0


class Kinds:
    """Slots with equal facts have the same code.  A code that nobody has any more is used again."""

    def __init__(self, columns: ColumnSet) -> None:
        self._column = columns.add(np.int32, NOBODY)
        self._code_of: dict[Hashable, int] = {}
        self._facts: list[Hashable] = [None]
        self._hosts = [0]
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many kinds there are."""
        return len(self._code_of)

    @property
    def codes(self) -> Array:
        """The kind of each slot.  Read only."""
        return self._column.array

    @property
    def end(self) -> int:
        """All codes are below."""
        return len(self._hosts)

    def put(self, slot: int, facts: Hashable) -> None:
        """What the host in this slot is like."""
        code = self._code_of.get(facts)
        if code is None:
            code = self._code_of[facts] = self._new(facts)
        self._hosts[code] += 1
        self.clear(slot)
        self._column.array[slot] = code

    def clear(self, slot: int) -> None:
        """Nobody is there."""
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
