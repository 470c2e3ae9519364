# SPDX-License-Identifier: Apache-2.0
"""`tools/lab fuzz`: mutated messages against codec, envelopes, window, scheduler and agent."""

import argparse
import logging
import resource
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from tools.laboratory.fuzz.targets import TARGETS
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, Table, add_format

MANUAL = Manual(
    does="Feeds mutated messages to everything that receives messages, and checks after each of them that nothing was "
    "raised and that no message of one host has changed the row of another. The inputs of a round follow from its "
    "number, so an error is repeated with --first. The rounds of the seeds file, which found errors once, are played "
    "first. Without --target, the slow targets get fewer rounds than the others.",
    needs="Nothing besides the packages of the project.",
    lasts="As long as --seconds says; about four thousand inputs per CPU second.",
    examples=(
        ("tools/lab fuzz --seconds 20", "a short run over all targets"),
        ("tools/lab fuzz --seconds 36000 --progress-s 60", "hours"),
        ("tools/lab fuzz --target scheduler --first 4711 --rounds 1", "one round again"),
    ),
    wrong="an input raised an error or violated an invariant, or memory grew beyond --memory-mb",
)
ROUND_INPUTS = 200
#: slow target -> one of so many rounds is played when all targets are
ROUNDS_APART: Mapping[str, int] = {"records": 20, "page": 4}
SEEDS = Path(__file__).with_name("seeds.txt")
SHOWN_MAX = 10


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = MANUAL.parser("tools/lab fuzz")
    top.add_argument("--target", action="append", choices=list(TARGETS), help="only this one (default: all)")
    top.add_argument("--seconds", type=float, default=30.0, help="stop after this time (default 30)")
    top.add_argument("--rounds", type=int, default=None, help=f"stop after so many rounds of {ROUND_INPUTS} inputs")
    top.add_argument("--first", type=int, default=0, help="number of the first round (default 0)")
    top.add_argument("--memory-mb", type=int, default=300, help="by how much memory may grow (default 300)")
    top.add_argument("--progress-s", type=float, default=10.0, help="time between two lines (default 10)")
    add_format(top)
    return top


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Play rounds until the time is over."""
    logging.disable(logging.CRITICAL)  # each refused message would be a line
    try:
        return play(asked, progress)
    finally:
        logging.disable(logging.NOTSET)


def play(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Play rounds until the time is over."""
    until_s, said_s, begun_mb = time.monotonic() + asked.seconds, time.monotonic(), memory_mb()
    inputs, valid, wrong = Counter[str](), Counter[str](), list[str]()
    for target, number in numbers(asked.target, asked.first, asked.rounds):
        if time.monotonic() >= until_s:
            break
        fed, understood, error = play_round(target, number)
        inputs[target] += fed
        valid[target] += understood
        if error:
            wrong.append(f"{target}, round {number}: {error}")
            progress.say(wrong[-1])
        if time.monotonic() - said_s >= asked.progress_s:
            said_s = time.monotonic()
            progress.say(f"{inputs.total()} inputs, {len(wrong)} errors, {memory_mb() - begun_mb} MB more memory")
    return report_of(inputs, valid, wrong, memory_mb() - begun_mb, asked.memory_mb)


def numbers(asked: list[str] | None, first: int, rounds: int | None) -> Iterator[tuple[str, int]]:
    """The rounds to play: first those of the seeds file, then one of each target in turns (None: of all targets)."""
    targets = asked or list(TARGETS)
    apart = {} if asked else ROUNDS_APART
    for line in SEEDS.read_text().splitlines() if first == 0 else ():
        name, _, seed = line.partition(" ")
        if name in targets:
            yield name, int(seed)
    last = None if rounds is None else first + rounds
    number = first
    while last is None or number < last:
        for name in targets:
            if number % apart.get(name, 1) == 0:
                yield name, number
        number += 1


def play_round(target: str, number: int) -> tuple[int, int, str]:
    """The number of inputs of a round, of valid messages among them, and the first error, which ends the round."""
    rng = Random(f"{target} {number}")
    fed = understood = 0
    try:
        receiver = TARGETS[target](rng)
        while fed < ROUND_INPUTS:
            fed += 1
            understood += receiver.feed(rng)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return fed, understood, f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"[:2000]
    return fed, understood, ""


def memory_mb() -> int:
    """The largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def report_of(inputs: Counter[str], valid: Counter[str], wrong: list[str], more_mb: int, most_mb: int) -> Report:
    """The table of the targets, and the errors."""
    rows = [[name, str(inputs[name]), str(valid[name])] for name in inputs]
    table = Table(["target", "inputs", "valid messages"], rows)
    total = f"{inputs.total()} inputs, {len(wrong)} errors, {more_mb} MB more memory"
    parts: list[str | Table] = [table, total, *wrong[:SHOWN_MAX]]
    data = {"inputs": inputs, "valid": valid, "errors": wrong, "more_memory_mb": more_mb}
    return Report(data, parts, wrong=bool(wrong) or more_mb > most_mb)
