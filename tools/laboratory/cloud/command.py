# SPDX-License-Identifier: Apache-2.0
"""`tools/lab cloud`: a real OpenStack cloud on this machine."""

import argparse
import dataclasses
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql

from tools.laboratory.cloud import brokers
from tools.laboratory.cloud.bursts import burst
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.cloud_settings import BACKENDS, SCHEDULER_KINDS
from tools.laboratory.cloud.layout import default_data
from tools.laboratory.errors import LabError
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, add_format, rows_report

MANUAL = Manual(
    does="A real OpenStack cloud, private to one data directory, on loopback only: MariaDB, RabbitMQ, Keystone, "
    "Glance, Neutron's API, Placement, Nova's API and conductors, schedulers (ours, stock, or both), and N "
    "nova-computes with a fake hypervisor, each with or without its compute-agent. `tools/lab cloud COMMAND "
    "--help` lists the options.",
    needs="tools/install; 2 cores, and 3 GB of memory for three computes (each more takes 0.1 GB, its agent the same).",
    lasts="up: about half a minute on an idle machine with two cores, and a minute more the first time, because "
    "databases are migrated once and then copied; five minutes where other work keeps both cores busy. boot: seconds. "
    "down: ten to thirty seconds.",
    examples=(
        ("tools/lab cloud up --computes 3", "three computes with agents, one scheduler of ours"),
        ("tools/lab cloud up --scheduler both --schedulers 2", "two of each kind on one topic"),
        ("tools/lab cloud boot --count 9 --parallel 4", "nine servers; ends when all are ACTIVE"),
        ("tools/lab cloud burst --count 9", "nine at once: conflicts, reschedules, over-commit"),
        ("tools/lab cloud status --format json", "every service, for a program"),
        ("tools/lab cloud logs sched1 -f", "follow one log"),
        ("tools/lab cloud down", "stop everything; the data stays for the next up"),
    ),
    wrong="a server that is not ACTIVE in the end (boot)",
)  # fmt: skip

TAIL_LINES = 200


def numbers(text: str) -> tuple[int, ...]:
    """`3` or `11,10,10`: one number per compute, the last one for all others."""
    return tuple(int(part) for part in text.split(","))


def pages(text: str) -> tuple[str, int]:
    """`2048:512`: size in KiB, count."""
    size, _, count = text.partition(":")
    return str(int(size)), int(count)


def option(text: str) -> tuple[str, str, str]:
    """`group.name=value` for nova.conf."""
    key, _, value = text.partition("=")
    group, _, name = key.rpartition(".")
    if not (group and name):
        raise argparse.ArgumentTypeError(f"{text}: write GROUP.NAME=VALUE, such as filter_scheduler.host_subset_size=3")
    return group, name, value


def setting(text: str) -> tuple[str, str]:
    """`name=value` for rabbitmq.conf."""
    name, _, value = text.partition("=")
    if not (name and value):
        raise argparse.ArgumentTypeError(f"{text}: write NAME=VALUE, such as channel_max=100")
    return name, value


def parser() -> argparse.ArgumentParser:
    top = MANUAL.parser("tools/lab cloud")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data", type=Path, default=None, metavar="DIR",
                        help=f"data directory (default {default_data()}, or $SHARED_SCHEDULER_CLOUD)")  # fmt: skip
    add_format(common)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[common])

    _add_up(add("up", "Start the cloud, or change a running one. Options that are not given keep their values."))
    add("down", "Stop all services of this cloud; the databases are kept for the next up.")
    add("status", "Every service: state, process, memory, CPU time, log; and the servers per host.")
    logs = add("logs", "Show the last lines of one log, or the end of each.")
    logs.add_argument("service", nargs="?")
    logs.add_argument("-f", "--follow", action="store_true")
    logs.add_argument("-n", "--lines", type=int, default=TAIL_LINES)
    boot = add("boot", "Boot servers and wait until they are ACTIVE.")
    boot.add_argument("--count", type=int, default=1)
    boot.add_argument("--flavor", default="m400")
    boot.add_argument("--parallel", type=int, default=1, metavar="N", help="requests at the same time")
    boot.add_argument("--name", default="s")
    add("servers", "List all servers.")
    delete = add("delete", "Delete servers, or all of them.")
    delete.add_argument("server", nargs="*")
    _add_burst(add("burst", "Boot a burst, count claims, conflicts, reschedules and over-commit, and delete it."))
    for name, text in (("start", "Start services by name."), ("stop", "Stop services by name (TERM)."),
                       ("kill", "kill -9 a service and its child processes."), ("restart", "Stop and start services."),
                       ("freeze", "SIGSTOP a service."), ("thaw", "SIGCONT a service.")):  # fmt: skip
        add(name, text).add_argument("name", nargs="+")
    sql = add("sql", "Run one query in a database and print its rows.")
    sql.add_argument("database")
    sql.add_argument("query")
    return top


def _add_up(up: argparse.ArgumentParser) -> None:
    def add(flag: str, **arguments: Any) -> None:
        up.add_argument(flag, default=argparse.SUPPRESS, **arguments)

    add("--scheduler", choices=SCHEDULER_KINDS,
        help="shared-scheduler, nova-scheduler, or both on one topic (default shared)")  # fmt: skip
    add("--schedulers", type=int, metavar="S",
        help="number of scheduler processes; of each kind with `both` (default 1)")  # fmt: skip
    add("--scheduler-workers", type=int, metavar="W", help="worker processes of each scheduler (default 1)")
    add("--computes", type=int, metavar="N", help="number of nova-computes, c1 ... cN (default 3)")
    add(
        "--agents",
        metavar="all|none|K|embedded",
        help="number of computes with a compute-agent (default: all; none with --scheduler nova), or embedded agents",
    )
    add("--cells", type=int, metavar="C", help="number of cells; computes are assigned round robin (default 1)")
    add("--conductors", type=int, metavar="N", help="number of conductors of the first cell (default 1)")
    add("--compute-slots", type=numbers, metavar="K[,K...]",
        help="memory of each compute as a number of 400 MB servers (default 3)")  # fmt: skip
    add("--compute-ram-mb", type=numbers, metavar="MB[,MB...]", help="memory of each compute in MB")
    add("--vcpus", type=int, help="vCPUs of a compute without NUMA cells (default 64)")
    add("--local-gb", type=int, help="disk of a compute (default 1000)")
    add("--numa", dest="numa_cells", type=int, metavar="CELLS", help="NUMA cells of each compute (default none)")
    add("--numa-cpus", dest="cpus_per_cell", type=int, help="shared CPUs of a cell (default 4)")
    add("--numa-pcpus", dest="pcpus_per_cell", type=int, help="dedicated CPUs of a cell (default 4)")
    add("--numa-pages", dest="pages", type=pages, action="append", metavar="KIB:COUNT", help="huge pages of a cell")
    add("--gpus", type=int, help="GPUs of each compute")
    add("--vfs", type=int, help="virtual functions of each compute")
    add("--backend", choices=BACKENDS, help="concurrency backend of the schedulers (default threading)")
    add("--report-interval", dest="report_interval_s", type=int, metavar="S",
        help="[DEFAULT] report_interval (default 5)")  # fmt: skip
    add("--service-down-time", dest="service_down_time_s", type=int, metavar="S",
        help="[DEFAULT] service_down_time (default 60)")  # fmt: skip
    add("--audit-interval", dest="update_resources_interval_s", type=int, metavar="S",
        help="interval of nova-compute's audit; 0: Nova's 60 s")  # fmt: skip
    add("--allocation-conflict-retry-count", type=int, metavar="N", help="the option of Placement; 0: its default")
    add("--rabbitmq", type=brokers.directory, metavar="DIR",
        help="directory of a RabbitMQ (default $SHARED_SCHEDULER_RABBITMQ, or the installed one)")  # fmt: skip
    add("--rabbitmq-option", dest="rabbitmq_options", type=setting, action="append", metavar="NAME=VALUE",
        help="additional option for rabbitmq.conf")  # fmt: skip
    add("--placement-processes", type=int, metavar="N", help="number of Placement's processes (default 2)")
    add("--placement-app", action=argparse.BooleanOptionalAction,
        help="run Placement with the write path of shared_scheduler.placement_app (default: as it is)")  # fmt: skip
    add("--debug", action=argparse.BooleanOptionalAction, help="debug logs")
    add("--premap", action=argparse.BooleanOptionalAction,
        help="map hosts to cells; with --no-premap the scheduler discovers them")  # fmt: skip
    add("--nova-option", dest="nova_options", type=option, action="append", metavar="GROUP.NAME=VALUE",
        help="additional option for nova.conf")  # fmt: skip


def _add_burst(command: argparse.ArgumentParser) -> None:
    command.add_argument("--count", type=int, default=9)
    command.add_argument("--group", type=int, default=0, metavar="N", help="requests at the same time (default: all)")
    command.add_argument("--interval", type=float, default=0.5, metavar="S", help="seconds between groups")
    command.add_argument("--flavor", default="m400")
    command.add_argument("--freeze-conductor", action="store_true",
                         help="hold all builds until all requests have arrived")  # fmt: skip
    command.add_argument("--keep", action="store_true", help="do not delete the servers")


def changes_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `up` as fields of the settings."""
    given = {k: v for k, v in vars(arguments).items() if k not in ("command", "data", "format")}
    for name in {"pages", "rabbitmq_options"} & given.keys():
        given[name] = dict(given[name])
    if "nova_options" in given:
        options: dict[str, dict[str, str]] = {}
        for group, name, value in given["nova_options"]:
            options.setdefault(group, {})[name] = value
        given["nova_options"] = options
    return given


def up(cloud: Cloud, arguments: argparse.Namespace) -> Any:
    began = time.monotonic()
    started = cloud.up(**changes_of(arguments))
    return {"started": started, "seconds": round(time.monotonic() - began, 1), "data": str(cloud.layout.data),
            "nova_api": cloud.layout.endpoint("nova-api"), "nova_conf": str(cloud.layout.nova_conf())}  # fmt: skip


def down(cloud: Cloud, arguments: argparse.Namespace) -> Any:
    began = time.monotonic()
    killed = cloud.down()
    return {"killed": killed, "seconds": round(time.monotonic() - began, 1)}


def boot(cloud: Cloud, arguments: argparse.Namespace) -> Any:
    began = time.monotonic()
    servers = cloud.boot(arguments.count, arguments.flavor, arguments.parallel, arguments.name)
    hosts = cloud.wait_active(servers)
    return {"servers": hosts, "seconds": round(time.monotonic() - began, 1)}


def delete(cloud: Cloud, arguments: argparse.Namespace) -> Any:
    servers = arguments.server or [row["id"] for row in cloud.servers()]
    cloud.delete(servers)
    return {"deleted": servers}


def run_burst(cloud: Cloud, arguments: argparse.Namespace) -> Any:
    report = burst(cloud, arguments.count, arguments.group or arguments.count, arguments.interval,
                   flavor=arguments.flavor, freeze_conductor=arguments.freeze_conductor,
                   keep=arguments.keep)  # fmt: skip
    return dataclasses.asdict(report)


def logs(cloud: Cloud, arguments: argparse.Namespace) -> Any:
    if arguments.service:
        follow = ["-F"] if arguments.follow else []
        path = cloud.log_path(arguments.service)
        if not path.exists():
            known = sorted(log.stem for log in cloud.layout.log.glob("*.log"))
            raise LabError(f"no log of {arguments.service}; there are {', '.join(known)}")
        subprocess.run(["tail", "-n", str(arguments.lines), *follow, str(path)])
        return None
    paths = [str(path) for path in sorted(cloud.layout.log.glob("*.log"))]
    subprocess.run(["tail", "-n", "5", *(["-F"] if arguments.follow else []), *paths])
    return None


def sql(cloud: Cloud, arguments: argparse.Namespace) -> Any:
    if not cloud.layout.exists():
        raise LabError(cloud.layout.absence())
    try:
        rows = cloud.sql(arguments.database, arguments.query)
    except pymysql.MySQLError as error:
        raise LabError(f"{arguments.database}: {': '.join(map(str, error.args))}") from error
    return [[str(value) for value in row] for row in rows]


def by_name(method: str) -> Callable[[Cloud, argparse.Namespace], Any]:
    def command(cloud: Cloud, arguments: argparse.Namespace) -> Any:
        began = time.monotonic()
        if method in ("start", "stop", "restart"):
            getattr(cloud, method)(*arguments.name)
        else:
            for name in arguments.name:
                getattr(cloud, method)(name)
        return {method: arguments.name, "seconds": round(time.monotonic() - began, 1)}

    return command


COMMANDS: dict[str, Callable[[Cloud, argparse.Namespace], Any]] = {
    "up": up, "down": down, "boot": boot, "delete": delete, "burst": run_burst, "logs": logs, "sql": sql,
    "status": lambda cloud, arguments: cloud.status(),
    "servers": lambda cloud, arguments: cloud.servers(),
    **{name: by_name(name) for name in ("start", "stop", "kill", "restart", "freeze", "thaw")},
}  # fmt: skip


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Run one command of the cloud."""
    try:
        return rows_report(COMMANDS[asked.command](Cloud(asked.data, progress.say), asked))
    except LabError as error:
        raise LabError(f"{asked.command}: {error}") from None
