# SPDX-License-Identifier: Apache-2.0
"""The scheduler core: one event in, a list of effects out.

The core uses no clock, socket, thread, configuration or global random generator: ``now`` and a seeded generator are
arguments.  Therefore the service, the simulator and a replay run the same code.  The core is not thread-safe; its
owner calls it from one thread at a time.

The parts of the core; the docstring of each module explains it:

===================  =====================================================================
events.py            what can happen to the core
effects.py           what the edges have to carry out for it
nodes.py             applies messages of agents to windows and to rows of the table
row_corrections.py   has rows read again that may be wrong
ordered_resyncs.py   has the nodes of a host read again, by order of an operator
second_agents.py     remembers nodes for which two agents speak
unlisted_nodes.py    bounds the nodes that only messages name
quarantine.py        selects nodes last that refuse claims repeatedly
requests.py          the life of a request
request_state.py     the state of a request, and the data for its record
time_left.py         tells whether a request can end in time
planner.py           selects a host for one instance: decider and judge
alternates.py        searches hosts that the conductor tries if a build fails
claims.py            the life of a claim
claim_state.py       the state of a claim
agent_casts.py       what is cast to the agents about claims, and the wait for their verdicts
confirmed_claims.py  reads confirmed claims again that their nodes do not report
own_writes.py        compares what is reported with what this scheduler wrote last
change_kinds.py      the kinds of changes that others have made
allocation_merge.py  merges the allocations of a server that moves with those of others
write_queue.py       the order of the writes to Placement, for the edges that carry them out
write_pace.py        the size of their batches, and all bounds of the queue
verdict_limit.py     how long an agent may take for its verdict before the next host is claimed
known_groups.py      members of a request's server group that the table knows
group_check.py       checks the server group between write and answer
label_reads.py       how often the servers of a label are read before a refusal
spread_check.py      checks the spreading between write and answer
written_checks.py    tells which of both is next, and when a request need not or cannot follow it
held_room.py         tells who holds the room of a host that refused
recheck.py           asks Placement before "no valid host"
builds.py            the ends of builds, for the records
awaited_builds.py    placed servers whose end no agent has reported; Nova's databases are read for it
peers.py             the other schedulers that are alive
trial.py             places servers on a copy of the table, for ``fit``
scheduler_settings.py
                     the times and bounds of the core
step.py              what the parts share while one event is handled
===================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from shared_scheduler.core import events as ev
from shared_scheduler.core.agent_casts import AgentCasts, AgentLate, LateVerdict, NodeHasRoom
from shared_scheduler.core.awaited_builds import TIMER, AwaitedBuilds
from shared_scheduler.core.builds import Builds
from shared_scheduler.core.claims import ClaimEnded, Claims, ClaimWritten
from shared_scheduler.core.confirmed_claims import ConfirmedClaims
from shared_scheduler.core.effects import Effect
from shared_scheduler.core.group_check import GroupCheck
from shared_scheduler.core.nodes import AgentSilent, Nodes, RowRead
from shared_scheduler.core.ordered_resyncs import OrderedResyncs
from shared_scheduler.core.own_writes import OwnWrites
from shared_scheduler.core.peers import Peers, SchedulersChanged
from shared_scheduler.core.planner import HostJudge, Planner
from shared_scheduler.core.quarantine import Quarantine
from shared_scheduler.core.recheck import Recheck, Rechecked
from shared_scheduler.core.requests import Placed, Requests
from shared_scheduler.core.row_corrections import RowCorrections
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.core.spread_check import SpreadCheck
from shared_scheduler.core.step import Step, Timers
from shared_scheduler.core.written_checks import WrittenChecks
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Resync,
    Role,
    Snapshot,
    Verdict,
    Want,
)
from shared_scheduler.table.host_table import HostTable


class StepFailedError(Exception):
    """A bug of the core in one step.  ``effects`` must still be carried out; ``errors`` were raised.

    Each error belongs to one timer, one message or the event; everything else of the step was handled.
    ``of_event``: the error of the event itself, None if it was handled.
    """

    def __init__(self, effects: list[Effect], errors: list[Exception], of_event: Exception | None = None) -> None:
        super().__init__("; ".join(f"{type(each).__name__}: {each}" for each in errors))
        self.effects = effects
        self.errors = errors
        self.of_event = of_event


class SchedulerCore:
    """One scheduler.

    The scheduler owns ``table`` and ``decider``; ``judge`` verifies selected hosts; ``rng`` is the only source of
    random numbers.  No input of a peer, of Placement or of a caller makes ``step`` raise.  A ``StepFailedError`` is a
    bug of the core, and affects only the message, timer or event that failed.
    """

    def __init__(
        self,
        identity: Identity,
        settings: SchedulerSettings,
        table: HostTable,
        decider: Decider,
        judge: HostJudge,
        rng: Random,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.table = table
        self.timers = Timers()
        self.peers = Peers(identity, settings, self.timers)
        self.own_writes = OwnWrites(table)
        self.nodes = Nodes(identity, settings, table, self.timers, rng, self.own_writes)
        self.awaited_builds = AwaitedBuilds(self.timers, self.nodes.agent_speaks_for)
        self.builds = Builds(identity, table, self.peers, self.awaited_builds)
        self.corrections = RowCorrections(settings, table, self.timers, self.nodes)
        self.quarantine = Quarantine(settings, self.timers, self.nodes, self.corrections)
        self.ordered_resyncs = OrderedResyncs(table, self.nodes, self.corrections, self.quarantine)
        self.confirmed_claims = ConfirmedClaims(settings, table, self.timers)
        self.agent_casts = AgentCasts(identity, settings, table, self.timers)
        self.claims = Claims(
            identity, settings, table, self.timers, self.confirmed_claims, self.own_writes, self.agent_casts
        )  # fmt: skip
        self.recheck = Recheck(settings, self.timers, self.corrections, table.__len__)
        self.planner = Planner(
            table, decider, judge, self.agent_casts, self.quarantine,
            settings.last_words_max, settings.judged_per_step_max,
        )  # fmt: skip
        self.requests = Requests(
            settings, self.timers, self.planner, self.claims, self.agent_casts, self.nodes, self.quarantine,
            self.recheck, WrittenChecks(settings, GroupCheck(table, rng), SpreadCheck(table, decider, rng)),
        )  # fmt: skip
        self._services_of: dict[str, dict[str, ServiceFacts]] = {}  # cell -> host -> its service there
        self._timer_handlers = self._handlers_of_timers()

    def _handlers_of_timers(self) -> dict[str, Callable[[Step, str], None]]:
        """What is called with the owner of a timer when it rings, by the kind of the timer."""
        return {
            "verdict": self.claims.on_verdict_timer,
            "late": self.agent_casts.on_late_timer,
            "write": self.claims.on_write_timer,
            "repeat": self.agent_casts.on_repeat_timer,
            "delete": self.claims.on_delete_timer,
            "deleting": self.claims.on_delete_timer,
            "unreported": self.confirmed_claims.on_timer,
            "request": self.requests.on_timer,
            "alternates": self.requests.on_alternates_timer,
            "again": self.requests.on_again_timer,
            "group": self.requests.on_group_timer,
            "recheck": self.recheck.on_timer,
            "window": self.nodes.on_window_timer,
            "resync turn": self.nodes.on_turn_timer,
            "unresponsive": self.nodes.on_unresponsive_timer,
            "second agent": lambda step, node: self.nodes.second_agents.forget(node),
            "quarantine": self.quarantine.on_timer,
            "mirrored": self.corrections.on_aggregates_timer,
            "hello": self.peers.on_timer,
            TIMER: self.awaited_builds.on_timer,
        }

    def step(self, event: ev.Event, now: float) -> list[Effect]:
        """Handle one event at ``now`` (seconds of the owner's monotonic clock) and return the effects.

        Timers that are due ring first.  A timer that is set for ``now`` rings in the next step, for which
        ``next_deadline_s`` asks at once; therefore the effects of this step leave before it rings.
        """
        step, errors, of_event = Step(now, event), list[Exception](), None
        self._ring_timers(step, errors)
        step.trigger = event
        try:
            self._handle(step, event, errors)
            self._hand_on(step)
        except Exception as error:
            errors.append(error)
            of_event = error
        self._end_step(step, errors)
        if errors:
            raise StepFailedError(step.effects, errors, of_event) from errors[0]
        return step.effects

    def _ring_timers(self, step: Step, errors: list[Exception]) -> None:
        while (key := self.timers.due(step.now)) is not None:
            step.trigger = key
            kind, name = key
            try:
                self._timer_handlers[kind](step, name)
                self._hand_on(step)
            except Exception as error:
                errors.append(error)

    def _end_step(self, step: Step, errors: list[Exception]) -> None:
        try:
            self._hand_on(step, last=True)
        except Exception as error:
            errors.append(error)

    def counters(self) -> dict[str, int]:
        """Every counter of the parts, by name."""
        counted = self.nodes.counters + self.quarantine.counters + self.claims.counters
        counted += self.builds.counters + self.awaited_builds.counters + self.ordered_resyncs.counters
        counted += self.own_writes.counters
        return dict(counted) | self.nodes.window_counters.as_dict()

    def next_deadline_s(self) -> float | None:
        """When the core needs a ``Tick`` at the latest; None if it only waits for events."""
        return self.timers.next_s()

    # -- events

    def _handle(self, step: Step, event: ev.Event, errors: list[Exception]) -> None:
        match event:
            case ev.MessagesArrived(cell, messages, more):
                self.nodes.reading(cell, more, step.now)
                self._messages(step, cell, messages, errors)
            case ev.CastReturned(_, message):
                self._cast_returned(step, message)
            case ev.RequestArrived():
                self.requests.arrive(step, event)
            case ev.AllocationWritten():
                self.claims.on_written(step, event)
            case ev.AllocationDeleted():
                self.claims.on_deleted(step, event)
            case ev.AnswerUnheard(claim_ids):
                self.claims.unheard(step, claim_ids)
            case ev.CandidatesAnswered() | ev.FittingAnswered() | ev.GroupAnswered() | ev.ConsumerAnswered():
                self._question_answered(step, event)
            case ev.ChannelChanged(cell, connected):
                self._channel(step, cell, connected)
            case ev.ResyncOrdered():
                self.ordered_resyncs.order(step, event)
            case ev.Stopping() | ev.Draining():
                self._end(step, event)
            case ev.Tick():
                pass
            case _:
                self._source_read(step, event)

    def _question_answered(
        self,
        step: Step,
        event: ev.CandidatesAnswered | ev.FittingAnswered | ev.GroupAnswered | ev.ConsumerAnswered,
    ) -> None:
        match event:
            case ev.CandidatesAnswered():
                self.requests.on_candidates(step, event)
            case ev.FittingAnswered():
                self.recheck.on_fitting(step, event)
            case ev.GroupAnswered():
                self.requests.on_group(step, event)
            case ev.ConsumerAnswered():
                self.confirmed_claims.on_consumer(event)

    def _end(self, step: Step, event: ev.Stopping | ev.Draining) -> None:
        if isinstance(event, ev.Stopping):
            self.requests.stop_by(step, event.deadline_s)
        else:
            self.requests.drain()

    def _messages(self, step: Step, cell: str, messages: Iterable[Message], errors: list[Exception]) -> None:
        for message in messages:
            step.trigger = message
            try:
                self._message(step, cell, message)
                self._hand_on(step)
            except Exception as error:
                errors.append(error)
                if isinstance(message, Verdict | Increment | Snapshot):
                    self.nodes.discard_state(step, message.node)

    def _cast_returned(self, step: Step, message: Message) -> None:
        match message:
            case Claim(claim_id=claim_id, node=node):
                self.nodes.agent_gone(step, node)
                self.claims.undelivered(step, claim_id)
            case Resync(node=node):
                self.nodes.agent_gone(step, node)

    def _source_read(
        self,
        step: Step,
        event: ev.BuildsRead
        | ev.UnfinishedBuildsFound
        | ev.ServicesRead
        | ev.AggregatesRead
        | ev.SharingRead
        | ev.NodeRead
        | ev.NodesGone
        | ev.NodeNotFound
        | ev.NodesListed
        | ev.NodeContradicted,
    ) -> None:
        match event:
            case ev.NodeRead():
                self.nodes.read(step, event)
                self._use_service(event.host)  # its cell may be another one now
            case ev.NodeContradicted(node, why):
                self.corrections.correct(step, node, why)
            case ev.NodesGone():
                self._gone(step, event)
            case ev.NodeNotFound(node, read_at_s):
                self.recheck.not_found(step, node, read_at_s)
            case ev.NodesListed(cell):
                self._gone(step, ev.NodesGone(cell, self.nodes.listed(step, event)))
            case ev.SharingRead(providers):
                self.table.set_sharing(providers)
            case ev.BuildsRead():
                self.awaited_builds.read(step, event)
            case ev.UnfinishedBuildsFound(builds):
                self._resume(step, builds)
            case ev.ServicesRead():
                self._services(event)
            case ev.AggregatesRead():
                self._aggregates(step, event)

    def _resume(self, step: Step, builds: Iterable[ev.UnfinishedBuild]) -> None:
        """Await the builds on hosts that are still there."""
        for build in builds:
            for row in map(self.table.row, self.table.slots_of_host(build.host)[:1]):
                if row is not None:
                    self.awaited_builds.resumed(step, row.cell, row.node, build)

    def _gone(self, step: Step, event: ev.NodesGone) -> None:
        gone = self.nodes.gone(event)
        self.quarantine.forget(gone)
        self.corrections.forget(gone)
        self.ordered_resyncs.forget(gone)
        self.recheck.no_row(step, gone)

    def _services(self, event: ev.ServicesRead) -> None:
        known = self._services_of.setdefault(event.cell, {})
        read = {service.host: service for service in event.services}
        gone = known.keys() - read.keys() if event.complete else set[str]()
        for host in gone:
            del known[host]
        known.update(read)
        for host in (*read, *sorted(gone)):
            self._use_service(host)

    def _use_service(self, host: str) -> None:
        """Use the service of the cell that has the nodes of a host.  If the host was set up again in another cell, the
        old one may have another service of it."""
        found = {cell: services[host] for cell, services in self._services_of.items() if host in services}
        if not found:
            self.table.forget_service(host)
            return
        rows = map(self.table.row, self.table.slots_of_host(host))
        own = (found[row.cell] for row in rows if row is not None and row.cell in found)
        self.table.set_service(next(own, next(iter(found.values()))))

    def _aggregates(self, step: Step, event: ev.AggregatesRead) -> None:
        before = self._hosts_of_aggregates()
        if event.complete:
            self.table.set_aggregates(event.aggregates)
        else:
            self.table.update_aggregates(event.aggregates)
        self.table.delete_aggregates(event.deleted)
        after = self._hosts_of_aggregates()
        none: frozenset[str] = frozenset()
        for key in sorted(before.keys() | after.keys()):
            self.corrections.check_aggregates_later(step, before.get(key, none) ^ after.get(key, none))

    def _hosts_of_aggregates(self) -> dict[int, frozenset[str]]:
        return {aggregate.id: aggregate.hosts for aggregate in self.table.aggregates.all()}

    def _message(self, step: Step, cell: str, message: Message) -> None:
        match message:
            case Hello(role=Role.SCHEDULER):
                self.peers.heard(step, cell, message)
            case Verdict():
                for increment in message.news:
                    self._increment(step, cell, increment)
                self.claims.on_verdict(step, message)
            case Snapshot() | Hello() | Leave():
                self.nodes.receive(step, cell, message)
            case Increment():
                self._increment(step, cell, message)
            case Heartbeat():
                self.nodes.receive(step, cell, message)
                self.builds.heard(step, cell, message)
            case BuildResult():
                self.builds.ended(step, cell, message)
            case _:
                self.nodes.counters["messages_not_for_schedulers"] += 1

    def _increment(self, step: Step, cell: str, increment: Increment) -> None:
        self.nodes.receive(step, cell, increment)
        self.claims.on_increment(step, increment)

    def _channel(self, step: Step, cell: str, connected: bool) -> None:
        if not connected:
            self.peers.disconnected(cell)
            return
        known = len(self.nodes.of_cell(cell))
        heard = any(n.window.epoch for n in self.nodes.of_cell(cell))
        want = Want.HEARTBEAT if heard else Want.SNAPSHOT
        spread_ms = self.peers.connected(step, cell, want, max(known, len(self.table)))
        self.nodes.connected(step, cell, spread_ms / 1000)

    # -- between the parts

    def _hand_on(self, step: Step, last: bool = False) -> None:
        """Pass each fact that a part has reported to the parts that need it, until none is left."""
        while (fact := step.next_fact(last)) is not None:
            match fact:
                case ClaimWritten(claim):
                    self.requests.claim_written(step, claim)
                case ClaimEnded(claim, ending):
                    self.requests.claim_ended(step, claim, ending)
                case AgentLate() | LateVerdict():
                    self._hand_on_late(step, fact)
                case NodeHasRoom():
                    self.requests.decide_crowded(step)
                case Placed(server, choice):
                    self.awaited_builds.placed(step, server, choice)
                case AgentSilent(node, why):
                    self.corrections.silent(step, node, why)
                case RowRead(node, read_at_s):
                    self.recheck.row_read(step, node, read_at_s)
                    self.ordered_resyncs.row_read(node)
                case Rechecked(keys, corrected):
                    for key in keys:
                        self.requests.rechecked(step, key, corrected)
                    self.recheck.ask_next(step)
                case SchedulersChanged(cell, names):
                    self.planner.schedulers_changed(cell, names, self.identity.address(cell))
                case _:
                    raise TypeError(f"no part takes {type(fact).__name__}")

    def _hand_on_late(self, step: Step, fact: AgentLate | LateVerdict) -> None:
        match fact:
            case AgentLate(claim):
                self.requests.agent_late(step, claim)
            case LateVerdict(node, came=True):
                self.quarantine.claim_judged(node)
            case LateVerdict(node, began_s=began_s):
                self.nodes.verdict_missed(step, node, began_s)
