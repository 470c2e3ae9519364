# SPDX-License-Identifier: Apache-2.0
"""Increments that came before their turn, bounded in number and bytes."""

from __future__ import annotations

from shared_scheduler.protocol import codec, limits
from shared_scheduler.protocol.messages import Increment


class EarlyMessages:
    """What a window holds until the missing messages come.  One epoch, unique sequences."""

    __slots__ = ("_held", "_sizes", "size_bytes")

    def __init__(self) -> None:
        self._held: dict[int, Increment] = {}
        self._sizes: dict[int, int] = {}
        #: of all held messages, as encoded
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def newest(self) -> int:
        """The highest sequence held, 0 if none."""
        return max(self._held, default=0)

    @property
    def oldest(self) -> int:
        """The lowest sequence held, 0 if none."""
        return min(self._held, default=0)

    def hold(self, message: Increment, keep_oldest: bool) -> int:
        """Hold a message; returns how many were dropped to stay within bounds.

        ``keep_oldest``: drop the ones farthest ahead (a replay brings them again), else the oldest
        (a snapshot will cover them).
        """
        if message.sequence in self._held:
            return 0
        size = len(codec.encode(message))
        self._held[message.sequence] = message
        self._sizes[message.sequence] = size
        self.size_bytes += size
        dropped = 0
        while len(self._held) > limits.HELD_MAX_MESSAGES or self.size_bytes > limits.HELD_MAX_BYTES:
            self._remove(self.newest if keep_oldest else self.oldest)
            dropped += 1
        return dropped

    def take_after(self, sequence: int) -> list[Increment]:
        """The unbroken run that follows ``sequence``, in order; what is not newer is dropped."""
        if not self._held:
            return []
        for old in [held for held in self._held if held <= sequence]:
            self._remove(old)
        run = []
        while sequence + 1 in self._held:
            sequence += 1
            run.append(self._remove(sequence))
        return run

    def clear(self) -> None:
        """Drop everything."""
        self._held.clear()
        self._sizes.clear()
        self.size_bytes = 0

    def _remove(self, sequence: int) -> Increment:
        self.size_bytes -= self._sizes.pop(sequence)
        return self._held.pop(sequence)
