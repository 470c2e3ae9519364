# SPDX-License-Identifier: Apache-2.0
"""Which rows changed last, so that what was derived from all of them is mended, not made again."""

from __future__ import annotations

import numpy as np

from shared_scheduler.state.columns import IntArray

#: changes that are remembered; a power of two.  Who is further behind starts afresh, which is the
#: cheaper way by then at the sizes that occur.
CHANGES_MAX = 1024


class ChangeLog:
    """Numbers the changes of a table (``generation``) and knows the slots of the newest ones."""

    def __init__(self) -> None:
        self.generation = 1
        self._slots: IntArray = np.zeros(CHANGES_MAX, dtype=np.int64)
        self._cells = self._slots.data

    def note(self, slot: int) -> int:
        """One more change, of this slot; its generation."""
        self.generation = generation = self.generation + 1
        self._cells[generation % CHANGES_MAX] = slot
        return generation

    def since(self, generation: int) -> IntArray | None:
        """Slots that changed after ``generation``, some perhaps twice; None: too many to remember."""
        count = self.generation - generation
        if count > CHANGES_MAX:
            return None
        first = (generation + 1) % CHANGES_MAX
        if first + count <= CHANGES_MAX:
            return self._slots[first : first + count]
        return np.concatenate((self._slots[first:], self._slots[: first + count - CHANGES_MAX]))
