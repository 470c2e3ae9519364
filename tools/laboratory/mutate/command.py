# SPDX-License-Identifier: Apache-2.0
"""`tools/lab mutate`: plants mistakes, and reports which of them the tests notice."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tools.laboratory.manual import Manual
from tools.laboratory.mutate.catalog import Mistake, chosen
from tools.laboratory.mutate.detection import STAGES, Trial, runner
from tools.laboratory.mutate.tree import copied
from tools.laboratory.report import ProgressLine, Report, Table, add_format, save

MANUAL = Manual(
    does="Plants realistic single mistakes in a copy of this repository, one after the other, and runs for each the "
    "tests that should notice it: those that it names, the unit tests of its package, the scenarios, and some worlds "
    "of the simulator. It stops at the first that fails.",
    needs="A clone of the repository, and nothing besides the packages of the unit tests.",
    lasts="Some seconds for each mistake that a fast test notices, and minutes for one that nothing notices.",
    examples=(
        ("tools/lab mutate --list", "all mistakes, without running anything"),
        ("tools/lab mutate --only 'window_*' --stage tests", "those of the window, with the tests that they name"),
        ("tools/lab mutate --format json --json mutate.json", "everything, also kept in a file"),
    ),
    wrong="fewer than 95 of 100 mistakes were noticed",
)
NOTICED_PERCENT_MIN = 95
HEAD = ("mistake", "package", "noticed by", "seconds")


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = MANUAL.parser("tools/lab mutate")
    top.add_argument("--only", action="append", default=[], metavar="NAME",
                     help="only mistakes with this name, in which * stands for any text (may be repeated)")  # fmt: skip
    top.add_argument("--stage", action="append", default=[], choices=STAGES,
                     help="only these stages (may be repeated; default all)")  # fmt: skip
    top.add_argument("--list", action="store_true", help="show the mistakes and run nothing")
    top.add_argument("--timeout", type=float, default=400.0, metavar="S",
                     help="time of one stage; one that does not end has noticed the mistake (default 400)")  # fmt: skip
    top.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    add_format(top)
    return top


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Try the mistakes that were asked for."""
    mistakes = chosen(asked.only)
    if asked.list:
        return _listed(mistakes)
    trials: list[Trial] = []
    with copied() as tree, runner(tree, asked.timeout) as running:
        progress.expect(len(mistakes), "mistakes")
        for mistake in mistakes:
            trials.append(running.try_one(mistake, asked.stage or STAGES))
            progress.step()
            progress.say(_line(trials[-1]))
            save(asked.json, _data(trials))
    return _report(trials)


def _line(trial: Trial) -> str:
    return f"{trial.mistake.name}: {trial.by if trial.noticed else 'NOT NOTICED'} ({trial.took_s:.0f} s)"


def _listed(mistakes: Sequence[Mistake]) -> Report:
    rows = [[one.name, one.kind, one.file, one.says] for one in mistakes]
    data = [{"name": one.name, "kind": one.kind, "file": one.file, "says": one.says} for one in mistakes]
    return Report(data, [Table(("mistake", "kind", "file", "what is wrong then"), rows, left=range(4))])


def _data(trials: Sequence[Trial]) -> dict[str, object]:
    return {
        "mistakes": len(trials),
        "noticed": sum(one.noticed for one in trials),
        "trials": [
            {
                "name": one.mistake.name,
                "kind": one.mistake.kind,
                "file": one.mistake.file,
                "says": one.mistake.says,
                "noticed": one.noticed,
                "stage": one.stage,
                "by": one.by,
                "took_s": round(one.took_s, 1),
            }
            for one in trials
        ],
    }


def _report(trials: Sequence[Trial]) -> Report:
    noticed = sum(one.noticed for one in trials)
    rows = [[one.mistake.name, one.mistake.package, one.by or "nothing", f"{one.took_s:.0f}"] for one in trials]
    stages = Counter(one.stage for one in trials if one.noticed)
    told = ", ".join(f"{stage} {stages[stage]}" for stage in STAGES if stages[stage])
    sentence = f"{noticed} of {len(trials)} mistakes were noticed ({told})"
    missed = [f"not noticed: {one.mistake.name} ({one.mistake.file}): {one.mistake.says}"
              for one in trials if not one.noticed]  # fmt: skip
    wrong = 100 * noticed < NOTICED_PERCENT_MIN * len(trials)
    return Report(_data(trials), [Table(HEAD, rows, left=(0, 1, 2)), sentence, *missed], wrong=wrong)
