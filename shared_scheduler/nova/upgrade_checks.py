# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-status upgrade check``: can this scheduler serve this cloud?

Each check answers with success, warning (the scheduler works, with less), or failure (it cannot work).  The checks
change nothing and need no running scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from random import Random
from typing import Any

import nova.conf
from nova import config, context, objects, rpc
from nova.objects import service
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result, UpgradeCommands

from shared_scheduler.conf import opts
from shared_scheduler.conf.mode import Mode
from shared_scheduler.daemon import admin
from shared_scheduler.daemon.config_files import check_values, unreadable_named
from shared_scheduler.nova.databases import NovaApiDatabase
from shared_scheduler.nova.placement_file import RETRIES, RETRIES_WANTED, USUAL_FILE, conflict_retries
from shared_scheduler.nova.placement_transport import ReportClientTransport
from shared_scheduler.nova.stock import STOCK_TOPIC, StockScheduler
from shared_scheduler.placement.connection import MICROVERSION, data_of
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.host_keys import HostKeysMode
from shared_scheduler.release import release
from shared_scheduler.sync.databases import Cell
from shared_scheduler.transport.broker_check import PERMISSIONS, broker_problems
from shared_scheduler.transport.key_options import configured_host_keys
from shared_scheduler.transport.urls import (
    TransportUrlError,
    names_rabbit,
    parse_transport_url,
    rabbit_options,
    register_messaging_options,
)

CONF = nova.conf.CONF

#: the release of Nova whose objects, databases and RPC this release uses
NOVA_MAJOR = 34
PLACEMENT_TIMEOUT_S = 10.0

#: options of nova-scheduler that this scheduler does not read, and what to do (doc/source/user/deviations.rst)
WITHOUT_EFFECT: Mapping[tuple[str, str], str] = {
    ("scheduler", "workers"): "it is ignored; set [shared_scheduler] workers",
    ("scheduler", "max_placement_results"): "all hosts are considered",
}

PLACEMENT_FILE = cfg.StrOpt(
    "placement-config-file",
    default=str(USUAL_FILE),
    help="placement.conf of this cloud, if it is on this machine or was copied to it.",
)


Check = Callable[[Any], Result]


def _safely(check: Check) -> Check:
    """``check``, with any error as its result, because the library would end all checks with a traceback."""

    def checked(self: Any) -> Result:
        try:
            return check(self)
        except Exception as error:
            text = " ".join(str(error).split())
            return _failure(f"{type(error).__name__}: {text}" if text else type(error).__name__)

    return checked


class UpgradeChecks(UpgradeCommands):
    """The checks, in the order in which they are shown."""

    @_safely
    def _check_nova(self) -> Result:
        return nova_result(metadata.version("nova"))

    @_safely
    def _check_computes(self) -> Result:
        oldest = service.get_minimum_version_all_cells(context.get_admin_context(), ["nova-compute"])
        return computes_result(int(oldest), int(service.SERVICE_VERSION))

    @_safely
    def _check_placement(self) -> Result:
        answer = data_of(ReportClientTransport().call("GET", "/", timeout_s=PLACEMENT_TIMEOUT_S))
        try:
            return placement_result(str(answer["versions"][0]["max_version"]))
        except (KeyError, IndexError, TypeError):
            return _failure("the answer at the address of Placement is none of Placement; correct [placement]")

    @_safely
    def _check_retries(self) -> Result:
        return retries_result(Path(CONF.placement_config_file))

    @_safely
    def _check_channels(self) -> Result:
        cells = [cell for cell in NovaApiDatabase().cells() if cell.schedulable]
        return channels_result({cell.name or cell.uuid: channel_problems(cell) for cell in cells})

    @_safely
    def _check_senders(self) -> Result:
        return senders_result(CONF.shared_scheduler)

    @_safely
    def _check_options(self) -> Result:
        return options_result(CONF)

    @_safely
    def _check_values(self) -> Result:
        return values_result(CONF.shared_scheduler)

    @_safely
    def _check_mode(self) -> Result:
        ours = CONF.shared_scheduler
        if ours.mode != Mode.SHADOW:
            return mode_result(ours.mode, "", keeps_records=True)
        rpc.init(CONF)
        return mode_result(ours.mode, StockScheduler().problem(), bool(ours.records_file or ours.records_connection))

    @_safely
    def _check_releases(self) -> Result:
        directory = CONF.shared_scheduler.admin_socket_dir
        try:
            answers = admin.ask_all(Path(directory), "status") if directory else []
        except admin.AdminError:
            answers = []
        return releases_result(release(), [answer["releases"] for answer in answers])

    _upgrade_checks = (
        ("Nova release", _check_nova),
        ("Compute services", _check_computes),
        ("Placement API", _check_placement),
        ("Placement's retries after a conflict", _check_retries),
        ("State channels", _check_channels),
        ("Senders of messages", _check_senders),
        ("Options without effect", _check_options),
        ("Values of options", _check_values),
        ("Mode", _check_mode),
        ("Releases of the peers", _check_releases),
    )


def run(argv: Sequence[str]) -> int:
    """Read Nova's configuration, run the checks that ``argv`` asks for, and print their results.

    Returns the exit code: that of the worst check, or 255 when one of them failed unexpectedly.

    :raises cfg.Error: when an option, an argument or a file is wrong
    """
    opts.register(CONF)
    CONF.register_cli_opt(PLACEMENT_FILE)
    upgradecheck.register_cli_options(CONF, UpgradeChecks())
    with unreadable_named():
        config.parse_args(list(argv), init_rpc=False, prog=argv[0])
    register_messaging_options(CONF)  # Nova's cells read transport_url, which rpc.init would register
    objects.register_all()
    upgradecheck.CONF = CONF  # where the library looks for --json
    return int(upgradecheck.run(CONF))


def nova_result(version: str) -> Result:
    """Whether the installed Nova is the one that this release is made for."""
    if version.split(".")[0] == str(NOVA_MAJOR):
        return Result(Code.SUCCESS, f"nova {version}")
    return _failure(f"nova {version} is installed; this release of shared-scheduler needs nova {NOVA_MAJOR}")


def computes_result(oldest: int, ours: int) -> Result:
    """Whether the tap fits to every nova-compute.  ``oldest`` and ``ours`` are service versions of Nova."""
    if oldest == 0:
        return Result(Code.WARNING, "no nova-compute is registered in any cell")
    if oldest < ours:
        return Result(
            Code.WARNING,
            f"the oldest nova-compute has service version {oldest}, this Nova {ours}: on such a host the agent may "
            "have to read through nova-conductor; upgrade nova-compute before its agent",
        )
    return Result(Code.SUCCESS, f"the oldest nova-compute has service version {oldest}")


def placement_result(newest: str) -> Result:
    """Whether Placement, whose newest microversion this is, knows the one that is used."""
    if _numbers(newest) < _numbers(MICROVERSION):
        return _failure(f"Placement offers microversions up to {newest}, and {MICROVERSION} is needed; upgrade it")
    return Result(Code.SUCCESS, f"Placement offers microversions up to {newest}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def retries_result(file: Path) -> Result:
    """Whether Placement refuses the loser of a race, as far as ``placement.conf`` is readable here."""
    try:
        retries = conflict_retries(file)
    except FileNotFoundError:
        return Result(
            Code.WARNING,
            f"{file} is not on this machine: make sure that it has {RETRIES} = 1, or name a copy with "
            f"--{PLACEMENT_FILE.name}",
        )
    except (cfg.Error, ValueError, OSError) as error:
        return _failure(f"{file} cannot be read: {error}")
    if retries == RETRIES_WANTED:
        return Result(Code.SUCCESS, f"{RETRIES} = 1")
    return Result(
        Code.WARNING, f"{RETRIES} is {retries}: writers that race for a provider over-commit it; set it to 1 in {file}"
    )


def channel_problems(cell: Cell) -> Mapping[str, str] | None:
    """Broker -> what is wrong with it, under "" what is wrong with the URL; None if the cell has no RabbitMQ."""
    try:
        if not names_rabbit(cell.transport_url or ""):
            return None
        return broker_problems(parse_transport_url(cell.transport_url, rabbit_options(CONF)), Random())
    except TransportUrlError as error:
        return {"": str(error)}


def channels_result(found: Mapping[str, Mapping[str, str] | None]) -> Result:
    """Whether every cell (a key) has brokers that accept a state channel (``channel_problems``)."""
    lines = [
        f"cell {cell}: {broker or 'transport_url'}: {problem}"
        for cell, problems in found.items()
        for broker, problem in (problems or {}).items()
    ]
    if lines:
        configure, write, read = PERMISSIONS
        advice = (
            f"besides those of Nova, the user needs the permissions configure {configure}, write {write}, read {read}; "
            "'rabbitmqctl set_permissions' replaces the patterns, so name those of Nova too"
        )
        return _failure("; ".join([*lines, advice]))
    without = [cell for cell, problems in found.items() if problems is None]
    if without:
        return Result(Code.WARNING, f"no RabbitMQ, so no state channel: cell {', '.join(without)}")
    each = "the cell" if len(found) == 1 else f"each of {len(found)} cells"
    return Result(Code.SUCCESS, f"the message queue of {each} accepts a state channel")


def senders_result(options: Any) -> Result:
    """Whether the senders of messages are verified, and whether the keys for that can be used."""
    try:
        mode, _ = configured_host_keys(options, "shared_scheduler")
    except KeyringError as error:
        return _failure(str(error))
    if mode is HostKeysMode.REQUIRE:
        return Result(Code.SUCCESS, "verified: host_keys = require")
    who = "a program that can write to the broker"
    if mode is HostKeysMode.ACCEPT:
        who += " and sends no key"
    return Result(
        Code.WARNING,
        f"[shared_scheduler] host_keys = {mode}: {who} can send messages for any node; create keys with "
        "shared-scheduler-manage keys, and set host_keys = require on all schedulers and computes",
    )


def options_result(conf: Any) -> Result:
    """Which options of nova-scheduler are set and have no effect."""
    lines = [f"[{group}] {name}: {advice}" for (group, name), advice in _set(conf, WITHOUT_EFFECT.items())]
    if lines:
        return Result(Code.WARNING, "; ".join(lines))
    return Result(Code.SUCCESS, "none is set")


def values_result(options: Any) -> Result:
    """Whether each option of this scheduler has a value that it accepts."""
    try:
        check_values(options, opts.GROUP.name, opts.ALL)
    except cfg.Error as error:
        return _failure(str(error))
    return Result(Code.SUCCESS, f"those of [{opts.GROUP.name}] are accepted")


def mode_result(mode: str, problem: str, keeps_records: bool) -> Result:
    """Whether the mode can be entered.  ``problem``: why no nova-scheduler answers behind; empty if one does."""
    if problem:
        return _failure(f"mode {mode}: no nova-scheduler answers on topic {STOCK_TOPIC} ({problem}); start "
                        "shared-scheduler-stock")  # fmt: skip
    if not keeps_records:
        return Result(Code.WARNING, f"mode {mode}: set records_file or records_connection to keep comparisons")
    return Result(Code.SUCCESS, f"mode {mode}")


def _set(conf: Any, options: Iterable[tuple[tuple[str, str], str]]) -> list[tuple[tuple[str, str], str]]:
    return [
        (option, advice)
        for option, advice in options
        if (found := conf.get_location(option[1], option[0])) is not None and found.location.is_user_controlled
    ]


def releases_result(ours: str, found: Sequence[Mapping[str, Mapping[str, int]]]) -> Result:
    """Which peers run another release than the installed one.

    ``found``: role -> release -> number of peers, as each scheduler of this machine knows them.
    """
    if not found:
        return Result(Code.SUCCESS, f"{ours} is installed; no scheduler of this machine could be asked for its peers")
    others = {
        f"{count} {role} {told}"
        for releases in found
        for role, counts in releases.items()
        for told, count in counts.items()
        if told != ours
    }
    if others:
        return Result(Code.WARNING, f"{ours} is installed, and there are {', '.join(sorted(others))}; upgrade them")
    return Result(Code.SUCCESS, f"all schedulers and agents run {ours}")


def _failure(text: str) -> Result:
    return Result(Code.FAILURE, text)
