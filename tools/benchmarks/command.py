# SPDX-License-Identifier: Apache-2.0
"""The command line of `tools/benchmark`."""

import argparse
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from ..realcloud.errors import CloudError
from . import contest, machine, report
from .contest import FLOOR, SHARED, SHARED_WITHOUT_AGENTS, STOCK, Contestant, Plan
from .results import Results, from_json
from .world import opened

DESCRIPTION = """Runs shared-scheduler and stock nova-scheduler on this machine, one after the other in interleaved
repeats, over the real RPC with a real Placement, MariaDB and RabbitMQ (all private, on loopback). Hosts exist in
the databases only; the agents are simulated, many in one process, on the real broker.
`tools/benchmark --show FILE...` prints the tables of saved results."""

PAGE_MARK = ".. Everything below is written by tools/benchmark --show RESULTS --page PAGE"


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number above zero")
    return number


def numbers(text: str) -> tuple[int, ...]:
    """`100,1000`"""
    return tuple(positive(part) for part in text.split(","))


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(prog="tools/benchmark", description=DESCRIPTION,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    own.add_argument("--hosts", type=numbers, default=(100, 1000), metavar="N,...", help="sizes (default 100,1000)")
    own.add_argument("--repeats", type=positive, default=3, metavar="N", help="rounds of each (default 3)")
    own.add_argument("--only", choices=("stock", "shared", "floor"), help="measure one contestant")
    own.add_argument("--agents", choices=("with", "without", "both"), default="with",
                     help="ours with an agent beside each node (default), without any, or both")  # fmt: skip
    own.add_argument("--floor", action="store_true", help="measure too what the write to Placement alone costs")
    own.add_argument("--callers", type=numbers, default=(1, 8), metavar="N,...",
                     help="concurrent callers, one measurement each (default 1,8)")  # fmt: skip
    own.add_argument("--seconds", type=float, default=20.0, metavar="S", help="time of one measurement (default 20)")
    own.add_argument("--least", type=positive, default=16, metavar="N", help="requests of one at least (default 16)")
    own.add_argument("--agent-processes", type=positive, default=1, metavar="N", help="for all agents (default 1)")
    own.add_argument("--profile", default="", metavar="DIR", help="write where the scheduler spends its time to DIR")
    own.add_argument("--data", type=Path, metavar="DIR", help="keep everything in DIR (default: a temporary directory)")
    own.add_argument("--keep", action="store_true", help="do not remove the temporary directory: logs")
    own.add_argument("--save", type=Path, metavar="FILE", help="write the results to FILE (JSON)")
    own.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="print saved results, measure nothing")
    own.add_argument("--page", type=Path, metavar="FILE", help="write the tables into a page: doc/benchmarks.rst")
    own.add_argument("--format", choices=("text", "json", "rst"), default="text")
    return own


def contestants(only: str | None, agents: str, floor: bool) -> tuple[Contestant, ...]:
    below = (FLOOR,) if floor or only == "floor" else ()
    ours = {"with": (SHARED,), "without": (SHARED_WITHOUT_AGENTS,), "both": (SHARED, SHARED_WITHOUT_AGENTS)}[agents]
    return {"stock": (STOCK,), "shared": ours, "floor": (), None: (STOCK, *ours)}[only] + below


def say(text: str) -> None:
    """Progress goes to stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def measure(arguments: argparse.Namespace) -> Results:
    """Run the contest; what was measured before an interruption or an error is still returned."""
    plan = Plan(
        sizes=arguments.hosts, contestants=contestants(arguments.only, arguments.agents, arguments.floor),
        repeats=arguments.repeats, callers=arguments.callers, seconds=arguments.seconds, least=arguments.least,
        agent_processes=arguments.agent_processes, profile=arguments.profile,
    )  # fmt: skip
    results = Results(machine.describe(), asdict(plan))
    with opened(arguments.data, arguments.keep, say) as world:
        try:
            contest.run(world, plan, results, say)
        except (KeyboardInterrupt, CloudError) as error:
            say(f"ended early: {error or 'interrupted'}")
            results.rounds = [one for one in results.rounds if one.measurements]
    return results


def load(path: Path) -> Results:
    try:
        return from_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CloudError(f"{path}: no results of this benchmark ({error})") from None


def write_page(page: Path, tables: str) -> None:
    """Replace everything behind the mark in a page that is otherwise written by hand."""
    try:
        head, mark, _ = page.read_text().partition(PAGE_MARK)
    except OSError as error:
        raise CloudError(f"--page {page}: {error.strerror}; give the page that shows the results") from None
    if not mark:
        raise CloudError(f"--page {page}: there is no line {PAGE_MARK!r} to write the tables behind")
    page.write_text(f"{head}{mark}\n\n{tables}\n")


def run(arguments: argparse.Namespace) -> int:
    """What the arguments ask for; 1 if something was not as it must be."""
    found = [load(path) for path in arguments.show] if arguments.show else [measure(arguments)]
    if arguments.save and not arguments.show:
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text(json.dumps(found[0].as_json(), indent=1) + "\n")
    if arguments.page:
        write_page(arguments.page, "\n".join(map(report.page_of, found)))
    else:
        print("\n".join(report.text_of(results, arguments.format) for results in found))
    rounds = [one for results in found for one in results.rounds]
    return 0 if rounds and all(one.check.good() and not one.failures() for one in rounds) else 1


def main() -> int:
    arguments = parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end what was started, as for Control-C
    try:
        return run(arguments)
    except CloudError as error:
        say(f"tools/benchmark: {error}")
        return 1
