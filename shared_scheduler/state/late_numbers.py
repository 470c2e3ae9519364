# SPDX-License-Identifier: Apache-2.0
"""The numbers of a node that came last, before anybody reads them as leaves.

A boot tells some seven to fifteen numbers, and what is decided with is in the columns at once.  As leaves
they are looked at rarely: when the host is tried, or a beat's digest is compared.  Until then they are kept as
bytes beside one another, instead of in the row's dictionary, one by one and each in place of an object that
nobody has touched for long.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

from shared_scheduler.protocol.messages import Leaf

#: numbers of one row
LATE_MAX = 16
_NUMBER_BYTES = 8
_ROW_BYTES = LATE_MAX * _NUMBER_BYTES
#: by how many they are
_STRUCTS = tuple(Struct(f"={count}q") for count in range(LATE_MAX + 1))


class LateNumbers:
    """At most ``LATE_MAX`` whole numbers of 64 bits a slot.  Which ones, the row knows."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` of them."""
        missing = slots * _ROW_BYTES - len(self._bytes)
        if missing > 0:
            self._bytes.extend(bytes(max(missing, len(self._bytes))))

    def put(self, slot: int, values: Iterable[Leaf], count: int) -> bool:
        """Keep these instead; False if one of them is none: then what is kept of the slot is void."""
        try:
            _STRUCTS[count].pack_into(self._bytes, slot * _ROW_BYTES, *values)
        except (error, OverflowError):
            return False
        return True

    def of(self, slot: int, count: int) -> tuple[int, ...]:
        """What was put there."""
        return _STRUCTS[count].unpack_from(self._bytes, slot * _ROW_BYTES)
