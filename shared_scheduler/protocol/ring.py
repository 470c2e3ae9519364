# SPDX-License-Identifier: Apache-2.0
"""The increments of the recent past, for those who missed some."""

from __future__ import annotations

from collections import deque

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.messages import Increment


class ReplayRing:
    """Consecutive increments up to the newest, bounded in number and bytes; drops the oldest."""

    __slots__ = ("_entries", "_size_bytes")

    def __init__(self) -> None:
        self._entries: deque[tuple[Increment, int]] = deque()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, increment: Increment, size_bytes: int) -> None:
        """Remember the newest increment; ``size_bytes`` as encoded."""
        assert not self._entries or increment.sequence == self._entries[-1][0].sequence + 1
        self._entries.append((increment, size_bytes))
        self._size_bytes += size_bytes
        while self._is_too_large():
            self._size_bytes -= self._entries.popleft()[1]

    def _is_too_large(self) -> bool:
        return (
            len(self._entries) > limits.REPLAY_RING_MAX_MESSAGES
            or self._size_bytes > limits.REPLAY_RING_MAX_BYTES
        )

    def since(self, sequence: int, newest: int) -> tuple[Increment, ...] | None:
        """All after ``sequence`` up to ``newest``, None if some are not here any more."""
        missing = newest - sequence
        if missing > len(self._entries):
            return None
        return tuple(self._entries[i][0] for i in range(-missing, 0))

    def size_since(self, sequence: int) -> int:
        """Bytes of those after ``sequence``."""
        return sum(size for increment, size in self._entries if increment.sequence > sequence)

    def validate(self, newest: int) -> None:
        """Raise AssertionError where an invariant is broken."""
        assert len(self._entries) <= limits.REPLAY_RING_MAX_MESSAGES
        assert self._size_bytes == sum(size for _, size in self._entries)
        assert not self._entries or self._entries[-1][0].sequence == newest
