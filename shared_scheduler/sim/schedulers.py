# SPDX-License-Identifier: Apache-2.0
"""One simulated scheduler: the real core, with an edge to the simulated world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.decision.decision_settings import DEFAULT_FILTERS, DecisionSettings
from shared_scheduler.decision.pipeline import Decider, Decision
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Allocations, Hello, Message, Role
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.compared_names import ComparedName
from shared_scheduler.sim.placement import wanted_of
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.ticking import Ticking
from shared_scheduler.sim.topology import SimJudge
from shared_scheduler.sim.workload import RACK
from shared_scheduler.sim.writers import SimWriters
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Version

#: Nova's defaults, and the two filters that a cloud with NUMA cells and devices enables
DECISIONS = DecisionSettings(
    enabled_filters=(*DEFAULT_FILTERS, "NUMATopologyFilter", "PciPassthroughFilter"), spread_keys=(RACK,)
)


def cell_name(number: int) -> str:
    """The name of a cell; 0 is the first one."""
    return f"cell-{number + 1}"


class SchedulerListener(Protocol):
    """Receives the messages and actions of a scheduler (the world)."""

    def answered(self, scheduler: SimScheduler, effect: ef.Answer | ef.Fail) -> None:
        """A request has ended."""

    def stepped(self, scheduler: SimScheduler, event: ev.Event) -> None:
        """The core took a step, and its effects are on their way."""

    def refresh(self, scheduler: SimScheduler, node: str, in_s: float) -> None:
        """The core requests a new read of a node from the databases and Placement."""

    def crash(self, scheduler: SimScheduler) -> None:
        """It stops in the middle of a step: the remaining effects are never carried out."""

    def is_needed(self, consumer: str, allocations: Allocations) -> bool | None:
        """Whether a server needs these allocations according to Nova; None while an operation is under way."""

    def is_merged_move(self, consumer: str) -> bool:
        """Whether an operation of this server is under way whose allocations are merged."""

    def is_in_cell(self, consumer: str) -> bool:
        """Whether the conductor has created a server in a cell, which it does after an answer."""

    def taken_back(self, scheduler: SimScheduler, consumer: str, allocations: Allocations) -> None:
        """The scheduler is about to delete these allocations of the consumer."""

    def change_found(self, scheduler: SimScheduler, effect: ef.ExamineChange) -> None:
        """The scheduler asks Nova and Placement what a foreign change was."""

    def members_of(self, group: str) -> dict[str, bool]:
        """The members of a server group or label, as Nova's API database has them now: uuid -> whether the conductor
        has an answer for it."""

    def hosts_in(self, cell: str) -> dict[str, str]:
        """The service host of each server in a cell that is built, as Nova's database has it now."""

    def undecided_hosts(self) -> dict[str, str]:
        """The same of all cells, without servers that move to a host that Nova's record of the move names."""

    def sent(self, scheduler: SimScheduler, message: Message) -> None:
        """The scheduler is about to send a message to an agent."""

    def applied(self, scheduler: SimScheduler, node: str, before: Version, now: Version) -> None:
        """The scheduler is about to apply an increment to a row."""

    def decided(self, scheduler: SimScheduler, request: Request, index: int, decision: Decision) -> None:
        """The scheduler has weighed the hosts for one instance, and selects one of them in the same step."""

    def assumed(self, scheduler: SimScheduler, node: str, claim_id: str, consumer: str) -> None:
        """The scheduler has selected a node, and is about to count the claim in its table."""


class WatchedTable(HostTable):
    """A host table that reports each increment before it is applied, and each claim before it is counted."""

    def __init__(
        self, applied: Callable[[str, Version, Version], None], assumed: Callable[[str, str, str], None]
    ) -> None:
        super().__init__()
        self._applied = applied
        self._assumed = assumed

    def assume(self, node: str, claim_id: str, consumer: str, *args: Any, **more: Any) -> None:
        """See ``HostTable.assume``."""
        self._assumed(node, claim_id, consumer)
        super().assume(node, claim_id, consumer, *args, **more)

    def apply(self, node: str, *args: Any, epoch: int, sequence: int) -> None:
        """See ``HostTable.apply``."""
        self._applied(node, self.version(node), Version(epoch, sequence))
        super().apply(node, *args, epoch=epoch, sequence=sequence)


class WatchedDecider(Decider):
    """A decider that reports each decision."""

    def __init__(
        self, table: HostTable, settings: DecisionSettings, decided: Callable[[Request, int, Decision], None]
    ) -> None:
        super().__init__(table, settings)
        self._decided = decided

    def decide(self, request: Request, index: int = 0, *args: Any, **more: Any) -> Decision:
        """See ``Decider.decide``."""
        decision = super().decide(request, index, *args, **more)
        self._decided(request, index, decision)
        return decision


class SimScheduler:
    """One run of a scheduler; a restart makes a new object with the next ``life``.

    ``stopwatch`` measures the real duration of steps (seconds); the simulator itself passes none.
    """

    def __init__(
        self,
        number: int,
        life: int,
        around: Surroundings,
        rng: Random,
        settings: SchedulerSettings,
        listener: SchedulerListener,
        stopwatch: Callable[[], float] | None = None,
        newer: bool = False,
        decisions: DecisionSettings = DECISIONS,
        cells: tuple[str, ...] = (cell_name(0),),
    ) -> None:
        self.name = f"scheduler-{number}.{life}"
        self.number = number
        self.cells = cells
        self.up = True
        self.newer = newer
        self.clock = LocalClock(around.agenda, rng)
        self.step_s: list[float] = []
        #: node -> how often Placement has said that it fits a request that had no host
        self.told_to_fit: Counter[str] = Counter()
        #: requests for which the members of their group could not be read the last time
        self.groups_unread: set[str] = set()
        #: the time of its last freeze or clock jump: its actions after that may be late
        self.disturbed_s = float("-inf")
        #: the time of its last clock jump: its actions after that may be early
        self.jumped_s = float("-inf")
        #: it stops after it has carried out this many more effects
        self.dies_after: int | None = None
        self._agenda = around.agenda
        self._network = around.network
        self._placement = around.placement
        self._trace = around.trace
        self._placement_delay_s = around.placement_delay_s
        self._listener = listener
        self._stopwatch = stopwatch
        self._rng = rng
        self._frozen = False
        self._writers = SimWriters(self.name, around, self.clock, rng, self)
        self._unheard: list[ev.Event] = []
        table = WatchedTable(partial(listener.applied, self), partial(listener.assumed, self))
        identity = Identity(self.name, life)
        decider = WatchedDecider(table, decisions, partial(listener.decided, self))
        self.core = SchedulerCore(identity, settings, table, decider, SimJudge(), rng)
        self._ticking = Ticking(around.agenda, self._deadline_s, lambda: self.feed(ev.Tick()))

    def _deadline_s(self) -> float | None:
        deadline_s = self.core.next_deadline_s()
        return None if deadline_s is None else self.clock.in_world(deadline_s)

    def start(self) -> None:
        """Join the channel."""
        self._trace.note(self.name, "starts")
        self._network.join(self.name, True, self._receive, self.newer, self._returned)
        self.channel_changed(self._network.up)

    def kill(self) -> None:
        """End without a Leave message."""
        self._trace.note(self.name, "dies")
        self.up = False
        self._writers.halt()
        self._ticking.stop()
        self._network.leave(self.name)

    def freeze(self) -> None:
        """Stop the process; messages to it wait."""
        self._trace.note(self.name, "is frozen")
        self._frozen, self.disturbed_s = True, self._agenda.now
        self._writers.halt()
        self._ticking.suspend()

    def thaw(self) -> None:
        """Continue the process."""
        self._trace.note(self.name, "is thawed")
        self._frozen, self.disturbed_s = False, self._agenda.now
        self._writers.resume()
        unheard, self._unheard = self._unheard, []
        for event in unheard:
            self.feed(event)
        self._ticking.resume()

    def jump(self, by_s: int) -> None:
        """Advance the monotonic clock of the machine."""
        self._trace.note(self.name, f"clock jumps by {by_s} s")
        self.clock.jump(by_s)
        self.disturbed_s = self.jumped_s = self._agenda.now
        self._ticking.reschedule()

    def channel_changed(self, connected: bool) -> None:
        """The broker was stopped, or started again."""
        for cell in self.cells:
            self.feed(ev.ChannelChanged(cell, connected))

    def ask(self, request: Request, deadline_s: float) -> None:
        """A caller requests hosts until ``deadline_s`` of the world's time."""
        self.feed(ev.RequestArrived(request, self.clock.here(deadline_s)))

    def _receive(self, message: Message) -> None:
        for cell in self._cells_of(message):
            self.feed(ev.MessagesArrived(cell, (message,)))

    def _returned(self, message: Message) -> None:
        for cell in self._cells_of(message):
            self.feed(ev.CastReturned(cell, message))

    def _cells_of(self, message: Message) -> tuple[str, ...]:
        """As ``service/cell_channel.py`` for cells that use one message queue: that of the row."""
        if len(self.cells) == 1 or (isinstance(message, Hello) and message.role is Role.SCHEDULER):
            return self.cells
        row = self.core.table.row_of(message.node)
        return () if row is None else (row.cell,)

    def feed(self, event: ev.Event) -> None:
        """Pass an event to the core, and carry out the effects."""
        if not self.up:
            return
        if self._frozen:
            self._unheard.append(event)
            return
        for effect in self._step(event):
            if self._dies_now():
                return
            self._carry_out(effect)
        self._listener.stepped(self, event)
        self._ticking.reschedule()

    def _dies_now(self) -> bool:
        if self.dies_after is None:
            return False
        self.dies_after -= 1
        if self.dies_after < 0:
            self._listener.crash(self)
            return True
        return False

    def _step(self, event: ev.Event) -> list[ef.Effect]:
        if self._stopwatch is None:
            return self.core.step(event, self.clock.now)
        began_s = self._stopwatch()
        effects = self.core.step(event, self.clock.now)
        if isinstance(event, ev.RequestArrived):
            self.step_s.append(self._stopwatch() - began_s)
        return effects

    # -- effects

    def _carry_out(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Send(_, address, message):
                self._listener.sent(self, message)
                self._network.cast(self.name, address, message)
            case ef.Broadcast(_, message):
                self._network.broadcast(self.name, message)
                if self.newer:
                    self._network.broadcast_unknown(self.name)
            case ef.WriteAllocation() | ef.DeleteAllocation():
                self._writers.submit(effect)
            case ef.Answer() | ef.Fail():
                self._listener.answered(self, effect)
            case ef.RecordBuild() | ef.RecordNode() | ef.ReadBuild():
                pass  # a simulated scheduler keeps no records
            case ef.ExamineChange():
                self.change_found(effect)
            case ef.RefreshNode():
                self._listener.refresh(self, effect.node, effect.in_s)
            case ef.AskGroup():
                self._agenda.after(self._placement_delay_s() / 2, self._read_members, effect)
            case _:
                self._agenda.after(self._placement_delay_s() / 2, self._answer_question, effect)

    def written_or_deleted(self, event: ev.AllocationWritten | ev.AllocationDeleted) -> None:
        """See ``WritersListener``."""
        self.feed(event)

    def is_needed(self, consumer: str, allocations: Allocations) -> bool | None:
        """See ``WritersListener``."""
        return self._listener.is_needed(consumer, allocations)

    def is_merged_move(self, consumer: str) -> bool:
        """See ``WritersListener``."""
        return self._listener.is_merged_move(consumer)

    def is_in_cell(self, consumer: str) -> bool:
        """See ``WritersListener``."""
        return self._listener.is_in_cell(consumer)

    def change_found(self, effect: ef.ExamineChange) -> None:
        """See ``WritersListener``."""
        self._agenda.after(self._placement_delay_s(), self._listener.change_found, self, effect)

    def taken_back(self, consumer: str, allocations: Allocations) -> None:
        """See ``WritersListener``."""
        self._listener.taken_back(self, consumer, allocations)

    # -- questions

    def _reply(self, event: ev.Event) -> None:
        """Deliver the answer of Placement."""
        self._agenda.after(self._placement_delay_s() / 2, self.feed, event)

    def _read_members(self, effect: ef.AskGroup) -> None:
        members = self._listener.members_of(effect.group)
        self._agenda.after(self._placement_delay_s() / 2, self._read_standing, effect, members)

    def _read_standing(self, effect: ef.AskGroup, members: dict[str, bool]) -> None:
        placement = self._placement
        error = "" if placement.answers else "Placement is down"
        (self.groups_unread.add if error else self.groups_unread.discard)(effect.request_id)
        held = {
            uuid: placement.consumers[uuid]
            for uuid in sorted(members.keys() - effect.known)
            if uuid in placement.consumers
        }
        standing = {uuid: frozenset(allocations) for uuid, allocations in held.items()}
        unanswered = frozenset(uuid for uuid in standing if not members[uuid])
        known = {} if error else standing
        gone = effect.known - members.keys()
        there = {uuid: host for cell in effect.cells for uuid, host in self._listener.hosts_in(cell).items()}
        there |= self._listener.undecided_hosts() if effect.leaving else {}
        hosts = {uuid: host for uuid, host in there.items() if uuid in members.keys() - effect.known}
        self._reply(ev.GroupAnswered(effect.ask_id, known, error, unanswered, gone, hosts, cause=effect.cause))

    def _answer_question(self, effect: ef.AskCandidates | ef.AskFitting | ef.AskConsumer) -> None:
        error = "" if self._placement.answers else "Placement is down"
        match effect:
            case ef.AskCandidates(ask_id, node, queries):
                found = () if error else self._candidates(node, queries)
                self._reply(ev.CandidatesAnswered(ask_id, found, error, cause=effect.cause))
            case ef.AskFitting(ask_id, queries):
                nodes = frozenset() if error else self._fitting(queries)
                self.told_to_fit.update(nodes)
                self._reply(ev.FittingAnswered(ask_id, nodes, error, cause=effect.cause))
            case ef.AskConsumer(consumer):
                holds = self._placement.consumers.get(consumer, {})
                self._reply(ev.ConsumerAnswered(ComparedName(consumer), holds, error, cause=effect.cause))

    def _fitting(self, queries: tuple[str, ...]) -> frozenset[str]:
        found: frozenset[str] = frozenset()
        for query in queries:
            found |= self._placement.fitting(query)
        return found

    def _candidates(self, node: str, queries: tuple[str, ...]) -> tuple[ev.Candidate, ...]:
        return tuple(
            ev.Candidate({node: wanted_of(query)}, {"": (node,)})
            for query in queries
            if node in self._placement.fitting(query)
        )
