# SPDX-License-Identifier: Apache-2.0
"""The plain tables of the commands."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from shared_scheduler.cmd import printed_tables


def test_columns_are_as_wide_as_their_widest_cell_on_the_screen() -> None:
    rows = [["compute-1", "7", "kept"], ["計算", "1000", ""]]

    assert printed_tables.lines(("host", "servers", "why"), rows, numbers=[1]) == [
        "host       servers  why",
        "compute-1        7  kept",
        "計算          1000",
    ]
    assert cell_len("計算          1000") == cell_len("host       servers")


def test_a_table_without_rows_is_its_head() -> None:
    assert printed_tables.lines(("host", "", "why"), []) == ["host    why"]


def test_no_cell_is_cut_off_or_broken() -> None:
    long = "VCPU 4/64, " * 2000
    [_, line] = printed_tables.lines(("host", "used"), [["c1", long]])
    assert line == f"c1    {long.rstrip()}"


@pytest.mark.parametrize("numbers", [(), (1,)])
def test_rich_draws_the_same_table_on_a_terminal(numbers: tuple[int, ...]) -> None:
    from rich.console import Console

    head, rows = ("host", "servers"), [["c1", "1"], ["計算", "20"]]
    console = Console(width=80, color_system=None)
    with console.capture() as drawn:
        console.print(printed_tables.table(head, rows, numbers))

    assert [line.rstrip() for line in drawn.get().splitlines()] == printed_tables.lines(head, rows, numbers)
