# SPDX-License-Identifier: Apache-2.0
"""What has happened in a world, for people who look for a reason."""

from __future__ import annotations


class Story:
    """Lines, which are made into text only when somebody reads them."""

    def __init__(self) -> None:
        self._told: list[tuple[float, str, tuple[object, ...]]] = []

    def add(self, at_s: float, what: str, *details: object) -> None:
        """Something has happened; calls of Placement and what happens beside them run ahead of the core."""
        self._told.append((at_s, what, details))

    def lines(self) -> list[str]:
        """In the order in which it has happened."""
        return [f"{at_s:9.3f}  {what} {' '.join(map(str, details))}" for at_s, what, details in self._told]
