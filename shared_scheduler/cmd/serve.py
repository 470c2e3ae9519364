# SPDX-License-Identifier: Apache-2.0
"""Serves a read-only page: the fleet, what became of a request, what happened on a host, and why requests fail.

The page and its JSON (/api/why?id=ID and so on; /api/schema has the schemas) give the same answers as
the other commands.  Without --listen it is served at http://127.0.0.1:8780/, where every user of this
machine can read it; a Unix socket can be read by user and group only, for example over
"ssh -L 8780:/run/shared-scheduler-page/page.sock HOST" where shared-scheduler-page.service runs.  Use a directory
other than admin_socket_dir, which is for the sockets of schedulers.  With --records and without --socket-dir, no
scheduler is asked: the page shows the records only.  The command runs until a signal ends it.  The exit code is 2
if the records or the address cannot be opened.
"""

from __future__ import annotations

import argparse
import ipaddress
import sys
import time
from pathlib import Path

from shared_scheduler.cmd import record_stores, running_schedulers
from shared_scheduler.cmd.record_stores import UNREADABLE
from shared_scheduler.daemon.admin import AdminError
from shared_scheduler.daemon.http_server import serve_at
from shared_scheduler.daemon.telemetry_address import TelemetryAddress, TelemetryError, parsed
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.store import Store

LISTEN = "127.0.0.1:8780"
#: names of this machine for itself
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--listen", type=_address, default=_address(LISTEN), metavar="WHERE",
                        help=f"address:port, or the path of a Unix socket (default {LISTEN})")  # fmt: skip
    parser.add_argument("--host-name", action="append", default=[], metavar="NAME",
                        help="a name by which browsers may ask for the page besides localhost (may be repeated); "
                             "needed for an address that other machines reach")  # fmt: skip
    parser.add_argument("--socket-dir", type=Path, metavar="DIR",
                        help="admin_socket_dir of the schedulers (default: that of --config-file; "
                             "with --records, none)")  # fmt: skip
    record_stores.add_arguments(parser, formats=())


def _address(text: str) -> TelemetryAddress:
    try:
        return parsed(text, "--listen")
    except TelemetryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends the command.  Returns the exit code."""
    if not (args.listen.path or args.host_name or _is_local(args.listen.host)):
        print(f"serve: {args.listen}: other machines reach this address, and the page has no authentication; use "
              "127.0.0.1 or a Unix socket, or name the page with --host-name", file=sys.stderr)  # fmt: skip
        return UNREADABLE
    return record_stores.with_store("serve", args, lambda store: _serve(args, store))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(args: argparse.Namespace, store: Store) -> int:
    from shared_scheduler.page.queries import PageQuestions
    from shared_scheduler.page.site import Site

    try:
        server = serve_at(args.listen, threads=True)
    except OSError as error:
        print(f"serve: {args.listen}: {error.strerror or error}", file=sys.stderr)
        return UNREADABLE
    with server:
        questions = PageQuestions(store, _sockets(args), time.time)
        server.set_app(Site(questions, (*LOCAL_NAMES, *args.host_name), record_stores.named(args)))
        where = args.listen.path or f"http://{TelemetryAddress(args.listen.host, server.server_port)}/"
        _tell_unreadable(store)
        print(f"The page is served at {where}", flush=True)
        server.serve_forever()
    return 0


def _tell_unreadable(store: Store) -> None:
    """Say if the records cannot be read: the first scheduler may not have written any yet, or the name is wrong."""
    try:
        record_stores.is_empty(store)
    except RecordsError as error:
        print(f"serve: {' '.join(str(error).split())}; until then, only the fleet is shown", file=sys.stderr)


def _sockets(args: argparse.Namespace) -> Path | None:
    """Where the sockets of the schedulers are; None, with a line, if that is not known: the records are shown."""
    try:
        return args.socket_dir or (None if args.records else running_schedulers.directory_of(args))
    except AdminError as error:
        print(f"serve: no scheduler is asked: {error}", file=sys.stderr)
        return None
