# SPDX-License-Identifier: Apache-2.0
"""Starts the service from the command line, as nova/cmd/scheduler.py does, with our own runner.

The order matters and is Nova's: configuration, logging, objects, reports, then the service.  The
manager module is imported only after the configuration is there, because periodic tasks read their
spacing at import.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nova.conf
from amqp.exceptions import AMQPError
from nova import config, context, exception, objects, rpc, thread_pool_factory, version
from nova.scheduler import rpcapi
from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_log import log as logging
from oslo_messaging import DriverLoadFailure, InvalidTransportURL, MessagingException
from oslo_reports import opts as gmr_opts
from oslo_service import opts as service_opts
from sqlalchemy import exc as sa_exc

from shared_scheduler.conf import opts
from shared_scheduler.conf.mode import Mode
from shared_scheduler.daemon.config_files import check_values, unreadable_named
from shared_scheduler.daemon.guru_meditation import Product, in_another_thread, report_on_signal
from shared_scheduler.daemon.log_setup import LogError, LogUnavailableError, set_up
from shared_scheduler.daemon.telemetry_address import TelemetryError, TelemetryUnavailableError
from shared_scheduler.nova import configuration
from shared_scheduler.nova.host_manager import PluginError
from shared_scheduler.nova.placement_file import USUAL_FILE, over_commit_warning
from shared_scheduler.nova.placement_transport import ReportClientTransport
from shared_scheduler.nova.serving import ModalService
from shared_scheduler.nova.stock import STOCK_TOPIC, StockAwayError, StockScheduler
from shared_scheduler.placement.reader import PlacementConfigError, transport_from
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.service import preflight
from shared_scheduler.service.runner import REFUSED_TO_START, TRY_AGAIN, WORKER_NUMBER, Runner, Supervisor
from shared_scheduler.sync.databases import DatabaseError, advice
from shared_scheduler.transport.urls import TransportUrlError, names_rabbit, parse_transport_url, rabbit_options

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: Nova's configuration files and log names are found under this name.
PROGRAM = "nova-scheduler"
HELP = frozenset({"-h", "--help"})
#: the script that pip installs
COMMAND = "shared-scheduler"
#: part of the drain time that requests may use; the rest is for deleting what they hold
REQUESTS_PART = 0.8
#: part of the drain time after which no delete is waited for; the rest is for the calls under way, and for the threads
DELETES_PART = 0.9
MANAGER = "shared_scheduler.nova.manager.SharedSchedulerManager"

#: Errors of the queries of Nova itself, which reads its databases first.  oslo.db leaves some of SQLAlchemy's alone.
DATABASE = (db_exception.DBError, sa_exc.DBAPIError)
#: What does not answer at present, and may answer later without a change of an option.
AWAY = (
    preflight.ServerUnreachableError,
    DatabaseError,
    StockAwayError,
    TelemetryUnavailableError,
    LogUnavailableError,
    *DATABASE,
    MessagingException,  # a broker that went away after the preflight check
    AMQPError,  # a broker that refuses the login or the virtual host
)
#: Errors of oslo.messaging that only another ``transport_url`` removes.
WRONG_URL = (DriverLoadFailure, InvalidTransportURL)
#: Errors that an operator can correct; they are reported in one line, without a traceback.
CORRECTABLE = (
    *AWAY,
    cfg.Error,
    preflight.ServerOptionError,
    KeyringError,
    PlacementConfigError,
    LogError,
    logging.LogConfigError,  # a reload reads its file again
    PluginError,
    RecordsError,
    TelemetryError,
    TransportUrlError,
    exception.SchedulerHostFilterNotFound,
    exception.ClassNotFound,
    exception.TooOldComputeService,
    exception.ServiceTooOld,
)


def main(argv: Sequence[str]) -> int:
    """Run the service.  Exit status: 0 after a signal; 75 if it cannot start at present, 78 if an option is wrong."""
    try:
        prepare(argv)
        if not _is_worker():
            warn_of_over_commit(USUAL_FILE)
        if CONF.shared_scheduler.workers > 1 and not _is_worker():
            return _supervise(argv)
        check_dependencies()
        warn_of_missing_stock()
        return _run()
    except CORRECTABLE as error:
        why = error
    return refuse(why)  # outside the handler, because oslo.log would add the error to the line


def prepare(argv: Sequence[str]) -> None:
    """Set up configuration, logging and Nova's messaging.

    :raises cfg.Error: when a file cannot be read, or a value of ours is not allowed
    :raises LogError: when the log cannot be written
    :raises TransportUrlError: when ``transport_url`` cannot be used
    """
    opts.register(CONF)
    service_opts.register_service_opts(CONF)
    configuration.make_reloadable()
    name = PROGRAM if HELP.isdisjoint(argv) else COMMAND  # the help has no configuration to find
    with unreadable_named():
        config.parse_args(list(argv), prog=name, init_rpc=False)
    check_values(CONF.shared_scheduler, opts.GROUP.name, opts.ALL)
    set_up(CONF, "nova")
    _broker()  # before Nova parses the URL, because its error shows part of a password that is not escaped
    rpc.init(CONF)
    gmr_opts.set_defaults(CONF)


def warn_of_over_commit(placement_file: Path) -> None:
    """Warn once, if ``placement.conf`` is on this machine and lets Placement over-commit hosts."""
    warning = over_commit_warning(placement_file)
    if warning:
        LOG.warning(warning)


def check_dependencies() -> None:
    """Wait for databases, broker and Placement, each for a bounded time.

    :raises PlacementConfigError: when the options of ``[placement]`` cannot work
    :raises ServerUnreachableError: when one of them does not answer
    :raises ServerOptionError: when an option names none that could answer
    """
    wanted = [
        preflight.database("the API database", "[api_database] connection",
                           CONF.api_database.connection),
        preflight.database("the database", "[database] connection", CONF.database.connection),
        _broker(),
    ]  # fmt: skip
    found = [each for each in wanted if each is not None]
    transport_from(CONF)
    wait_s = CONF.shared_scheduler.startup_wait_s
    preflight.wait_for(found, wait_s, LOG.warning)
    preflight.wait_for_answer("Placement", "[placement]", placement_problem, wait_s, LOG.warning)


def warn_of_missing_stock() -> None:
    """Warn if requests of mode ``shadow`` will wait.  The service starts in any case, as nova-scheduler may be late."""
    problem = StockScheduler().problem() if CONF.shared_scheduler.mode == Mode.SHADOW else ""
    if problem:
        LOG.warning(
            "Mode shadow: no nova-scheduler answers on topic %s (%s); requests wait until one does. Start "
            "shared-scheduler-stock.", STOCK_TOPIC, problem,
        )  # fmt: skip


def placement_problem() -> str:
    """Why Placement cannot be used; empty if it can.  The request is cheap and needs credentials."""
    reply = ReportClientTransport().call("GET", "/traits?name=in:OWNER_NOVA", timeout_s=10.0)
    return "" if reply.status == 200 else reply.describe()


def refuse(error: BaseException) -> int:
    """Report in the log and on the terminal why the service cannot start.  The exit status."""
    line = f"shared-scheduler cannot start: {_told(error)}"
    no_log = isinstance(error, LogError)
    if not no_log:
        LOG.error(line)
    if no_log or CONF.log_file or CONF.log_dir or CONF.use_syslog:
        print(line, file=sys.stderr)
    return TRY_AGAIN if isinstance(error, AWAY) and not isinstance(error, WRONG_URL) else REFUSED_TO_START


def _told(error: BaseException) -> str:
    """One line about an error that an operator can correct."""
    if isinstance(error, DATABASE):
        return f"Nova's databases ([api_database] and [database] connection) cannot be read: {advice(error)}"
    text = " ".join(str(error).split()) or type(error).__name__
    return f"[DEFAULT] transport_url: the message queue refuses: {text}" if isinstance(error, AMQPError) else text


def _run() -> int:
    objects.register_all()
    objects.Service.enable_min_version_cache()
    server = ModalService.create(binary=PROGRAM, topic=rpcapi.RPC_TOPIC, manager=MANAGER)
    product = Product("shared-scheduler", version.version_string_with_package(), version.vendor_string())
    report_on_signal(product, PROGRAM, CONF, in_another_thread(server.manager.report))
    drain_timeout_s = CONF.shared_scheduler.drain_timeout_s
    lossless = LosslessStop(server, drain_timeout_s)
    status = Runner(lossless, lambda: reload(server), drain_timeout_s, server.manager.check_alive).run()
    thread_pool_factory.shutdown_all_executors()
    return status


class LosslessStop:
    """Stops Nova's Service without losing requests.

    Nova shuts the manager down while requests that were taken from the queue may still wait for a thread.
    They are acknowledged, so no other scheduler would serve them.  Therefore the gate closes first: the broker is asked
    to send no more, and the RPC server stops after every request that it has taken.  Then the manager waits for the
    deletes of what failed requests have written, and stops.  Both waits are parts of ``drain_timeout_s``, the time of
    the whole process.  The first one ends with the second one, because without a broker no answer is sent.
    """

    def __init__(self, server: Any, drain_timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._drain_timeout_s = drain_timeout_s
        self._clock = clock

    def start(self) -> None:
        """See ``service.runner.Service``."""
        self._server.start()

    def stop(self) -> None:
        """See ``service.runner.Service``."""
        deletes_until_s = self._clock() + self._drain_timeout_s * DELETES_PART
        self._server.manager.set_shutdown_in_progress()
        self._server.manager.stop_within(self._drain_timeout_s * REQUESTS_PART)
        if self._server.rpcserver is not None:  # None: stopped while it was starting
            self._server.rpcserver.stop()
            self._server.rpcserver.wait(max(0.0, deletes_until_s - self._clock()))
        self._server.manager.drain(max(0.0, deletes_until_s - self._clock()))
        self._server.manager.cleanup_host()
        self._server.stop()


#: What a reload says that failed: before it changed anything, and after that.
NOTHING = "nothing has changed"
PART = "options, and a mode logged above, have changed; cells, filters, weighers, aggregates and keys have not"


def reload(server: Any) -> None:
    """SIGHUP: read options and enter their mode; read cells, filters, weighers, aggregates and keys; keep the table."""
    LOG.info("Reloading")
    changed, problem = NOTHING, _problem_of(configuration.check_files)
    if not problem:
        changed, problem = PART, _problem_of(partial(_apply, server))
    if problem:
        LOG.error("Reload failed; %s: %s", changed, problem)
    else:
        LOG.info("Reloaded")


def _apply(server: Any) -> None:
    CONF.mutate_config_files()
    server.enter(Mode(CONF.shared_scheduler.mode))
    context.CELLS = []
    server.reset()


def _problem_of(step: Callable[[], None]) -> str:
    """Why a step could not be made; empty if it was."""
    try:
        step()
    except CORRECTABLE as error:
        return _told(error)
    return ""


def _supervise(argv: Sequence[str]) -> int:
    ours = CONF.shared_scheduler
    return Supervisor(worker_command(argv), ours.workers, ours.drain_timeout_s).run()


def worker_command(argv: Sequence[str]) -> list[str]:
    """The command that starts a worker: the script that was started, because probes look for its name in command lines,
    or the module if that is no installed script."""
    script = Path(argv[0])
    is_script = script.name == COMMAND and script.is_file()
    return [sys.executable, *([argv[0]] if is_script else ["-m", "shared_scheduler.cmd.scheduler"]), *argv[1:]]


def _is_worker() -> bool:
    return WORKER_NUMBER in os.environ


def _broker() -> preflight.Dependency | None:
    """:raises TransportUrlError: when the URL cannot be used"""
    options = rabbit_options(CONF)
    if not names_rabbit(CONF.transport_url):
        return None
    hosts = parse_transport_url(CONF.transport_url, options).hosts
    addresses = tuple((host.name, host.port) for host in hosts)
    return preflight.Dependency("the message queue", "[DEFAULT] transport_url", addresses)
