# SPDX-License-Identifier: Apache-2.0
"""Argument types that reject wrong values with a message for the user."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def whole(least: int, most: int) -> Callable[[str], int]:
    """An argument type for integers from ``least`` to ``most``."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not within {least} and {most}")
        return value

    return convert


def number(least: float, most: float) -> Callable[[str], float]:
    """An argument type for numbers from ``least`` to ``most``; ``1%`` is 0.01."""

    def convert(text: str) -> float:
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value:g} is not within {least:g} and {most:g}")
        return value

    return convert


def new_file(text: str) -> str:
    """An argument type for a file to write.  Checked at the start, because the command writes it when it ends."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a directory")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path.parent}")
    return text


@dataclass(frozen=True, slots=True)
class Number:
    """An argument that takes a number from ``least`` to ``most``; ``unit`` is its placeholder in the help."""

    flag: str
    least: float
    most: float
    unit: str
    help: str
    default: float = 0.0
    #: name of the flag in earlier releases, still accepted
    old_flag: str | None = None

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add this argument to the parser."""
        parser.add_argument(
            self.flag, *filter(None, [self.old_flag]), type=number(self.least, self.most), default=self.default,
            metavar=self.unit, help=self.help,
        )  # fmt: skip
