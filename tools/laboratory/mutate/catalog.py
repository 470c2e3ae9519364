# SPDX-License-Identifier: Apache-2.0
"""The planted mistakes: data in ``mistakes/*.toml``, one table each.

A file has ``tests``, the unit tests of its packages, ``fast``, the fast ones of these, and ``simulated``: whether the
scenarios and the simulator run the code as well.  A mistake has:

=========  ========================================================================================
name       as it is shown, and given to ``--only``
kind       one of ``KINDS``
file       the file of the product, from the root of the repository
says       one sentence: what is wrong then
old, new   the exact text and its replacement; ``old`` occurs once in the file
tests      the tests that should notice it first, instead of ``fast``; optional
=========  ========================================================================================
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tools.laboratory.errors import LabError

DIRECTORY = Path(__file__).with_name("mistakes")

#: kind -> what it means
KINDS: Mapping[str, str] = {
    "second_time": "right the first time, wrong the second",
    "derived_data": "data that follows from other data is not kept up",
    "one_value": "right as long as there is one of something, or none",
    "never_rests": "right, but again and again",
    "missing_reset": "what should have ended goes on to count",
    "skipped_branch": "a case is left out",
    "wrong_comparison": "compared with the wrong thing, in the wrong order or direction",
    "wrong_bound": "a bound of something else, or none",
    "wrong_unit": "another unit, or another beginning of time",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One planted mistake; the docstring of the module describes the fields."""

    name: str
    kind: str
    file: str
    says: str
    old: str
    new: str
    tests: tuple[str, ...]
    package_tests: tuple[str, ...]
    simulated: bool

    @property
    def package(self) -> str:
        """The package that it is in: ``shared_scheduler/core``, ``compute_agent/tap``."""
        return str(Path(self.file).parent)

    def planted_in(self, text: str) -> str:
        """The text of the file with the mistake.

        :raises LabError: when ``old`` does not occur exactly once
        """
        found = text.count(self.old)
        if found != 1:
            raise LabError(f"mistake {self.name}: its text occurs {found} times in {self.file}, not once; correct it")
        return text.replace(self.old, self.new)


def all_mistakes() -> list[Mistake]:
    """Every mistake, in the order of the files.

    :raises LabError: when a file is not as it should be
    """
    return [one for path in sorted(DIRECTORY.glob("*.toml")) for one in _of_file(path)]


def chosen(patterns: Sequence[str]) -> list[Mistake]:
    """The mistakes whose name matches one of the patterns (``*`` stands for any text); all without patterns.

    :raises LabError: when a pattern matches none
    """
    every = all_mistakes()
    for pattern in patterns:
        if not any(fnmatchcase(one.name, pattern) for one in every):
            raise LabError(f"--only {pattern}: no mistake has this name; --list shows all")
    return [one for one in every if not patterns or any(fnmatchcase(one.name, pattern) for pattern in patterns)]


def _of_file(path: Path) -> list[Mistake]:
    content = tomllib.loads(path.read_text())
    package_tests, simulated = tuple(content["tests"]), bool(content.get("simulated"))
    fast = content.get("fast", ())
    return [_mistake(path, {"tests": fast, **found}, package_tests, simulated) for found in content["mistake"]]


def _mistake(path: Path, found: Mapping[str, Any], package_tests: tuple[str, ...], simulated: bool) -> Mistake:
    try:
        made = Mistake(**{**found, "tests": tuple(found["tests"])}, package_tests=package_tests, simulated=simulated)
    except TypeError as error:
        raise LabError(f"{path.name}: {found.get('name')}: {error}") from None
    if made.kind not in KINDS:
        raise LabError(f"{path.name}: {made.name}: the kind {made.kind} is none of {', '.join(KINDS)}")
    return made
