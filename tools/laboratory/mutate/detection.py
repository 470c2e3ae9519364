# SPDX-License-Identifier: Apache-2.0
"""Whether the tests notice a mistake.  Stages run in turn, and the first one that fails has noticed it:

==============  =======================================================================================
stage           what runs
==============  =======================================================================================
``tests``       the tests that the mistake names, which are fast
``package``     the unit tests of its package, without those that are marked as long
``scenarios``   ``tests/scenario``, if scenarios run this code
``simulator``   the first ``SEEDS`` drawn worlds, in which every invariant is checked
==============  =======================================================================================

Each runs as in ``tools/test``, with the number of examples that a normal run has.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tools.laboratory.errors import LabError
from tools.laboratory.mutate.catalog import Mistake
from tools.laboratory.mutate.tree import Tree

#: worlds of the last stage; ``tools/test`` runs 300
SEEDS = 60
#: exit codes with which pytest and ``simulate`` say that a test or an invariant failed, or could not be imported
NOTICED = frozenset({1, 2})
#: the process that runs the stages
PREPARED = "tools.laboratory.mutate.prepared"
STAGES = ("tests", "package", "scenarios", "simulator")


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one mistake.  ``stage`` is empty if nothing has noticed it; ``by``: the test or invariant."""

    mistake: Mistake
    stage: str
    by: str
    took_s: float

    @property
    def noticed(self) -> bool:
        """Whether any stage has noticed it."""
        return bool(self.stage)


@dataclass(frozen=True, slots=True)
class Stage:
    """One command, ``python -m module arguments``; its exit code says whether the mistake was noticed."""

    name: str
    module: str
    arguments: tuple[str, ...]


class Runner:
    """Runs stages in a copied tree, by way of a process that is prepared (``prepared.py``)."""

    def __init__(self, tree: Tree, timeout_s: float, process: subprocess.Popen[str]) -> None:
        self._tree = tree
        self._timeout_s = timeout_s
        self._process = process

    def noticed_by(self, stage: Stage) -> str:
        """The test or invariant that fails; empty if none does.

        :raises LabError: when the stage cannot run
        """
        asked = {"module": stage.module, "arguments": stage.arguments, "timeout_s": self._timeout_s}
        code, output = self._answer(json.dumps(asked))
        if code is None:
            return f"no end within {self._timeout_s:.0f} s"
        if code and code not in NOTICED:
            last = "\n".join(output.splitlines()[-20:])
            raise LabError(f"stage {stage.name} ended with {code}: {' '.join(stage.arguments)}\n{last}")
        return _first_failure(output) if code else ""

    def _answer(self, line: str) -> tuple[int | None, str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise LabError("the process that runs the tests has ended; its errors are above")
        found = json.loads(answer)
        return found["code"], found["output"]

    def try_one(self, mistake: Mistake, wanted: Sequence[str] = STAGES) -> Trial:
        """Plant a mistake and run the stages until one notices it.

        :raises LabError: when a stage cannot run
        """
        began_s = time.monotonic()
        with self._tree.with_mistake(mistake):
            for stage in stages_of(mistake, wanted):
                by = self.noticed_by(stage)
                if by:
                    return Trial(mistake, stage.name, by, time.monotonic() - began_s)
        return Trial(mistake, "", "", time.monotonic() - began_s)


@contextmanager
def runner(tree: Tree, timeout_s: float) -> Iterator[Runner]:
    """A runner for a tree; at the end its process is ended, with everything that it has started."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        (sys.executable, "-m", PREPARED), cwd=tree.path, env=environment, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Runner(tree, timeout_s, process)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def stages_of(mistake: Mistake, wanted: Sequence[str] = STAGES) -> Iterator[Stage]:
    """The stages for a mistake, the fastest first."""
    options = ("-x", "-q", "--durations=0", "-p", "no:cacheprovider")
    simulate = ("simulate", "--jobs", "1", "--seed", "1", "--seeds", str(SEEDS))
    stages = {
        "tests": Stage("tests", "pytest", (*options, *mistake.tests)) if mistake.tests else None,
        "package": _of_package(mistake, options) if mistake.package_tests else None,
        "scenarios": Stage("scenarios", "pytest", (*options, "tests/scenario")) if mistake.simulated else None,
        "simulator": Stage("simulator", "shared_scheduler.cmd.manage", simulate) if mistake.simulated else None,
    }
    return (stage for name in STAGES if name in wanted and (stage := stages[name]) is not None)


def _of_package(mistake: Mistake, options: tuple[str, ...]) -> Stage:
    return Stage("package", "pytest", (*options, "-m", "not long", *mistake.package_tests))


def _first_failure(output: str) -> str:
    """The test in the summary of pytest, or the invariant in the output of ``simulate``."""
    lines = output.splitlines()
    for line in lines:
        if line.startswith(("FAILED tests", "ERROR tests")):  # not a line of a captured log
            return line.split(" - ")[0].split(maxsplit=1)[1]
    return next((line.strip() for line in lines if "seed" in line and ":" in line), lines[-1] if lines else "it failed")
