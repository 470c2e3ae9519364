# SPDX-License-Identifier: Apache-2.0
"""Prints the result of a command on standard output as text, JSON or reStructuredText, and its progress on standard
error.
"""

import argparse
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from shared_scheduler.cmd import printed_tables
from tools.laboratory.errors import LabError

FORMATS = ("text", "json", "rst")
#: columns of a "terminal" that no table fills: a line is never broken, because programs read it too
WIDTH = 10_000


@dataclass(frozen=True)
class Table:
    """Rows of cells below a head. Columns named in `left` (by number) are text, all others are numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: Sequence[int] = (0,)


@dataclass(frozen=True)
class Report:
    """A result: `data` is printed as JSON, `parts` as text or reStructuredText. `wrong`: the exit code is 1."""

    data: Any
    parts: Sequence[str | Table]
    wrong: bool = False

    def show(self, form: str) -> None:
        """Print it in one of `FORMATS`."""
        if form == "text" and sys.stdout.isatty():
            _print(Console(), self.parts)
        else:
            sys.stdout.write(self.text(form))  # not by rich, which ends a process whose reader has left with 1

    def text(self, form: str) -> str:
        """It as one of `FORMATS`."""
        if form == "json":
            return json.dumps(self.data, indent=1) + "\n"
        if form == "rst":
            return "\n".join(rst(part) for part in self.parts)
        text = io.StringIO()
        _print(Console(file=text, width=WIDTH), self.parts)
        return text.getvalue()


def rows_report(data: Any) -> Report:
    """A report of plain data: a list of objects is a table, an object is a line for each of its fields."""
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        head = [str(name) for name in data[0]]
        rows = [["" if row[name] is None else str(row[name]) for name in head] for row in data]
        return Report(data, [Table(head, rows, left=range(len(head)))])
    if isinstance(data, Mapping):
        return Report(data, [f"{str(name).replace('_', ' ')}: {_plain(value)}" for name, value in data.items()])
    return Report(data, ["\t".join(map(str, row)) for row in data or ()])


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _print(console: Console, parts: Sequence[str | Table]) -> None:
    for part in parts:
        if isinstance(part, Table):
            if part.title:
                console.print(Text(part.title, style="bold"))
            console.print(printed_tables.table(part.head, part.rows, set(range(len(part.head))).difference(part.left)))
        else:
            console.print(Text(part), soft_wrap=True)


def rst(part: str | Table) -> str:
    """A paragraph, or a list-table below its title: no width can break it."""
    if isinstance(part, str):
        return f"{part}\n"
    lines = [part.title, "-" * len(part.title), ""] if part.title else []
    lines += [".. list-table::", "   :header-rows: 1", ""]
    for row in (part.head, *part.rows):
        lines += [f"   {' ' if number else '*'} - {cell}".rstrip() for number, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


# -- files


def save(path: Path | None, data: Any) -> None:
    """Write data as JSON, if a path is given."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1) + "\n")


def write_page(page: Path, mark: str, text: str) -> None:
    """Replace everything below the line `mark` of a page that is otherwise written by hand.

    :raises LabError: when the page does not exist, or has no such line
    """
    try:
        head, found, _ = page.read_text().partition(mark)
    except OSError as error:
        raise LabError(f"--page {page}: {error.strerror}; give the page that shows the results") from None
    if not found:
        raise LabError(f"--page {page}: there is no line {mark!r} to write the tables below")
    page.write_text(f"{head}{found}\n\n{text}")


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """The option `--format`."""
    parser.add_argument("--format", choices=formats, default="text", help="of the result (default text)")


# -- progress


class ProgressLine:
    """Progress of long work, on standard error: lines with the seconds since the start, and on a terminal a bar."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream or sys.stderr, soft_wrap=True)
        self._began_s = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task: TaskID | None = None

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._bar.disable:  # early releases of rich 13 print an empty line otherwise
            self._bar.stop()

    def say(self, line: str) -> None:
        """One line, above the bar."""
        elapsed_s = time.monotonic() - self._began_s
        self._console.print(Text(f"[{elapsed_s:7.1f} s] {line}"))

    def expect(self, steps: float, what: str) -> None:
        """Show a bar of so many steps."""
        self._task = self._bar.add_task(what, total=steps)
        self._bar.start()

    def step(self, steps: float = 1) -> None:
        """So many steps are done."""
        if self._task is not None:
            self._bar.advance(self._task, steps)
