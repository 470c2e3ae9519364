# SPDX-License-Identifier: Apache-2.0
"""Reads the state of nodes from agents, Placement and Nova's databases, for ``shared-scheduler-manage compare``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nova.conf
import sqlalchemy as sa
from nova import config, objects
from nova.db.main import models
from oslo_config import cfg
from oslo_messaging import MessagingException

from shared_scheduler.conf import opts
from shared_scheduler.core.events import Event, MessagesArrived, NodeRead
from shared_scheduler.daemon.admin import AdminError
from shared_scheduler.daemon.config_files import unreadable_named
from shared_scheduler.nova.cells import Channels
from shared_scheduler.nova.databases import NovaApiDatabase, NovaCellDatabase
from shared_scheduler.nova.placement_transport import ReportClientTransport
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.protocol.messages import Resync, Snapshot, agent_address
from shared_scheduler.records.opening import PROGRAM, PROJECT
from shared_scheduler.service import source_views
from shared_scheduler.service.cell_channel import CellChannel
from shared_scheduler.service.source_differences import SourceView
from shared_scheduler.sync.databases import Cell
from shared_scheduler.sync.node_reads import read_node

CONF = nova.conf.CONF

#: Migrations in these states have ended (nova/db/main/api.py, migration_get_in_progress_*).
ENDED_MIGRATIONS = ("confirmed", "reverted", "error", "failed", "completed", "cancelled", "done")
#: How long agents have to connect and to answer, and how much longer for each node, whose answer has to be read.
AGENTS_WAIT_S, AGENTS_WAIT_EACH_S = 5.0, 0.002
#: An agent answers a resync within its own bounds; after this time the resync is repeated, because it may be lost.
ASK_AGAIN_S = 1.0


def configure(config_files: Sequence[Path], again: bool = False, replaced_by: Path | None = None) -> None:
    """Read Nova's configuration without its logging, because a command prints its own lines.

    ``config_files``: without any, those that nova-scheduler finds.  ``again``: another configuration was read before;
    its databases and its broker stay in use.  ``replaced_by``: a file whose options replace those of the others.

    :raises cfg.Error: when an option or a file is wrong
    """
    logging.basicConfig(level=logging.CRITICAL)
    opts.register(CONF)
    arguments = _arguments(config_files, replaced_by)
    try:
        with unreadable_named():
            if again:  # options of the command line cannot be registered twice
                CONF(arguments, project=PROJECT, prog=PROGRAM)
            else:
                config.parse_args([PROGRAM, *arguments], prog=PROGRAM)
    except MessagingException as error:
        raise cfg.Error(f"[DEFAULT] transport_url: {error}") from error
    objects.register_all()


def _arguments(config_files: Sequence[Path], replaced_by: Path | None) -> list[str]:
    named = [("--config-file", str(path)) for path in config_files]
    if replaced_by is not None:
        named = [*(named or _found()), ("--config-file", str(replaced_by))]
    return [word for pair in named for word in pair]


def _found() -> Iterator[tuple[str, str]]:
    """What nova-scheduler finds, in the order in which it is read; oslo.config looks for no file if one is named."""
    yield from (("--config-file", path) for path in cfg.find_config_files(PROJECT, PROGRAM))
    yield from (("--config-dir", path) for path in cfg.find_config_dirs(PROJECT, PROGRAM))


def admin_socket_dir() -> Path:
    """The directory of the sockets of the running schedulers of this machine.

    :raises AdminError: when ``admin_socket_dir`` is empty
    """
    directory = CONF.shared_scheduler.admin_socket_dir
    if not directory:
        raise AdminError("[shared_scheduler] admin_socket_dir is empty; set it to query the schedulers")
    return Path(directory)


class SourceReaders:
    """Reads all sources except the schedulers, each once."""

    def __init__(self) -> None:
        self._cells = [cell for cell in NovaApiDatabase().cells() if cell.schedulable]
        self._databases = {cell.uuid: NovaCellDatabase(cell) for cell in self._cells}
        self._client = PlacementClient(ReportClientTransport())

    def read(self, say: Callable[[str], None]) -> tuple[list[SourceView], frozenset[str]]:
        """Views of databases, Placement and agents, and all owners of consumers.

        :raises DatabaseError: when a database cannot be read
        :raises PlacementError: when Placement cannot be read
        """
        say("reading databases and Placement")
        reads = [read for cell in self._cells for read in self._nodes(cell)]
        found = [source_views.of_placement(reads), *source_views.of_database(reads, self._services(), self._moving())]
        say("asking the agents")
        snapshots = ask_agents(self._cells, reads)
        return [*found, source_views.of_agents(snapshots)], owners()

    def _nodes(self, cell: Cell) -> list[NodeRead]:
        database = self._databases[cell.uuid]
        mirror = PlacementMirror(self._client)
        reads = (read_node(database, mirror, node, time.monotonic) for node in sorted(database.node_hosts()))
        return [read for read in reads if isinstance(read, NodeRead)]

    def _services(self) -> dict[str, dict[str, bool]]:
        return {
            service.host: {
                "disabled": service.disabled,
                "forced_down": service.forced_down,
                "up": service.up,
            }
            for database in self._databases.values()
            for service in database.services()
        }

    def _moving(self) -> frozenset[str]:
        """Nodes that are source or destination of an unfinished migration."""
        moving: set[tuple[str, str]] = set()
        each = models.Migration
        query = sa.select(each.source_compute, each.source_node, each.dest_compute, each.dest_node).where(
            _is_under_way()
        )
        for cell in self._cells:
            for source, source_node, destination, destination_node in _rows(cell, query):
                moving |= {(source, source_node), (destination, destination_node)}
        return self._uuids(moving)

    def _uuids(self, names: set[tuple[str, str]]) -> frozenset[str]:
        return frozenset(
            row["uuid"]
            for database in self._databases.values()
            for row in (database.nodes() if names else ())
            if (row["host"], row["hypervisor_hostname"]) in names
        )


def owners() -> frozenset[str]:
    """Consumers with an owner, in all cells: instances, and migrations that have not ended.

    The rule is that of ``nova-manage placement audit``.

    :raises DatabaseError: when a database cannot be read
    """
    instances = sa.select(models.Instance.uuid).where(models.Instance.deleted == 0)
    migrations = sa.select(models.Migration.uuid).where(_is_under_way())
    return frozenset(
        row[0] for cell in NovaApiDatabase().cells() for query in (instances, migrations) for row in _rows(cell, query)
    )


def _is_under_way() -> sa.ColumnElement[bool]:
    return sa.and_(models.Migration.status.notin_(ENDED_MIGRATIONS), models.Migration.deleted == 0)


def _rows(cell: Cell, query: sa.Select[Any]) -> list[Any]:
    """Rows of one cell's database, through Nova's own engine.

    :raises DatabaseError: when it cannot be read
    """
    return [tuple(row.values()) for row in NovaCellDatabase(cell).rows(query)]


class AgentQuestion:
    """Requests snapshots from the agents of one cell, like a scheduler that has missed a message."""

    def __init__(self, channel: CellChannel, inbox: Inbox, reads: Iterable[NodeRead]) -> None:
        self._channel = channel.channel
        self._inbox = inbox
        self._open = {read.node: read.host for read in reads if read.cell in channel.cells}

    def ask(self) -> None:
        """Send a resync to each agent that has not answered yet."""
        for node in [node for node in self._open if node in self._inbox.snapshots]:
            del self._open[node]
        for node, host in self._open.items():
            message = Resync(node, self._channel.address, 0, 0)
            self._channel.cast(agent_address(host), message)

    @property
    def answered(self) -> bool:
        """Whether all agents have answered."""
        return all(node in self._inbox.snapshots for node in self._open)


class Inbox:
    """The newest snapshot of each node that has answered."""

    def __init__(self) -> None:
        self.snapshots: dict[str, Snapshot] = {}
        self.arrived = threading.Event()

    def handle(self, event: Event) -> None:
        """Process an event of the channel."""
        if isinstance(event, MessagesArrived):
            for message in event.messages:
                if isinstance(message, Snapshot):
                    self.snapshots[message.node] = message
        self.arrived.set()


def ask_agents(cells: Iterable[Cell], reads: Sequence[NodeRead]) -> list[Snapshot]:
    """Snapshots of all agents that answer in time; the other nodes have no agent, or it does not run."""
    inbox = Inbox()
    channels = Channels("compare", inbox.handle)
    channels.load_keys()
    opened = channels.open(cells)
    questions = [AgentQuestion(channel, inbox, reads) for channel in opened]
    for channel in opened:
        channel.start()
    until_s = time.monotonic() + AGENTS_WAIT_S + len(reads) * AGENTS_WAIT_EACH_S
    try:
        while time.monotonic() < until_s and not all(q.answered for q in questions):
            for question in questions:
                question.ask()
            _wait(inbox, questions, min(ASK_AGAIN_S, until_s - time.monotonic()))
    finally:
        for channel in opened:
            channel.channel.close()
    return list(inbox.snapshots.values())


def _wait(inbox: Inbox, questions: Sequence[AgentQuestion], timeout_s: float) -> None:
    """Wait until all have answered, or until the resyncs are to be repeated."""
    until_s = time.monotonic() + timeout_s
    while (left_s := until_s - time.monotonic()) > 0:
        inbox.arrived.clear()
        if all(question.answered for question in questions) or not inbox.arrived.wait(left_s):
            return
