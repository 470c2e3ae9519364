# SPDX-License-Identifier: Apache-2.0
"""Argument types that reject wrong values with a message for the user."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

UNITS_S = {"m": 60, "h": 3600, "d": 86400}
#: the forms that ``when`` reads
WHEN_FORMS = "30m, 12h or 7d (ago), 2026-11-23T17:00 (UTC), 2026-11-23T17:00+01:00, or seconds since 1970"
WHEN_HELP = f"a time such as {WHEN_FORMS}"


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


def when(text: str) -> float:
    """An argument type for moments, in seconds since 1970: an age, a time, which is UTC without a zone, or seconds.

    Source of the times: ISO 8601.
    """
    age = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if age is not None:
        return time.time() - int(age[1]) * UNITS_S[age[2]]
    if re.fullmatch(r"\d{1,12}([.]\d*)?", text):
        return float(text)
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as {WHEN_FORMS}") from None


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
