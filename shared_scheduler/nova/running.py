# SPDX-License-Identifier: Apache-2.0
"""One scheduler with all its parts: table, decider, core, engine, and the sources of their data.

It is created and started in the process that uses it, after any fork.  Start-up order: sinks, then the bulk load (the
service is usable here), then the state channels, on which the agents send the present state of their rows.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import nova.conf
from nova import context as nova_context

from shared_scheduler.conf.mode import CurrentMode, Mode
from shared_scheduler.core.effects import NO_HOST, Answer, AskCandidates, Fail, RecordBuild, RecordNode, RefreshNode
from shared_scheduler.core.events import (
    AggregateFacts,
    AggregatesRead,
    AnswerUnheard,
    CandidatesAnswered,
    NodesGone,
    UnfinishedBuildsFound,
)
from shared_scheduler.core.held_room import held_room_of_rejected
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.core.scheduler_settings import Identity
from shared_scheduler.daemon.admin import SUFFIX, AdminError, AdminServer
from shared_scheduler.daemon.telemetry import Telemetry
from shared_scheduler.daemon.telemetry_address import telemetry_address
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.explain import explain
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.nova import configuration
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.cell_context import cell_context
from shared_scheduler.nova.cells import Channels
from shared_scheduler.nova.databases import NovaApiDatabase, NovaCellDatabase
from shared_scheduler.nova.host_manager import HostManager
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.judge import NovaJudge
from shared_scheduler.nova.placement_transport import ReportClientTransport
from shared_scheduler.nova.plugins import configure_decider
from shared_scheduler.nova.weight_lines import LoggingDecider
from shared_scheduler.nova.what_if_requests import WhatIfRequests
from shared_scheduler.placement.batch_writer import BatchWriter
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.foreign_changes import ForeignChange
from shared_scheduler.placement.questions import PlacementQuestions
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.records import entries
from shared_scheduler.records.agreement import PASSES_NOW, UNKNOWN_HOST, ComparedRequest
from shared_scheduler.records.askers import Askers
from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.opening import open_named
from shared_scheduler.records.recorder import Recorder
from shared_scheduler.records.store import Store
from shared_scheduler.records.told_reasons import TRIED
from shared_scheduler.records.unfinished import placed_lately, unfinished
from shared_scheduler.release import release
from shared_scheduler.service.comparisons import Comparisons
from shared_scheduler.service.engine import Engine, Sinks
from shared_scheduler.service.fit import FitAnswerer
from shared_scheduler.service.host_answers import HostAnswerer, origin
from shared_scheduler.service.inspection import Queues, questions, report
from shared_scheduler.service.metrics import SchedulerMetrics
from shared_scheduler.service.notices import Notices
from shared_scheduler.service.recent import Recent
from shared_scheduler.service.resync_orders import ResyncOrders
from shared_scheduler.service.runner import WORKER_NUMBER
from shared_scheduler.service.state_pages import StatePages
from shared_scheduler.service.why import WhyAnswerer
from shared_scheduler.sync import cost
from shared_scheduler.sync.databases import Cell, DatabaseError
from shared_scheduler.sync.orphan_search import Share, share_of
from shared_scheduler.sync.orphan_sweeper import LastingTurns, OrphanSweeper
from shared_scheduler.sync.server_location import Locator
from shared_scheduler.sync.service_checks import ServiceChecks
from shared_scheduler.sync.state_sync import StateSync
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.transport.bus import lasting_name

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)


#: Hosts of each reason that the record of a refusal lists.
NEAR_MAX = 5
#: Refusals whose hosts are listed, because that reads every host again.
EXPLANATIONS_PER_S, EXPLANATIONS_BURST = 5.0, 20.0
#: Rejected hosts that the record of a placed server lists; if there are more, it lists none.
REJECTED_MAX = 8
#: The largest cloud whose records of placed servers list rejected hosts: all of its hosts are read again.
REJECTED_OF_MAX = 64


class RunningScheduler:
    """Call ``start`` once, ``decide`` for each request, ``stop`` once."""

    def __init__(
        self,
        name: str,
        host_manager: HostManager,
        aggregates: AggregateCache,
        request_filters: Callable[[Any, Any], None],
        mode: CurrentMode,
    ) -> None:
        self._name = name
        self._mode = mode
        self._host_manager = host_manager
        self._aggregates = aggregates
        self._what_if = WhatIfRequests(host_manager, aggregates, request_filters)
        ratios = configuration.default_ratios()
        self.states = HostStates(aggregates, self._cell_context)
        self.channels = Channels(
            _known_as(name), lambda event: self.engine.handle(event), self._cell_of,
            lambda node: self.core.nodes.owner_of(node),
        )  # fmt: skip
        self.channels.load_keys()
        table = HostTable(ratios)
        rng = random.Random()
        self.decider = LoggingDecider(table, rng=rng)
        identity = Identity(name, _epoch(), self.channels.addresses, _salt(), release())
        self.core = SchedulerCore(
            identity, configuration.core_settings(), table, self.decider,
            NovaJudge(host_manager, self.states), rng,
        )  # fmt: skip
        self.engine = Engine(self.core)
        self.recorder = Recorder(_stores(), self.engine.counters)
        self.comparisons = Comparisons(self, self.engine.counters)
        self._placement = PlacementClient(ReportClientTransport(), count=cost.count)
        self._recent = Recent()
        self._askers = Askers()
        self._explanations = TokenBucket(EXPLANATIONS_PER_S, EXPLANATIONS_BURST)
        self._explanations_of_placed = TokenBucket(EXPLANATIONS_PER_S, EXPLANATIONS_BURST)
        self._admin = self._admin_server()
        self._is_loaded = False
        self._sync = self._connect(self._placement)
        self._telemetry, self._metrics = self._make_telemetry()
        self._apply_decision_settings()

    def _connect(self, client: PlacementClient) -> StateSync:
        """Create the readers of databases and Placement, and the engine's sinks."""
        ours, handle = CONF.shared_scheduler, self.engine.handle
        api = NovaApiDatabase(self._aggregates)
        locate = Locator(api, NovaCellDatabase).locate
        self._batch_writer = BatchWriter(
            client,
            handle,
            locate,
            writers=ours.placement_writers,
            merged_moves=ours.merged_moves,
            record_change=self._record_change,
        )
        sweeper = OrphanSweeper(
            api, lambda: sync.databases(), client, time.monotonic, lambda: self.engine.inspect(_share),
            self._batch_writer.restore,
            LastingTurns(lambda: self.engine.inspect(live_schedulers), time.monotonic).turns,
        )  # fmt: skip
        sync = StateSync(
            api, NovaCellDatabase, client, handle,
            self.core.nodes.agent_speaks_for,
            sources=configuration.sources(),
            question_threads=ours.placement_readers,
            nodes_max=ours.catch_up_nodes_max,
            sweep=lambda: sweeper.sweep() if self._mode.writes else iter(()),
            log_new=Notices(self.engine, ours.nodes_max).log_new,
            has_unlisted=lambda: self.core.nodes.has_unlisted,
        )  # fmt: skip
        checks = ServiceChecks(self._batch_writer, sync.fleet, sync.revalidator, handle)
        self._sinks = Sinks(checks, sync, checks.expect, self._record_effect, self._batch_writer.examine)
        return sync

    # -- life cycle

    def start(self) -> None:
        """Load everything and begin to serve.

        :raises DatabaseError: when the databases cannot be read
        """
        begun_s = time.monotonic()
        if self._telemetry is not None:
            self._telemetry.start()
        self.recorder.start()
        self.engine.start(self._sinks)
        cells = self._sync.load()
        self._use_cells(cells)
        self._is_loaded = True
        if self.recorder:  # a database of records that is away must not delay the start
            threading.Thread(target=self._resume_builds, name="unfinished builds", daemon=True).start()
        if self._admin is not None:
            _start_admin(self._admin)
        LOG.info(
            "Scheduler ready after %.1f s: %d compute nodes, %d cells, %d state channels",
            time.monotonic() - begun_s,
            len(self.core.table),
            len(cells),
            len(self.engine.channels),
        )

    def _resume_builds(self) -> None:
        """Await the builds that had not ended when this scheduler stopped."""
        ours = CONF.shared_scheduler
        try:
            store = open_named(ours.records_connection or ours.records_file)
            try:
                self._askers.recorded(placed_lately(store, time.time()))
                found = unfinished(store, self._name, time.time())
            finally:
                store.close()
        except Exception as error:  # the exceptions depend on the database driver
            LOG.info("The records do not show which builds have not ended, so only new ones are awaited: %s", error)
            return
        if found:
            LOG.info("Awaiting %d builds that were begun before this start", len(found))
            self.engine.handle(UnfinishedBuildsFound(found))

    def reload(self) -> None:
        """SIGHUP: read cells, filters, weighers, aggregates and keys again; the table stays.

        Everything that can fail is read before anything is applied.
        """
        keys = self.channels.read_keys()
        cells = self._sync.cells()
        self._host_manager.refresh_cells_caches()
        self._aggregates.read(nova_context.get_admin_context())
        self._host_manager.load_plugins()
        self.channels.use_keys(keys)
        self._apply_decision_settings()
        self._sync.use(cells)
        self._use_cells(cells)
        self.engine.handle(AggregatesRead(self._aggregates.facts(), complete=True))  # casts may have come meanwhile

    def stop_within(self, timeout_s: float) -> None:
        """Requests under way may take at most this time from now on."""
        self.engine.stop_within(timeout_s)

    def stop_polls(self) -> None:
        """From now on, read only what a request under way waits for."""
        self._sync.stop_polls()

    def drain(self, timeout_s: float) -> bool:
        """Refuse new requests, and wait for those in flight, and for the deletes of what failed ones have written.
        Returns whether all requests have ended."""
        return self.engine.drain(timeout_s)

    def stop(self) -> None:
        """End every thread.  Idempotent."""
        if self._admin is not None:
            self._admin.stop()
        if self._telemetry is not None:
            self._telemetry.stop()
        self.comparisons.stop()
        self.engine.stop()
        self.recorder.stop()

    # -- requests and messages

    def decide(self, request: Request) -> Answer | Fail:
        """Decide a request; blocks until there is an answer.

        :raises EngineBrokenError: when there will be no answer
        """
        writes = request.claim and bool(request.forms)
        outcome = self._deciding(request, configuration.request_timeout_s(), writes)
        self._record(outcome)
        return outcome

    def preview(self, request: Request, timeout_s: float) -> Answer | Fail:
        """See ``service.comparisons.Ours``.

        :raises EngineBrokenError: when there will be no answer
        """
        return self._deciding(request, timeout_s, writes=False)

    def _deciding(self, request: Request, timeout_s: float, writes: bool) -> Answer | Fail:
        """Read what the request needs besides the table, and decide it."""
        until_s = time.monotonic() + timeout_s
        if self.decider.reads_images and not request.is_rebuild:
            request = self._with_image(request, timeout_s)
        left_s = until_s - time.monotonic()
        return self._sync.decision_reads.deciding(partial(self.engine.decide, request), _is_no, left_s, writes)

    def _with_image(self, request: Request, within_s: float) -> Request:
        """The request with what its image asks of spreading, or why that could not be read: the core decides whether
        it goes on."""
        servers = request.instance_uuids if request.claim else _servers_of(request.spec)
        try:
            found = self._sync.image_reads.properties(servers, within_s)
            return replace(request, image_spread=found)
        except DatabaseError as error:
            LOG.warning("Request %s: the properties of its image are not known: %s", request.request_id, error)
            return replace(request, image_unread=str(error))

    def why_refused(self, request: Request, node: str) -> str:
        """See ``service.comparisons.Ours``."""
        found = self.engine.inspect(lambda _: explain(self.decider, request, only=frozenset({node})))
        return next((answer.code or PASSES_NOW for answer in found.listed), UNKNOWN_HOST)

    def near_tie(self) -> float:
        """See ``service.comparisons.Ours``."""
        return configuration.near_tie() or 0.0

    def keep(self, comparison: ComparedRequest) -> None:
        """See ``service.comparisons.Ours``."""
        self.recorder.add(comparison.entry(self._name, time.time()))

    def _record(self, outcome: Answer | Fail) -> None:
        """Record a decision.  Its claims exist already, so an error of the record must not fail the request."""
        try:
            at_s = time.time()
            LOG.info(entries.line(outcome.record))
            self._recent.add(outcome, at_s)
            self._askers.decided(outcome.record)
            if self._metrics is not None:
                self._metrics.observe(outcome.record)
            if self.recorder:
                near, rejected = self._near(outcome), self._rejected(outcome)
                self.recorder.add(entries.entry(outcome.record, self._name, at_s, near, rejected))
        except Exception:
            LOG.exception("Request %s is decided, but not recorded", outcome.request.request_id)

    def _near(self, outcome: Answer | Fail) -> entries.Near:
        """Why no host was found; nothing if this happens often."""
        if not _is_no(outcome) or not self._explanations.take(time.monotonic()):
            return entries.NOTHING_NEAR
        try:
            return self.engine.inspect(lambda core: self._near_now(core, outcome.request))
        except DecisionError:
            return entries.NOTHING_NEAR

    def _rejected(self, outcome: Answer | Fail) -> entries.Near:
        """The hosts that were rejected for one server that was placed, if they are few and this is rare."""
        record = outcome.record
        counts = record.decisions[-1] if record.decisions and not record.failure else None
        if counts is None or len(record.answer) != 1 or counts.hosts > REJECTED_OF_MAX:
            return entries.NOTHING_NEAR
        left = {code: count for code, count in counts.reasons.items() if code != TRIED}
        few = 0 < sum(left.values()) <= REJECTED_MAX
        if not few or not self._explanations_of_placed.take(time.monotonic()):
            return entries.NOTHING_NEAR
        used = {*record.answer[0][:1], *(one.host for one in record.attempts)}
        try:
            found = self.engine.inspect(lambda core: self._rejected_now(core, outcome.request, used))
        except DecisionError:
            return entries.NOTHING_NEAR
        same = Counter(one.code for one in found.hosts) == left  # other hosts may have changed since
        return found if same else entries.NOTHING_NEAR

    def _rejected_now(self, core: SchedulerCore, request: Request, used: Set[str]) -> entries.Near:
        """``used``: hosts that were selected or tried, whose room the claim has changed."""
        now_s, found = self.engine.clock(), explain(self.decider, request, each_max=REJECTED_MAX)
        hosts = [one for one in found.listed if one.code and one.host not in used]
        return entries.Near(hosts, {}, {one.node: origin(core, one.node, now_s) for one in hosts})

    def _near_now(self, core: SchedulerCore, request: Request) -> entries.Near:
        now_s, found = self.engine.clock(), explain(self.decider, request, each_max=NEAR_MAX)
        origins = {one.node: origin(core, one.node, now_s) for one in found.listed if one.code}
        return entries.Near(found.listed, found.missing, origins, held_room_of_rejected(core.table, found.listed))

    def _record_effect(self, effect: RecordBuild | RecordNode) -> None:
        if isinstance(effect, RecordNode):
            self.recorder.add(entries.node_entry(effect, self._name, time.time()))
            return
        at_s = time.time() if effect.at_s is None else effect.at_s
        asker = self._askers.of(effect.consumer, effect.host)
        self.recorder.add(entries.build_entry(effect, asker, self._name, at_s))

    def _record_change(self, change: ForeignChange) -> None:
        asker = self._askers.of(change.consumer, change.host)
        self.recorder.add(entries.foreign_entry(change, asker, self._name))

    def take_back(self, answer: Answer) -> None:
        """Undo the claims of an answer that does not reach its caller."""
        self.engine.handle(AnswerUnheard(answer.claim_ids, cause=answer.cause))

    def aggregates_changed(self, facts: tuple[AggregateFacts, ...]) -> None:
        """Aggregates were created or changed."""
        self.engine.handle(AggregatesRead(facts))

    def aggregate_deleted(self, aggregate_id: int) -> None:
        """An aggregate was deleted."""
        self.engine.handle(AggregatesRead((), frozenset({aggregate_id})))

    def hint(self, host: str, instances: frozenset[str] | None) -> None:
        """nova-compute has reported a change of this host.  ``instances``: all its instances, if the report contains
        them.

        Rows of nodes with an agent are current; those of other nodes are read again.
        """
        for cell, node, members in self.engine.inspect(lambda core: _nodes_of(core, host)):
            if instances is None or instances != members:
                cause = f"nova-compute of {host}"
                self._sync.submit(RefreshNode(cell, node, "nova-compute reported a change", cause=cause))

    # -- internal

    def _admin_server(self) -> AdminServer | None:
        directory = CONF.shared_scheduler.admin_socket_dir
        if not directory:
            return None
        known_as = _known_as(self._name)
        why = WhyAnswerer(self.engine, self.decider, self._recent, known_as)
        path = Path(directory) / f"{known_as}-{os.getpid()}{SUFFIX}"
        reads, foreign_changes = lambda: self._sync.revalidator.report(), lambda: self._batch_writer.foreign_changes()
        fit = FitAnswerer(
            self.engine, known_as, self._what_if.make, self._prepare, self._candidates, self._placement.known_traits,
            configuration.LAST_WORDS_MAX,
        )  # fmt: skip
        asked = questions(self.engine, known_as, why.answer, reads, foreign_changes, self._mode, self._queues())
        hosts = HostAnswerer(self.engine, self.decider, known_as, self._what_if.make)
        pages = StatePages(self.engine, known_as)
        orders = ResyncOrders(self.engine, known_as)
        more = {"fit": fit.answer, "hosts": hosts.answer, "state": pages.answer}
        more |= {"resync": orders.order, "resync-result": orders.result}
        return AdminServer(path, {**asked, **more})

    def _prepare(self, table: HostTable) -> tuple[Decider, NovaJudge]:
        """The decider and the judge of this scheduler for a copy of its table.  They share no caches of rows."""
        states = HostStates(self._aggregates, self._cell_context)
        decider = Decider(table, rng=random.Random(0))
        self._configure(decider, states)
        self.engine.inspect(lambda _: decider.prefer_slices_of(self.decider))
        return decider, NovaJudge(self._host_manager, states)

    def _candidates(self, ask: AskCandidates) -> CandidatesAnswered:
        answered = PlacementQuestions(self._placement, _no_members, _no_hosts).answer(ask)
        assert isinstance(answered, CandidatesAnswered), answered
        return answered

    def _make_telemetry(self) -> tuple[Telemetry | None, SchedulerMetrics | None]:
        """:raises TelemetryError: when ``metrics_listen`` cannot be used"""
        address = telemetry_address(CONF.shared_scheduler.metrics_listen, "shared_scheduler")
        if address is None:
            return None, None
        served = Telemetry(address.of_worker(os.environ.get(WORKER_NUMBER)), self._not_alive, self._not_ready)
        return served, SchedulerMetrics(
            self.engine,
            self._sync.revalidator.report,
            self._queues(),
            served.registry,
            self._mode_once_loaded,
            self._batch_writer.change_counts,
        )

    def _mode_once_loaded(self) -> Mode | None:
        return self._mode.value if self._is_loaded else None

    def _queues(self) -> Queues:
        """What waits, by the name of its queue."""
        return {"placement_writes": lambda: self._batch_writer.waiting(), "records": lambda: self.recorder.waiting()}

    def report(self) -> dict[str, Any]:
        """The state of the scheduler for a Guru Meditation Report."""
        return {"mode": self._mode.value.value, **report(self.engine, self._queues())}

    def check_alive(self) -> None:
        """Return if the core handles events; do not return while it does not."""
        self.engine.inspect(lambda core: None)

    def _not_alive(self) -> list[str]:
        self.check_alive()
        return []

    def _not_ready(self) -> list[str]:
        """Why this scheduler cannot serve every cell."""
        if not self._is_loaded:
            return ["the databases and Placement are being read"]
        channels = list(self.engine.channels.items())
        return [f"cell {cell} is not connected" for cell, own in channels if not own.channel.connected]

    def _apply_decision_settings(self) -> None:
        self._configure(self.decider, self.states)

    def _configure(self, decider: Decider, states: HostStates) -> None:
        self.engine.inspect(lambda _: configure_decider(decider, self._host_manager, states))

    def _use_cells(self, cells: tuple[Cell, ...]) -> None:
        disabled = frozenset(cell.uuid for cell in cells if cell.disabled)
        self.engine.inspect(lambda core: core.table.set_disabled_cells(disabled))
        self._leave_cells({cell.uuid for cell in cells})
        opened = self.channels.open(cells)
        for uuid, channel in self.channels.by_cell.items():
            if self.engine.channels.get(uuid) is not channel:  # new, or moved to another queue
                self.engine.use_channel(uuid, channel)
                channel.announce_cell(uuid)
        for channel in opened:
            self.engine.add_channel(channel)

    def _leave_cells(self, there: set[str]) -> None:
        """Remove deleted cells: first their channels, then their nodes."""
        nodes = self.engine.inspect(lambda core: [(known.cell, known.node) for known in core.nodes])
        gone = ({cell for cell, _ in nodes} | self.channels.by_cell.keys()) - there
        for cell in sorted(gone):
            self.engine.channels.pop(cell, None)
            self.channels.close(cell)
            own = frozenset(node for its_cell, node in nodes if its_cell == cell)
            self.engine.handle(NodesGone(cell, own))
            LOG.info("Cell %s and its %d compute nodes were removed", cell, len(own))

    def _cell_of(self, node: str) -> str | None:
        known = self.core.nodes.get(node)
        return None if known is None else known.cell

    def _cell_context(self, cell_uuid: str) -> Any:
        return cell_context(self._host_manager.cells.get(cell_uuid))


def _servers_of(spec: Any) -> tuple[str, ...]:
    """The server that a legacy caller names in the RequestSpec only."""
    return (spec.instance_uuid,) if "instance_uuid" in spec and spec.instance_uuid else ()


def _is_no(outcome: Answer | Fail) -> bool:
    """Whether it may become an answer after the sources were read again."""
    return isinstance(outcome, Fail) and outcome.code in NO_HOST


def _no_members(_question: object) -> dict[str, str | None]:
    """No members: a question for candidates reads none."""
    return {}


def _no_hosts(_cell: str, _servers: object, _undecided: bool) -> dict[str, str]:
    """No hosts, likewise."""
    return {}


def _known_as(name: str) -> str:
    """The name of this scheduler; that of one of several workers has its number."""
    worker = os.environ.get(WORKER_NUMBER)
    return name if worker is None else f"{name}.worker{worker}"


def _share(core: SchedulerCore) -> Share:
    """The share of this scheduler among the live schedulers, which is the same one after a new start."""
    own, live = live_schedulers(core)
    return share_of(lasting_name(own), map(lasting_name, live))


def live_schedulers(core: SchedulerCore) -> tuple[str, tuple[str, ...]]:
    """This scheduler, and the live ones on the first cell's state channel; in a cloud without any, the only one."""
    cell = min(tuple(core.identity.addresses), default="")  # another thread opens channels
    return core.identity.address(cell), core.peers.live(cell)


def _nodes_of(core: SchedulerCore, host: str) -> list[tuple[str, str, frozenset[str]]]:
    """(cell, node, instances of the host) of the host's nodes without an agent."""
    views = (core.table.view_at(slot) for slot in core.table.slots_of_host(host))
    return [(view.cell, view.node, view.instances) for view in views if not core.nodes.agent_speaks_for(view.node)]


def _epoch() -> int:
    """An epoch that grows with each start: milliseconds since 1970."""
    return int(time.time() * 1000)


def _salt() -> str:
    """A value that no other process has, on any host; claim ids are derived from it."""
    return f"{os.getpid()}-{secrets.token_hex(16)}"


def _stores() -> list[Store]:
    ours = CONF.shared_scheduler
    archive = Path(ours.records_archive) if ours.records_archive else None
    found: list[Store] = []
    if ours.records_file:
        path, kept = Path(ours.records_file), ours.records_files_kept
        found.append(JsonLines(path, ours.records_file_max_mb, kept, ours.records_days_max, archive))
    if ours.records_connection:
        found.append(RecordTable(ours.records_connection, ours.records_rows_max, ours.records_days_max, archive))
    return found


def _start_admin(server: AdminServer) -> None:
    """Start the admin socket; the scheduler works without it."""
    try:
        server.start()
    except AdminError as error:
        LOG.warning("%s", error)
