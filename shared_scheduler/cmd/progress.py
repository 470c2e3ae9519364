# SPDX-License-Identifier: Apache-2.0
"""A progress bar on standard error, for terminals only, and what is told meanwhile."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

WIDTH = 40


class Progress:
    """Use as a context; ``show(part)`` with 0 .. 1."""

    def __init__(self, title: str, out: TextIO | None = None) -> None:
        self._title = title
        self._out = out if out is not None else sys.stderr
        self._on = self._out.isatty()
        self._shown = (-1, "")

    def __enter__(self) -> Progress:
        self.show(0.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._wipe()

    def _wipe(self) -> None:
        if self._on:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def tell(self, text: str) -> None:
        """Lines above the bar; also where there is no terminal."""
        self._wipe()
        self._out.write(f"{text}\n")
        self._out.flush()
        self._shown = (-1, "")

    def show(self, part: float, note: str = "") -> None:
        """Redraw if the bar grew or the note changed."""
        percent = int(100 * part)
        if not self._on or (percent, note) == self._shown:
            return
        self._shown = (percent, note)
        full = int(WIDTH * part)
        bar = "#" * full + "-" * (WIDTH - full)
        self._out.write(f"\r{self._title} [{bar}] {percent:3d}% {note}".rstrip())
        self._out.flush()
