# SPDX-License-Identifier: Apache-2.0
"""`tools/lab records`: the time that each question takes with many records and many hosts."""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import Record, Store
from tools.laboratory import machine
from tools.laboratory.errors import LabError
from tools.laboratory.manual import Manual
from tools.laboratory.records import made_records
from tools.laboratory.records.live_scheduler import LiveScheduler
from tools.laboratory.records.page_views import Page, views
from tools.laboratory.report import ProgressLine, Report, Table, add_format

MANUAL = Manual(
    does="Writes records as a large cloud does, to a file of JSON lines, to SQLite, and to other databases whose URLs "
    "are given; fills the table of a scheduler, which answers on its control socket; then runs each command that asks "
    "the records or the scheduler as a program of its own, asks for each view of the page, and takes the time.",
    needs="tools/install. A million records take 4 GB of disk in each store; the directory should be on a disk.",
    lasts="A million records: five minutes for each store on an idle machine.",
    examples=(
        ("tools/lab records --records 10000 --hosts 100", "a short run"),
        ("tools/lab records --records 1000000 --directory /var/tmp --format rst", "the table of the documentation"),
    ),
    wrong="a question that takes more than a second of CPU time, that of the scheduler included",
)
#: Maximum CPU time of a question: the wall clock depends on what else runs.
LIMIT_S = 1.0
#: Records in one write.
BATCH = 1_000
#: more rows than any store has here
ROWS_MAX = 1_000_000_000
#: the time that a question took, and the CPU time of its command
Took = tuple[float, float]


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = MANUAL.parser("tools/lab records")
    made.add_argument("--records", type=int, default=1_000_000, metavar="N", help="default 1000000")
    made.add_argument("--hosts", type=int, default=10_000, metavar="N", help="of the scheduler (default 10000)")
    made.add_argument("--directory", type=Path, metavar="DIR", help="of the stores, which are deleted (default: /tmp)")
    made.add_argument("--url", action="append", default=[], metavar="URL", help="another database, which is empty")
    made.add_argument("--repeats", type=int, default=3, metavar="N", help="the median is shown (default 3)")
    add_format(made)
    return made


def of_scheduler() -> Mapping[str, list[str]]:
    """Description -> arguments of the questions that a scheduler answers from its table."""
    size = ["--vcpus", "1", "--ram", "2048", "--disk", "20"]
    return {
        "fit: one server": ["fit", *size],
        "fit: 40 servers": ["fit", *size, "--number", "40"],
        "fit: too large for all hosts": ["fit", "--vcpus", "1", "--ram", "400000", "--disk", "20"],
        "top --once --interval 0.1": ["top", "--once", "--interval", "0.1"],
        "status": ["status"],
        "status --nodes": ["status", "--nodes"],
    }


def questions(count: int, begin_s: float, sockets: Path) -> Mapping[str, list[str]]:
    """Description -> arguments of the questions to the records.  The first and the last request, every condition, and
    conditions that nothing meets."""
    middle = str(begin_s + count / 4 * made_records.BETWEEN_S)
    last, host = ["records", "last"], made_records.host(0)
    return {
        "why: the oldest server": ["why", made_records.server(0)],
        "why: an old request": ["why", f"req-{made_records.server(count // 4)}"],
        "why: nothing": ["why", "req-nothing"],
        "why-not": ["why-not", made_records.server(1), host],
        "why-not, and what a scheduler answers now": [
            "why-not", made_records.server(1), host, "--socket-dir", str(sockets),
        ],
        "story of a host": ["story", host],
        "records: the last 50": [*last, "50"],
        "records: by project": [*last, "50", "--project", "project-7"],
        "records: by host": [*last, "50", "--host", host],
        "records: by result": [*last, "50", "--result", "failed"],
        "records: by kind": [*last, "50", "--kind", "build"],
        "records: by reason": [*last, "50", "--reason", "fixed IP"],
        "records: by time": [*last, "50", "--until", middle],
        "records: by time and reason": [*last, "50", "--until", middle, "--reason", "fixed IP"],
        "records: no such project": [*last, "50", "--project", "nothing"],
        "records: no such host": [*last, "50", "--host", "nothing"],
        "records: no such result": [*last, "50", "--result", "nothing"],
        "records: no such reason": [*last, "50", "--reason", "nothing"],
        "records: no such time": [*last, "50", "--until", "1.0"],
        "records: two frequent conditions that exclude each other": [
            *last, "50", "--kind", "build", "--result", "no_valid_host",
        ],
        "records: three conditions that exclude each other": [
            *last, "50", "--kind", "decision", "--result", "placed", "--reason", "fixed IP",
        ],
    }  # fmt: skip


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Write the stores one after the other, and ask each.

    :raises LabError: when the directory does not exist
    """
    if asked.directory is not None and not asked.directory.is_dir():
        raise LabError(f"{asked.directory} is not a directory; create it, or omit --directory")
    found: dict[str, dict[str, Took]] = {}
    begin_s = time.time() - asked.records * made_records.BETWEEN_S
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.directory)))
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory()))  # the path of a socket is short
        progress.say(f"a scheduler of {asked.hosts} hosts")
        stack.enter_context(LiveScheduler(sockets, asked.hosts))
        for name, place, store in _stores(directory, asked.url):
            progress.expect(asked.records, f"{name}: records")
            _fill(store, made_records.made(asked.records, begin_s), progress)
            progress.say(f"{name}: asking")
            commands = questions(asked.records, begin_s, sockets).items()
            found[name] = {what: _of_command([*one, "--records", place], asked.repeats) for what, one in commands}
            with Page(place, sockets) as page:
                for what, path in views(asked.records).items():
                    found[name][what] = _median(partial(page.took, path), asked.repeats)
        progress.say("the scheduler: asking")
        where = ["--socket-dir", str(sockets)]
        live = {what: _of_command([*one, *where], asked.repeats) for what, one in of_scheduler().items()}
    return _report(asked, found, live)


def _stores(directory: Path, urls: list[str]) -> list[tuple[str, str, Store]]:
    file, sqlite = directory / "records.jsonl", f"sqlite:///{directory}/records.sqlite"
    found: list[tuple[str, str, Store]] = [
        ("JSON lines", str(file), JsonLines(file, kept=None)),
        ("SQLite", sqlite, RecordTable(sqlite, ROWS_MAX)),
    ]
    return found + [(url.partition(":")[0], url, RecordTable(url, ROWS_MAX)) for url in urls]


def _fill(store: Store, records: Iterator[Record], progress: ProgressLine) -> None:
    while batch := list(islice(records, BATCH)):
        store.write(batch)
        progress.step(len(batch))
    store.close()


def _of_command(question: list[str], repeats: int) -> Took:
    return _median(partial(_took, question), repeats)


def _median(ask: Callable[[], Took], repeats: int) -> Took:
    times = sorted(_with_scheduler(ask) for _ in range(repeats))
    return times[len(times) // 2]


def _with_scheduler(ask: Callable[[], Took]) -> Took:
    """The time of a question, with the CPU time of the scheduler, which is a thread of this process."""
    before_s = time.process_time()
    clock_s, cpu_s = ask()
    return clock_s, cpu_s + time.process_time() - before_s


def _took(arguments: list[str]) -> Took:
    begun_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "shared_scheduler.cmd.manage", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise LabError(f"{' '.join(arguments)}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun_s, cpu_s


def _report(asked: argparse.Namespace, found: Mapping[str, Mapping[str, Took]], live: Mapping[str, Took]) -> Report:
    head = ["seconds", *(column for name in found for column in (name, "CPU"))]
    [first, *_] = found.values()
    rows = [[what, *(f"{each:.2f}" for took in found.values() for each in took[what])] for what in first]
    of_live = [[what, *(f"{each:.2f}" for each in took)] for what, took in live.items()]
    slow = any(cpu_s > LIMIT_S for times in (*found.values(), live) for _, cpu_s in times.values())
    described = machine.describe()
    text = (
        f"{asked.records:,} records, {asked.hosts:,} hosts; {described['cores']} cores, load {described['load']}; "
        "CPU is that of the command, or of the page's program, and of the scheduler"
    )
    values = {"records": asked.records, "hosts": asked.hosts, "machine": described, "seconds": found, "live": live}
    return Report(values, [text, Table(head, rows), Table(["seconds", "clock", "CPU"], of_live)], wrong=slow)
