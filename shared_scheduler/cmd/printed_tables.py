# SPDX-License-Identifier: Apache-2.0
"""The tables that commands print: plain ones by PrettyTable, those of a terminal by rich."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from shared_scheduler.records.plain_text import printable

if TYPE_CHECKING:  # importing rich takes longer than printing a help text
    from rich.table import Table

#: between two columns
GAP = "  "


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> Table:
    """A table without rules; the columns ``numbers`` are right-aligned.  Cells that do not fit are cut off."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0))
    for position, name in enumerate(head):
        made.add_column(Text(name), justify="right" if position in numbers else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def lines(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """A table as lines of plain text, each column as wide as its widest cell.

    By PrettyTable, because rich takes more than a millisecond for a row: twelve seconds for one of each host of a large
    cloud.  The head is a row to it, because it prints no head above no rows.
    """
    from prettytable import PrettyTable

    made = PrettyTable(list(map(str, range(len(head)))), header=False, border=False, align="l",
                       padding_width=0, right_padding_width=len(GAP))  # fmt: skip
    for position in numbers:
        made.align[str(position)] = "r"
    made.add_rows([list(head), *([printable(cell) for cell in row] for row in rows)])
    return [line.rstrip() for line in made.get_string().splitlines()]
