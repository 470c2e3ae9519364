# SPDX-License-Identifier: Apache-2.0
"""A progress bar on standard error, drawn by rich on terminals only, and lines that are printed above it."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

#: columns of the bar
WIDTH = 40


class Progress:
    """Use as a context.  Lines are printed without a terminal too; the bar is not."""

    def __init__(self, title: str, out: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Bar

        self._out = out if out is not None else sys.stderr
        self._console = Console(file=self._out, force_terminal=self._out.isatty(), highlight=False, markup=False)
        plain = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[note]}", markup=False)
        self._bar = Bar(
            plain[0], BarColumn(WIDTH), TaskProgressColumn(), plain[1], console=self._console, auto_refresh=False,
            transient=True, redirect_stdout=False, redirect_stderr=False,
            disable=not self._console.is_terminal or self._console.is_dumb_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=1.0, note="")
        self._drawn = (-1, "")

    def __enter__(self) -> Progress:
        self._bar.start()
        self.update(0.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if not self._bar.disable:  # early releases of rich 13 print an empty line otherwise
            self._bar.stop()

    def print_above(self, text: str) -> None:
        """Print lines above the bar."""
        if self._console.is_terminal:
            self._console.print(text, soft_wrap=True)
        else:
            self._out.write(f"{text}\n")  # not by rich, which ends a process whose reader has left with exit code 1
            self._out.flush()

    def update(self, part: float, note: str = "") -> None:
        """Set the finished part (0 to 1) and the note; redraw if the percentage or the note changed."""
        percent = int(100 * part)
        if (percent, note) == self._drawn:
            return
        self._drawn = (percent, note)
        self._bar.update(self._task, completed=part, note=note, refresh=True)
