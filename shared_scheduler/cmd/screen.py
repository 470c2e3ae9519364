# SPDX-License-Identifier: Apache-2.0
"""A terminal on which a view is drawn in place by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:  # importing rich takes longer than printing a help text
    from rich.console import Console, RenderableType
    from rich.text import Text


class Screen:
    """A terminal on which each frame replaces the one before; what does not fit is cut off."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False,
            vertical_overflow="crop",
        )  # fmt: skip
        self._live.start()

    def draw(self, blocks: list[RenderableType]) -> None:
        """Replace the frame; blank lines separate the blocks if the terminal has room for them."""
        from rich.console import Group

        needed = sum(len(self._console.render_lines(block, pad=False)) for block in blocks)
        if needed + len(blocks) - 1 <= self._console.height:
            blocks = [part for block in blocks for part in (block, "")][:-1]
        self._live.update(Group(*blocks), refresh=True)

    def close(self) -> None:
        """Leave the last frame, whole, and make the cursor visible below it."""
        self._live.stop()


def screen_on(out: TextIO) -> Screen | None:
    """The screen of a terminal; None if ``out`` is no terminal, or one that cannot move its cursor."""
    if not out.isatty():
        return None
    from rich.console import Console

    console = Console(file=out, force_terminal=True, force_interactive=True, highlight=False, markup=False, emoji=False)
    return None if console.is_dumb_terminal else Screen(console)


def line(*parts: str | tuple[str, str]) -> Text:
    """A line that is cut off where the terminal ends; a pair is text and its style."""
    from rich.text import Text

    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
