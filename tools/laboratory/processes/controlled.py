# SPDX-License-Identifier: Apache-2.0
"""Programs of this project: a module that is started as a process and answers questions on its control socket."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tools.laboratory import ROOT
from tools.laboratory.processes.control import ANSWER_TIMEOUT_S, ControlError, Line
from tools.laboratory.processes.startup import Service, Startup, Step
from tools.laboratory.processes.table import ProcessTable, stat_of

SIGSTOPPED = "T"


class Program:
    """`python -m MODULE ARGUMENT...` in the table of processes. `hosts`: numbers of the hosts that it simulates.

    `socket` is its control socket, in the directory `home`, which also contains its log.
    """

    def __init__(self, table: ProcessTable, home: Path, name: str, hosts: range = range(0)) -> None:
        self.name, self.hosts = name, hosts
        self.socket, self.log = home / f"{name}.sock", home / f"{name}.log"
        self.ended_by = 0
        """The signal that has ended it, if `kill` did."""
        self._table = table
        self._argv: tuple[str, ...] = ()

    def runs(self, module: str, *arguments: str) -> Program:
        """Set what `start` starts."""
        self._argv = (sys.executable, "-m", f"tools.laboratory.{module}", *arguments)
        return self

    def start(self) -> None:
        """Start it, and wait until it answers."""
        start_all(self._table, [self])

    def service(self) -> Service:
        """The service that `Startup` starts."""
        return Service(self.name, "program", self._argv, self.log, env={"PYTHONPATH": str(ROOT)},
                       ready=self.socket.exists)  # fmt: skip

    def prepare(self) -> None:
        """Remove the files of an earlier run."""
        self.socket.unlink(missing_ok=True)
        self.ended_by = 0

    def ask(self, question: str, timeout_s: float | None = ANSWER_TIMEOUT_S, **fields: Any) -> Any:
        """Send one question on its own connection.

        :raises ControlError: when it does not answer, or answers with an error
        """
        line = Line(self.socket)
        try:
            return line.ask(question, timeout_s, **fields)
        finally:
            line.close()

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self._table.alive(self.name) is not None:
            self._table.signal(self.name, number)

    @property
    def stopped(self) -> bool:
        """Whether SIGSTOP has stopped it, according to the kernel."""
        process = self._table.alive(self.name)
        stat = stat_of(process.pid) if process else None
        return stat is not None and stat.state == SIGSTOPPED

    def kill(self) -> None:
        """kill -9, and wait until it has ended."""
        self.ended_by = self._table.kill(self.name)


def start_all(
    table: ProcessTable, programs: Sequence[Program], then: Callable[[Program], object] = lambda program: None
) -> None:
    """Start all at the same time, and wait until each answers. `then` is called with each as soon as it answers.

    :raises LabError: when one does not answer
    """
    for program in programs:
        program.prepare()
    steps = [Step(f"after {each.name}", (each.name,), partial(then, each)) for each in programs]
    Startup(table, steps, {program.name: program.service() for program in programs}, lambda line: None).run()


def ask_all(programs: Sequence[Program], question: str, **fields: Any) -> list[Any]:
    """The answers of all, queried at the same time."""
    with ThreadPoolExecutor(max(1, len(programs))) as pool:
        return list(pool.map(lambda program: program.ask(question, **fields), programs))


def ask_those_that_answer(programs: Sequence[Program], question: str, timeout_s: float) -> list[Any]:
    """The same; None for one that does not answer."""

    def one(program: Program) -> Any:
        try:
            return program.ask(question, timeout_s)
        except ControlError:
            return None

    with ThreadPoolExecutor(max(1, len(programs))) as pool:
        return list(pool.map(one, programs))


def shares(first: int, last: int, parts: int) -> list[range]:
    """Numbers `first` to `last`, divided among this number of processes."""
    count = last - first + 1
    bounds = [first + count * part // parts for part in range(parts + 1)]
    return [range(bounds[part], bounds[part + 1]) for part in range(parts)]
