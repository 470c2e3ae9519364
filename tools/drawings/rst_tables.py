# SPDX-License-Identifier: Apache-2.0
"""Simple tables of reStructuredText."""

from __future__ import annotations


def table(rows: list[tuple[str, ...]]) -> str:
    """A simple table; the first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    ruler = "  ".join("=" * width for width in widths)
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([ruler, lines[0].rstrip(), ruler, *(ln.rstrip() for ln in lines[1:]), ruler])
