# SPDX-License-Identifier: Apache-2.0
"""Placement's own functional tests, run against Placement with the write path.

They are installed with Placement: declarative tests of the HTTP interface (``gabbits``) and tests in Python.
``python -m tests.functional.placements_tests`` prints how many passed and failed as JSON; with ``--stock`` those of
Placement as it is.  Words select tests by a part of their name.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import sys
import unittest
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import placement
from gabbi.suite import GabbiSuite
from placement import deploy

from shared_scheduler.placement_app.assembly import assemble
from shared_scheduler.placement_app.handler import WritePath

INSTALLED = Path(placement.__file__).parent
TESTS = INSTALLED / "tests" / "functional"


@dataclass
class Writes:
    """Requests for ``PUT`` and ``POST /allocations``."""

    all: int = 0
    by_write_path: int = 0


@dataclass(frozen=True)
class Outcome:
    """How the tests ended."""

    run: int
    passed: int
    skipped: int
    failed: list[str]
    writes: Writes


@contextmanager
def write_path() -> Iterator[Writes]:
    """Each application that Placement loads has the write path, and its requests are counted."""
    writes, load, answer = Writes(), deploy.loadapp, WritePath._answer

    def counted(self: WritePath, request: Any) -> Any:
        writes.all += 1
        found = answer(self, request)
        writes.by_write_path += 1
        return found

    deploy.loadapp = lambda config, *_: assemble(lambda: load(config))
    WritePath._answer = counted  # type: ignore[method-assign]
    try:
        yield writes
    finally:
        deploy.loadapp = load
        WritePath._answer = answer  # type: ignore[method-assign]


def tests_with(words: Sequence[str]) -> unittest.TestSuite:
    """The tests with one of these words in their name, or all without words; a gabbi file is never divided."""
    loader = unittest.TestLoader()
    found = loader.discover(str(TESTS), top_level_dir=str(INSTALLED.parent))
    assert not loader.errors, loader.errors
    return unittest.TestSuite(one for one in _parts(found) if not words or _is_named(one, words))


def _parts(suite: unittest.TestSuite) -> Iterator[unittest.TestSuite | unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite) and not isinstance(one, GabbiSuite):
            yield from _parts(one)
        else:
            yield one


def _is_named(part: Any, words: Sequence[str]) -> bool:
    names = [one.id() for one in part] if isinstance(part, GabbiSuite) else [part.id()]
    return any(word in name for name in names for word in words)


def run(words: Sequence[str], with_write_path: bool) -> Outcome:
    """Run them in this process."""
    with write_path() if with_write_path else nullcontext(Writes()) as writes:
        result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(tests_with(words))
    failed = sorted(test.id() for test, _ in (*result.failures, *result.errors))
    passed = result.testsRun - len(failed) - len(result.skipped)
    return Outcome(result.testsRun, passed, len(result.skipped), failed, writes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--stock", action="store_true", help="Placement as it is, without the write path")
    arguments = parser.parse_args()
    outcome = run(arguments.words, not arguments.stock)
    print(json.dumps(dataclasses.asdict(outcome), indent=1))
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
