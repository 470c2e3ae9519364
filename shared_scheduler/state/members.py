# SPDX-License-Identifier: Apache-2.0
"""Where instances are: uuid -> slots.  Nearly always one slot, two while an instance moves."""

from __future__ import annotations


class Members:
    """Instances of all hosts, own outstanding claims included."""

    def __init__(self) -> None:
        self._at: dict[str, int | tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._at)

    def add(self, uuid: str, slot: int) -> None:
        """It is (also) here."""
        if self._at.setdefault(uuid, slot) == slot:
            return
        before = self.slots(uuid)
        if slot not in before:
            self._at[uuid] = (*before, slot)

    def discard(self, uuid: str, slot: int) -> None:
        """It is here no more."""
        left = tuple(one for one in self.slots(uuid) if one != slot)
        if not left:
            self._at.pop(uuid, None)
        else:
            self._at[uuid] = left[0] if len(left) == 1 else left

    def slots(self, uuid: str) -> tuple[int, ...]:
        """Every slot that holds it."""
        found = self._at.get(uuid)
        if found is None:
            return ()
        return found if isinstance(found, tuple) else (found,)
