# SPDX-License-Identifier: Apache-2.0
"""`tools/lab bench`: requests per second and their cost, compared with nova-scheduler."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tools.laboratory import machine
from tools.laboratory.bench import contest, plots, report
from tools.laboratory.bench.contest import (
    FLOOR,
    SHARED,
    SHARED_WITH_HOST_KEYS,
    SHARED_WITHOUT_AGENTS,
    SHARED_WITHOUT_RECORDS,
    STOCK,
    Contestant,
    Plan,
)
from tools.laboratory.bench.environment import opened
from tools.laboratory.bench.results import Results, from_json
from tools.laboratory.errors import LabError
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, add_format, save, write_page

MANUAL = Manual(
    does="Runs shared-scheduler and stock nova-scheduler on this machine, one after the other in interleaved "
    "repeats, over the real RPC with a real Placement, MariaDB and RabbitMQ. Hosts exist in the databases "
    "only; the agents are simulated, many in one process, on the real broker and with the real Placement. After each "
    "round Placement's allocations are compared with the answers to the callers.",
    needs="tools/install; 2 cores, if possible without other load; 2 GB of memory for 1,000 hosts.",
    lasts="A minute to start, then 75 seconds for each size, repeat and contestant with the defaults, 85 with agents, "
    "more where stock nova-scheduler is slow: 17 minutes in all.",
    examples=(
        ("tools/lab bench --hosts 100 --repeats 1 --seconds 5", "a short run, two minutes"),
        ("tools/lab bench --hosts 100,1000 --floor --save FILE", "the run shown in doc/source/user/benchmarks.rst"),
        ("tools/lab bench --hosts 10000 --burst 100 --floor", "100 servers in one request and in 100 requests"),
        ("tools/lab bench --only shared --without-records", "what the records of decisions cost"),
        (
            "tools/lab bench --hosts 1000 --schedulers 1,2,4,8 --callers 1,8,64 --save FILE --plots DIR",
            "more than one scheduler, with plots",
        ),
        ("tools/lab bench --show FILE FILE --plots DIR", "plots of saved runs together"),
        ("tools/lab bench --only shared --host-keys", "what it costs to sign and to verify messages"),
        ("tools/lab bench --only shared --profile DIR", "a CPU profile of our scheduler"),
        ("tools/lab bench --show FILE --format rst", "the tables of a saved run"),
    ),
    wrong="a request that failed, or allocations that differ from the answers",
)

PAGE_MARK = ".. Everything below is written by tools/lab bench --show RESULTS --page PAGE"


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number above zero")
    return number


def numbers(text: str) -> tuple[int, ...]:
    """`100,1000`"""
    return tuple(positive(part) for part in text.split(","))


def parser() -> argparse.ArgumentParser:
    """The options."""
    own = MANUAL.parser("tools/lab bench")
    own.add_argument("--hosts", type=numbers, default=(100, 1000), metavar="N,...",
                     help="numbers of hosts (default 100,1000)")  # fmt: skip
    own.add_argument("--repeats", type=positive, default=3, metavar="N", help="repeats of each measurement (default 3)")
    own.add_argument("--only", choices=("stock", "shared", "floor"), help="measure only this one")
    own.add_argument("--agents", choices=("with", "without", "both"), default="with",
                     help="our scheduler with an agent on each node (default), without agents, or both")  # fmt: skip
    own.add_argument("--without-records", action="store_true",
                     help="also measure our scheduler with agents and without records: what records cost")  # fmt: skip
    own.add_argument("--host-keys", action="store_true",
                     help="also measure our scheduler and agents with host keys: what they cost")  # fmt: skip
    own.add_argument("--floor", action="store_true", help="also measure writes to Placement without a scheduler")
    own.add_argument("--callers", type=numbers, default=(1, 8), metavar="N,...",
                     help="concurrent callers, one measurement each (default 1,8)")  # fmt: skip
    own.add_argument("--seconds", type=float, default=20.0, metavar="S",
                     help="duration of one measurement (default 20)")  # fmt: skip
    own.add_argument("--least", type=positive, default=16, metavar="N",
                     help="minimum number of requests in a measurement (default 16)")  # fmt: skip
    own.add_argument("--burst", type=positive, default=0, metavar="N",
                     help="ask for N servers at once, in one request and in N requests, instead of by callers that "
                          "call repeatedly")  # fmt: skip
    own.add_argument("--limit", type=float, default=contest.LIMIT_S, metavar="S",
                     help="begin no request later than S seconds after a measurement or a burst has begun "
                          f"(default {contest.LIMIT_S:.0f})")  # fmt: skip
    own.add_argument("--schedulers", type=numbers, default=(1,), metavar="N,...",
                     help="numbers of scheduler processes, one round each (default 1)")  # fmt: skip
    own.add_argument("--pack", action="store_true",
                     help="prefer the hosts with the least free, so that many requests want the same host")  # fmt: skip
    own.add_argument("--agent-processes", type=positive, default=1, metavar="N",
                     help="number of processes that run the agents (default 1)")  # fmt: skip
    own.add_argument("--placement-app", action="store_true",
                     help="run Placement with the write path of shared_scheduler.placement_app")  # fmt: skip
    own.add_argument("--durable", action="store_true",
                     help="each commit of MariaDB waits for the disk (default: once a second)")  # fmt: skip
    own.add_argument("--profile", default="", metavar="DIR", help="write CPU profiles of the scheduler to DIR")
    own.add_argument("--data", type=Path, metavar="DIR", help="directory of all files (default: a temporary directory)")
    own.add_argument("--keep", action="store_true", help="do not remove the temporary directory, which has the logs")
    own.add_argument("--save", type=Path, metavar="FILE", help="write the results to FILE (JSON)")
    own.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="only print saved results")
    own.add_argument("--plots", type=Path, metavar="DIR",
                     help="write plots over hosts, schedulers and callers to DIR (SVG)")  # fmt: skip
    own.add_argument("--page", type=Path, metavar="FILE",
                     help="write the tables into this page, doc/source/user/benchmarks.rst")  # fmt: skip
    add_format(own)
    return own


def contestants(
    only: str | None,
    agents: str,
    floor: bool,
    schedulers: tuple[int, ...],
    without_records: bool = False,
    host_keys: bool = False,
) -> tuple[Contestant, ...]:
    below = (FLOOR,) if floor or only == "floor" else ()
    ours = {"with": (SHARED,), "without": (SHARED_WITHOUT_AGENTS,), "both": (SHARED, SHARED_WITHOUT_AGENTS)}[agents]
    ours += (SHARED_WITHOUT_RECORDS,) if without_records else ()
    ours += (SHARED_WITH_HOST_KEYS,) if host_keys else ()
    chosen = {"stock": (STOCK,), "shared": ours, "floor": (), None: (STOCK, *ours)}[only]
    return (*(one.with_workers(number) for number in schedulers for one in chosen), *below)


def measure(asked: argparse.Namespace, progress: ProgressLine) -> Results:
    """Run the contest; after an interruption or an error, returns the measurements so far."""
    plan = Plan(
        sizes=asked.hosts, contestants=contestants(asked.only, asked.agents, asked.floor, asked.schedulers,
                                             asked.without_records, asked.host_keys),
        burst=asked.burst, limit_s=asked.limit,
        repeats=asked.repeats, callers=asked.callers, seconds=asked.seconds, least=asked.least,
        agent_processes=asked.agent_processes, profile=asked.profile, placement_app=asked.placement_app,
        pack=asked.pack, durable=asked.durable,
    )  # fmt: skip
    results = Results(machine.describe(), asdict(plan))
    with opened(asked.data, asked.keep, progress.say, asked.placement_app, asked.durable) as world:
        try:
            contest.run(world, plan, results, progress)
        except (KeyboardInterrupt, SystemExit, LabError) as error:  # SystemExit: ended by a signal
            progress.say(f"ended early: {error or 'interrupted'}")
            results.rounds = [one for one in results.rounds if one.measurements or one.bursts]
    return results


def load(path: Path) -> Results:
    """The results of a file.

    :raises LabError: when it contains none
    """
    try:
        return from_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path}: no results of this benchmark ({error})") from None


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Measure, or read saved results."""
    found = [load(path) for path in asked.show] if asked.show else [measure(asked, progress)]
    if not asked.show:
        save(asked.save, found[0].as_json())
    if asked.plots:
        plots.write(found, asked.plots)
    if asked.page:
        write_page(asked.page, PAGE_MARK, "\n".join(map(report.page_of, found)))
    reports = [report.report_of(results) for results in found]
    parts = [f"written: {asked.page}"] if asked.page else [part for one in reports for part in one.parts]
    data = reports[0].data if len(reports) == 1 else [one.data for one in reports]
    return Report(data, parts, any(one.wrong for one in reports))
