# SPDX-License-Identifier: Apache-2.0
"""The scheduler core: one event in, a list of effects out.

No clock, socket, thread, configuration or global randomness inside: ``now`` and a seeded generator
come in as arguments, so that the service, the simulator and a replay are the same code in another
world.  The core is not thread-safe; its owner calls it from one thread at a time.

The parts, each with its own theory in its head comment:

==============  =======================================================================
nodes.py        messages of agents -> windows -> rows of the table
requests.py     the life of a request
planner.py      one instance, one host: decider and judge
claims.py       the life of a claim
watch.py        confirmed claims, until their nodes show them
alternates.py   hosts for the conductor to try without us
doubt.py        "No" is checked
presence.py     which schedulers live
turn.py         what they share while one event is handled
==============  =======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from shared_scheduler.core import events as ev
from shared_scheduler.core.claims import Claims
from shared_scheduler.core.doubt import Doubt
from shared_scheduler.core.effects import Effect
from shared_scheduler.core.judge import HostJudge
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.planner import Planner
from shared_scheduler.core.presence import Presence
from shared_scheduler.core.requests import Requests
from shared_scheduler.core.settings import Identity, Settings
from shared_scheduler.core.turn import Timers, Turn
from shared_scheduler.core.watch import Watch
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.protocol.messages import (
    Beat,
    Goodbye,
    Hello,
    Increment,
    Message,
    Role,
    Snapshot,
    Verdict,
    Want,
)
from shared_scheduler.state.table import HostTable


class StepFailedError(Exception):
    """A bug of ours in one step.  ``effects`` are still to be carried out; ``causes`` what happened.

    What failed is one timer, one message or one event; all others of the step were handled.
    ``of_event``: the cause that is the event's own, None where it was handled.
    """

    def __init__(
        self, effects: list[Effect], causes: list[Exception], of_event: Exception | None = None
    ) -> None:
        super().__init__("; ".join(f"{type(each).__name__}: {each}" for each in causes))
        self.effects = effects
        self.causes = causes
        self.of_event = of_event


class SchedulerCore:
    """One scheduler.

    ``table`` and ``decider`` are its own; ``judge`` verifies winners; ``rng`` is the only source of
    chance.  ``step`` raises nothing for anything that a peer, Placement or a caller may say; a
    ``StepFailedError`` is a bug of ours, and costs only what it was raised for.
    """

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        table: HostTable,
        decider: Decider,
        judge: HostJudge,
        rng: Random,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.table = table
        self.timers = Timers()
        self.presence = Presence(identity, settings, self.timers, self._schedulers_changed)
        self.nodes = Nodes(identity, settings, table, self.timers, rng, self._row_read)
        self.watch = Watch(settings, table, self.timers)
        self.claims = Claims(identity, settings, table, self.timers, self.watch)
        self.doubt = Doubt(settings, self.timers, self.nodes)
        self.planner = Planner(
            table, decider, judge, self.claims, self.nodes,
            settings.last_words_max, settings.judged_per_step_max,
        )  # fmt: skip
        self.requests = Requests(settings, self.timers, self.planner, self.claims, self.nodes, self.doubt)
        self._hosts_with_service: dict[str, set[str]] = {}  # by cell
        self._rings: dict[str, Callable[[Turn, str], None]] = {
            "verdict": self.claims.on_verdict_timer,
            "write": self.claims.on_write_timer,
            "repeat": self.claims.on_repeat_timer,
            "delete": self.claims.on_delete_timer,
            "look": self.watch.on_timer,
            "request": self.requests.on_timer,
            "alternates": self.requests.on_alternates_timer,
            "again": self.requests.on_again_timer,
            "doubt": self.doubt.on_timer,
            "window": self.nodes.on_window_timer,
            "mute": self.nodes.on_mute_timer,
            "quarantine": self.nodes.on_quarantine_timer,
            "mirrored": self.nodes.on_mirrored_timer,
            "hello": self.presence.on_timer,
        }

    def step(self, event: ev.Event, now: float) -> list[Effect]:
        """Take one event at ``now`` (seconds of the owner's monotonic clock); what is to be done.

        Timers that are due ring first.  One that is set for this very moment rings in the next step,
        for which ``next_deadline_s`` asks at once: so what is urgent leaves before what can wait.
        """
        turn, causes, of_event = Turn(now), list[Exception](), None
        self._ring(turn, causes)
        try:
            self._handle(turn, event, causes)
        except Exception as error:
            causes.append(error)
            of_event = error
        self._land(turn, causes)
        if causes:
            raise StepFailedError(turn.effects, causes, of_event) from causes[0]
        return turn.effects

    def _ring(self, turn: Turn, causes: list[Exception]) -> None:
        while (key := self.timers.due(turn.now)) is not None:
            kind, name = key
            try:
                self._rings[kind](turn, name)
            except Exception as error:
                causes.append(error)

    def _land(self, turn: Turn, causes: list[Exception]) -> None:
        try:
            self.requests.claims_landed(turn)
        except Exception as error:
            causes.append(error)

    def next_deadline_s(self) -> float | None:
        """When the core wants a ``Tick`` at the latest; None: only an event can change anything."""
        return self.timers.next_s()

    # -- events

    def _handle(self, turn: Turn, event: ev.Event, causes: list[Exception]) -> None:
        match event:
            case ev.MessagesArrived(cell, messages):
                self._messages(turn, cell, messages, causes)
            case ev.RequestArrived():
                self.requests.arrive(turn, event)
            case ev.AllocationWritten():
                self.claims.on_written(turn, event)
            case ev.AllocationDeleted():
                self.claims.on_deleted(turn, event)
            case ev.AnswerUnheard(claim_ids):
                self.claims.unheard(turn, claim_ids)
            case ev.CandidatesAnswered():
                self.requests.on_candidates(turn, event)
            case ev.FittingAnswered():
                self.doubt.on_fitting(turn, event)
            case ev.ConsumerAnswered():
                self.watch.on_consumer(event)
            case ev.ChannelChanged(cell, connected):
                self._channel(turn, cell, connected)
            case ev.Stopping() | ev.Draining():
                self._end(turn, event)
            case ev.Tick():
                pass
            case _:
                self._facts(turn, event)

    def _end(self, turn: Turn, event: ev.Stopping | ev.Draining) -> None:
        if isinstance(event, ev.Stopping):
            self.requests.stop_by(turn, event.deadline_s)
        else:
            self.requests.drain()

    def _messages(
        self, turn: Turn, cell: str, messages: Iterable[Message], causes: list[Exception]
    ) -> None:
        for message in messages:
            try:
                self._message(turn, cell, message)
            except Exception as error:
                causes.append(error)
                if isinstance(message, Verdict | Increment | Snapshot):
                    self.nodes.distrust(turn, message.node)

    def _facts(
        self,
        turn: Turn,
        event: ev.ServicesRead
        | ev.AggregatesRead
        | ev.SharingRead
        | ev.NodeRead
        | ev.NodesGone
        | ev.NodeDoubted,
    ) -> None:
        match event:
            case ev.NodeRead():
                self.nodes.read(turn, event)
            case ev.NodeDoubted(node, why):
                self.nodes.doubt_row(turn, node, why)
            case ev.NodesGone():
                self.nodes.gone(event)
            case ev.SharingRead(providers):
                self.table.set_sharing(providers)
            case ev.ServicesRead():
                self._services(event)
            case ev.AggregatesRead():
                self._aggregates(turn, event)

    def _services(self, event: ev.ServicesRead) -> None:
        known = self._hosts_with_service.setdefault(event.cell, set())
        read = {service.host for service in event.services}
        for service in event.services:
            self.table.set_service(service)
        if event.complete:
            for host in sorted(known - read):
                self.table.forget_service(host)
            known.intersection_update(read)
        known |= read

    def _aggregates(self, turn: Turn, event: ev.AggregatesRead) -> None:
        before = self._hosts_of_aggregates()
        if event.complete:
            self.table.set_aggregates(event.aggregates)
        else:
            self.table.update_aggregates(event.aggregates)
        self.table.delete_aggregates(event.deleted)
        after = self._hosts_of_aggregates()
        none: frozenset[str] = frozenset()
        for key in sorted(before.keys() | after.keys()):
            self.nodes.aggregates_changed(turn, before.get(key, none) ^ after.get(key, none))

    def _hosts_of_aggregates(self) -> dict[int, frozenset[str]]:
        return {aggregate.id: aggregate.hosts for aggregate in self.table.aggregates.all()}

    def _message(self, turn: Turn, cell: str, message: Message) -> None:
        match message:
            case Hello(role=Role.SCHEDULER):
                self.presence.heard(turn, cell, message)
            case Verdict():
                for increment in message.news:
                    self.nodes.receive(turn, cell, increment)
                self.claims.on_verdict(turn, message)
            case Increment() | Beat() | Snapshot() | Hello() | Goodbye():
                self.nodes.receive(turn, cell, message)
            case _:
                self.nodes.counters["messages_not_for_schedulers"] += 1

    def _channel(self, turn: Turn, cell: str, connected: bool) -> None:
        if not connected:
            self.presence.disconnected(cell)
            return
        known = len(self.nodes.of_cell(cell))
        heard = any(n.window.epoch for n in self.nodes.of_cell(cell))
        want = Want.BEAT if heard else Want.SNAPSHOT
        spread_ms = self.presence.connected(turn, cell, want, max(known, len(self.table)))
        self.nodes.connected(turn, cell, spread_ms / 1000)

    # -- between the parts

    def _schedulers_changed(self, cell: str, names: tuple[str, ...]) -> None:
        self.planner.schedulers_changed(cell, names, self.identity.address(cell))

    def _row_read(self, turn: Turn, node: str) -> None:
        self.doubt.row_read(turn, node)
