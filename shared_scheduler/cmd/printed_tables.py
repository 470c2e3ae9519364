# SPDX-License-Identifier: Apache-2.0
"""The tables that commands print, drawn by rich."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from shared_scheduler.records.plain_text import printable

if TYPE_CHECKING:  # importing rich takes longer than printing a help text
    from rich.table import Table

#: columns of a "terminal" that no table fills: a line is never broken, because programs read it too
WIDTH = 10_000


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> Table:
    """A table without rules; the columns ``numbers`` are right-aligned.  Cells that do not fit are cut off."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for position, name in enumerate(head):
        made.add_column(Text(name), justify="right" if position in numbers else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def lines(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """The same table as lines of plain text, each column as wide as its widest cell."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=WIDTH, color_system=None).print(table(head, rows, numbers))
    return [line.rstrip() for line in text.getvalue().splitlines()]
