# SPDX-License-Identifier: Apache-2.0
"""`tools/lab fire`: faults of a real message broker under load."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from shared_scheduler.transport.transport_settings import SCHEDULER_QUEUE_MAX_MESSAGES
from tools.laboratory.errors import LabError
from tools.laboratory.fire import results
from tools.laboratory.fire.drill import OBSERVED_EVERY_S, Drill, Finding
from tools.laboratory.fire.environment import Environment, Sizes
from tools.laboratory.fire.faults import Fault, faults
from tools.laboratory.fire.pace import HURRIED, Pace
from tools.laboratory.fire.results import Results
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, Table, add_format, rst, save, write_page

MANUAL = Manual(
    does="Faults of a real RabbitMQ, one after the other, with schedulers, simulated agents and a steady stream of "
    "requests. After each fault all tables, agents, Placement's allocations and the answers to users are "
    "compared.",
    needs="tools/install; 2 cores; 3 GB of memory for 1,000 agents and 4 schedulers. Placement is simulated.",
    lasts="With the defaults 40 minutes; `--hurried --agents 24 --schedulers 2 --processes 1` takes six.",
    examples=(
        ("tools/lab fire --list", "names and descriptions of the faults"),
        ("tools/lab fire --hurried --agents 50 --schedulers 2 --processes 1 --rate 4", "all faults, in minutes"),
        ("tools/lab fire --agents 10000 --faults restart", "all agents join at once; a restart of the broker"),
        (
            "tools/lab fire --agents 10000 --schedulers 8 --faults cold-start --queue-max 200000 --rest 60",
            "all agents join; the idle fleet; all schedulers start at once",
        ),
        ("tools/lab fire --save FILE --page doc/source/contributor/broker_faults.rst", "a full run, for the pages"),
    ),
    wrong="a request without an answer, over-commit, a table that stays wrong, a fault without its effect",
)

PAGE_MARK = ".. Everything below is written by tools/lab fire --show RESULTS --page PAGE"


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = MANUAL.parser("tools/lab fire")
    made.add_argument("--agents", type=int, default=1000, help="number of simulated agents (default: %(default)s)")
    made.add_argument("--schedulers", type=int, default=4, help="number of scheduler processes (default: %(default)s)")
    made.add_argument("--processes", type=int, default=4,
                      help="number of processes that run the agents (default: %(default)s)")  # fmt: skip
    made.add_argument("--rate", type=float, default=10.0, help="requests per second (default: %(default)s)")
    made.add_argument("--faults", default="",
                      help="names of faults, separated by commas (default: all; 'none': agents only join)")  # fmt: skip
    made.add_argument("--queue-max", type=int, metavar="N",
                      help="number of messages that the broker stores for a scheduler (default: 2000, 100 if hurried; "
                      f"the product's: {SCHEDULER_QUEUE_MAX_MESSAGES})")  # fmt: skip
    made.add_argument("--hurried", action="store_true", help="use short intervals of AMQP heartbeats and heartbeats")
    made.add_argument("--rest", type=float, default=0.0, metavar="S",
                      help="after joining, measure the idle fleet for S seconds (default: not)")  # fmt: skip
    made.add_argument("--list", action="store_true", help="list the faults")
    made.add_argument("--save", type=Path, metavar="FILE", help="write the figures to FILE (JSON), after each fault")
    made.add_argument("--page", type=Path, metavar="FILE",
                      help="write the tables into this page, doc/source/contributor/broker_faults.rst")  # fmt: skip
    made.add_argument("--show", type=Path, metavar="FILE", nargs="+", help="only print the tables of saved runs")
    add_format(made)
    return made


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Inject the faults, or read the results of an earlier run."""
    pace = HURRIED if asked.hurried else Pace()
    pace = replace(pace, queue_max=asked.queue_max or pace.queue_max)
    if asked.list:
        known = {fault.name: fault.story for fault in faults(pace)}
        return Report(known, [Table(["fault", "what it does"], [*map(list, known.items())], left=(0, 1))])
    found = [results.read(path) for path in asked.show] if asked.show else [drill(asked, pace, progress)]
    parts = [part for one in found for part in one.parts()]
    if asked.page:
        write_page(asked.page, PAGE_MARK, "\n".join(map(rst, parts)))
    data = found[0].as_dict() if len(found) == 1 else [one.as_dict() for one in found]
    return Report(data, parts, any(one.wrong for one in found))


def drill(asked: argparse.Namespace, pace: Pace, progress: ProgressLine) -> Results:
    """Inject all requested faults, one after the other."""
    chosen = _chosen(asked.faults, pace)
    sizes = Sizes(asked.agents, asked.schedulers, asked.processes, asked.rate)
    with Environment(sizes, pace, progress.say) as environment:
        drill = Drill(environment, progress.say, max(OBSERVED_EVERY_S, asked.agents * OBSERVED_EVERY_S / 5000))
        progress.expect(1 + len(chosen) + bool(asked.rest), "faults")
        try:
            findings: list[Finding] = []
            for found in carry_out(drill, chosen, asked.rest):
                findings.append(found)
                progress.step()
                wrong = found.wrong + found.unseen or "nothing"
                progress.say(f"  healed after {found.healed_s:.1f} s; {found.requests}; wrong: {wrong}")
                result = Results.of(environment, findings)
                save(asked.save, result.as_dict())  # a run takes long, and may be interrupted
            return result
        finally:
            drill.end()


def _chosen(names: str, pace: Pace) -> list[Fault]:
    known = {fault.name: fault for fault in faults(pace)}
    wanted = [name for name in names.split(",") if name and name != "none"] if names else list(known)
    if unknown := set(wanted) - known.keys():
        raise LabError(f"no such fault: {', '.join(sorted(unknown))}; --list names them")
    return [known[name] for name in wanted]


def carry_out(drill: Drill, chosen: Sequence[Fault], rest_s: float = 0.0) -> Iterator[Finding]:
    """Join, rest, then one fault after the other."""
    yield drill.join()
    if rest_s:
        yield drill.rest(rest_s)
    yield from map(drill.inflict, chosen)
