# SPDX-License-Identifier: Apache-2.0
"""The nodes that send messages to this scheduler: one window for each, and the updates of the table.

The freshness of a row follows from its window, and from a state that only the core knows:

*unresponsive*  The agent gave no verdict on a claim, judged it in a past epoch, or is not connected: the
                broker has returned what was cast to it.  It is asked for a snapshot, and its row is stale (not
                chosen) until a message of the agent arrives.  If that takes too long, the agent counts as silent
                although no heartbeat is overdue yet.  A snapshot that arrives after the question also answers for
                all claims that began before it.  So one agent is asked at most once within
                ``verdict_timeout_s``, however many verdicts are missing.

=====================================  ===========  =========================================
window (protocol/window.py)            freshness    who judges a claim
=====================================  ===========  =========================================
NEW, SILENT, or unresponsive for long  provisional  Placement; NodeRead keeps the row current
any, if the node is not in the cell    stale        nobody; the row is not selected
IN_ORDER                               fresh        the agent
UNVERIFIED, GAP, DIFFERS               suspect      the agent
LOST, or unresponsive                  stale        nobody; the row is not selected
=====================================  ===========  =========================================

The cell's database shows which nodes there are and which host a node belongs to.  A node that is only known from
messages is not selected, and forgotten when a later read of the database does not have it (``unlisted_nodes.py``).  If
the database has it on another host than its messages, their content is forgotten.

Messages of a listed node that name another host are of a second agent (``second_agents.py``), and are dropped.

A message with a leaf of a wrong kind (``model/leaf_validation.py``) is dropped as if it had been lost.  The window
detects the gap and asks again with back-off.  If the messages stay unusable, the window becomes LOST and the row stale.
A row to which increments have added too much (``table/row_size.py``) is stale until the next snapshot.

While messages of a cell wait unread, because they arrive faster than this scheduler reads them, the timers of its
windows are postponed: what they wait for may be among these messages.  Otherwise a scheduler that starts in a large
cloud would take agents for silent, ask them, and read their nodes elsewhere, and so fall further behind.  The first
request for a missing message is not postponed: the broker keeps the order of an agent's messages, so the missing one
is not among the unread ones, but the answer may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from shared_scheduler.core.effects import NodeChange, RecordNode, RefreshNode, Send
from shared_scheduler.core.events import NodeRead, NodesGone, NodesListed
from shared_scheduler.core.own_writes import OwnWrites
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.core.second_agents import SecondAgents
from shared_scheduler.core.step import Fact, Step, TimerKey, Timers
from shared_scheduler.core.unlisted_nodes import UnlistedNodes
from shared_scheduler.model.interning import Pool
from shared_scheduler.model.leaf_validation import find_invalid_leaf
from shared_scheduler.model.leaves import AGENT_GROUPS, AGENT_READY
from shared_scheduler.model.resources import same_allocations
from shared_scheduler.protocol.limits import (
    ALL_COMPARISONS_BURST,
    ALL_COMPARISONS_PER_S,
    READ_BEHIND_MAX_S,
    READ_BEHIND_PAUSE_S,
)
from shared_scheduler.protocol.messages import (
    Consumer,
    Heartbeat,
    Hello,
    Increment,
    Leaf,
    Resync,
    Snapshot,
    agent_address,
)
from shared_scheduler.protocol.phases import WindowFreshness
from shared_scheduler.protocol.rate_limits import TokenBucket, TokenBuckets
from shared_scheduler.protocol.resync_turns import UNLISTED, ResyncTurns
from shared_scheduler.protocol.window import (
    MessageWindow,
    NodeMessage,
    Outcome,
    ResyncWish,
    WindowCounters,
    WindowTimes,
)
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Freshness

#: window freshness -> row freshness, before ``_freshness_of`` applies the states of the core
ROW_FRESHNESS = {
    WindowFreshness.NEW: Freshness.PROVISIONAL,
    WindowFreshness.FRESH: Freshness.FRESH,
    WindowFreshness.SUSPECT: Freshness.SUSPECT,
    WindowFreshness.STALE: Freshness.STALE,
    WindowFreshness.SILENT: Freshness.PROVISIONAL,
}

#: rows whose claims go to the node's agent
BY_AGENT = frozenset({Freshness.FRESH, Freshness.SUSPECT, Freshness.STALE})

#: Bound of the records of nodes; when all nodes report at once, most are left out and counted.
NODE_RECORDS_PER_S, NODE_RECORDS_BURST = 1.0, 100
#: The same of one node, and the nodes of which that is remembered.
RECORDS_OF_ONE_PER_S, RECORDS_OF_ONE_BURST, RECORDED_NODES_MAX = 0.1, 10, 16_384


def consumers_of(event: NodeRead, table: HostTable) -> dict[str, Consumer]:
    """The consumers of a read, in the form in which an agent publishes them."""
    return {
        uuid: _with_known_part(_consumer_of(event, uuid), table.consumer(event.node, uuid))
        for uuid in sorted(event.consumers.keys() | event.members)
    }


def _consumer_of(event: NodeRead, uuid: str) -> Consumer:
    generation = event.generations.get(uuid, 0)
    return Consumer(event.consumers.get(uuid, {}), uuid in event.members, generation=generation)


def _with_known_part(found: Consumer, known: Consumer | None) -> Consumer:
    """Keep what the agent knew of a consumer: its group, which neither the databases nor Placement have; and if it was
    not written since, that it has nothing in other trees."""
    if known is None:
        return found
    unwritten = known.whole and known.generation == found.generation
    whole = unwritten and same_allocations(known.allocations, found.allocations)
    return replace(found, group=known.group, whole=whole)


@dataclass(frozen=True, slots=True)
class RowRead(Fact):
    """The whole row of a node was read, from its agent or from the databases.

    ``read_at_s``: when its snapshot arrived, or when the read of the databases began.
    """

    node: str
    read_at_s: float


@dataclass(frozen=True, slots=True)
class AgentSilent(Fact):
    """A node's agent does not report any more: its row is read from the databases from now on."""

    node: str
    why: str


@dataclass(slots=True)
class Node:
    """The state of one node besides its row."""

    cell: str
    node: str
    window: MessageWindow
    added_s: float
    host: str = ""
    #: the database has the node; ``host`` is its host there
    is_listed: bool = False
    unresponsive: bool = False
    unresponsive_for_long: bool = False
    #: when the agent was asked for its state last, and when it had been asked before its newest snapshot arrived
    asked_s: float = float("-inf")
    answered_s: float = float("-inf")
    #: increments that were applied since the last record of the node
    increments: int = 0
    #: the epoch in which a message named ``host`` last
    own_epoch: int = 0
    #: a past epoch whose heartbeats arrive, and since when
    past: tuple[int, float] = (0, 0.0)
    #: when the newest read of the databases began; an older one that arrives later is ignored
    read_at_s: float = float("-inf")
    #: the same of the newest one that told ``host``
    listed_at_s: float = float("-inf")


class Nodes:
    """All known nodes, by uuid."""

    def __init__(
        self,
        identity: Identity,
        settings: SchedulerSettings,
        table: HostTable,
        timers: Timers,
        rng: Random,
        own_writes: OwnWrites,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._table = table
        self._timers = timers
        self._rng = rng
        self._own_writes = own_writes
        self.resync_turns = ResyncTurns(self._source_of)
        self._comparisons = TokenBucket(ALL_COMPARISONS_PER_S, ALL_COMPARISONS_BURST)
        self._records = TokenBucket(NODE_RECORDS_PER_S, NODE_RECORDS_BURST)
        self._records_of = TokenBuckets(RECORDS_OF_ONE_PER_S, RECORDS_OF_ONE_BURST, RECORDED_NODES_MAX)
        self._times = WindowTimes(silent_after_s=settings.silent_after_s)
        self._pool = Pool()  # of the parts of providers that were checked
        self._nodes: dict[str, Node] = {}
        self._patient_until_s: dict[str, float] = {}
        #: cell -> since when messages wait unread, and when they last did
        self._behind: dict[str, tuple[float, float]] = {}
        self._listed_cells: set[str] = set()
        self._unlisted_nodes = UnlistedNodes()
        self.second_agents = SecondAgents(timers)
        self.window_counters = WindowCounters()
        self.counters: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, node: str) -> Node | None:
        """The state of one node, None if it is not known."""
        return self._nodes.get(node)

    def host_of(self, node: str) -> str:
        """The host of a node, empty if it is not known."""
        known = self._nodes.get(node)
        return "" if known is None else known.host

    def owner_of(self, node: str) -> str:
        """The host that the database has for a node; empty if that is not known, whatever messages have said."""
        known = self._nodes.get(node)
        return known.host if known is not None and known.is_listed else ""

    @property
    def has_unlisted(self) -> bool:
        """Whether some nodes are only known from messages."""
        return len(self._unlisted_nodes) > 0

    def of_host(self, host: str) -> list[str]:
        """The nodes that the database has for a host."""
        return sorted(known.node for known in self._nodes.values() if known.is_listed and known.host == host)

    def agent_speaks_for(self, node: str) -> bool:
        """Whether claims for this node go to its agent."""
        known = self._nodes.get(node)
        return known is not None and self._freshness_of(known) in BY_AGENT

    def epoch_of(self, node: str) -> int:
        """The epoch of the agent that gets the claims for this node; 0 without an agent."""
        return self._nodes[node].window.epoch if self.agent_speaks_for(node) else 0

    def counts_groups(self, node: str) -> bool:
        """Whether the agent that judges claims for this node counts the members of server groups."""
        known = self._nodes.get(node)
        return known is not None and self.agent_speaks_for(node) and self._leaves(known).get(AGENT_GROUPS) is True

    # -- messages

    def receive(self, step: Step, cell: str, message: NodeMessage) -> None:
        """Handle a message of a node's agent."""
        known = self._nodes.get(message.node) or self._add_unlisted(step, cell, message)
        if known is None:
            return
        if known.is_listed and self._is_of_second_agent(step, known, message):
            self.counters["messages_of_second_agents"] += 1
            return
        if isinstance(message, Snapshot | Increment) and find_invalid_leaf(
            message.leaves, lambda: self._leaves(known), self._pool
        ):
            self._unusable(step, known)
            return
        heard_s, past = known.window.heard_at_s, known.window.counters.old_epochs
        outcome = known.window.receive(message, step.now, lambda: self._table.digest(known.node))
        of_past = known.window.counters.old_epochs != past
        if not known.is_listed and not (of_past and known.host):  # a message of a past epoch moves no host
            known.host = _host_in(message) or known.host
        if not of_past or known.window.heard_at_s > heard_s:  # the messages of a batch have one time
            self._heard(known, message)
        if of_past and isinstance(message, Heartbeat):
            self._heard_past(known, message.epoch, step.now)
        self._carry_out(step, known, outcome)
        if isinstance(message, Snapshot):
            step.report(RowRead(known.node, step.now))  # it may have been asked for, even if it changes nothing

    def _is_of_second_agent(self, step: Step, known: Node, message: NodeMessage) -> bool:
        host, epoch = _host_in(message), message.epoch
        if host == known.host:
            known.own_epoch = epoch
            return False
        if not host:
            return epoch != known.own_epoch and self.second_agents.has_epoch(known.node, epoch)
        self.second_agents.heard(known.node, host, epoch, step.now)
        if known.window.epoch == epoch != known.own_epoch:  # it was heard before the database was read
            self._leave_alone(step, known, ResyncWish(epoch, 0))
        return True

    def _heard_past(self, known: Node, epoch: int, now: float) -> None:
        """A second agent with the name of the same host, if messages of the newer epoch arrived in between."""
        if known.past[0] != epoch:
            known.past = (epoch, now)
        elif known.window.heard_at_s > known.past[1]:
            self.second_agents.heard(known.node, known.host, epoch, now)

    def _leaves(self, known: Node) -> Mapping[str, Leaf]:
        row = self._table.row_of(known.node)
        return {} if row is None else row.leaves

    def _unusable(self, step: Step, known: Node) -> None:
        """Drop a message as if it had been lost: the window detects the gap, and asks with back-off."""
        self.counters["messages_unusable"] += 1
        known.window.reconnected(step.now)
        self._show(known)
        self._arm(known, step.now)

    def discard_state(self, step: Step, node: str) -> None:
        """Stop using the row: handling a message of this node failed, and the row may be half updated."""
        known = self._nodes.get(node)
        if known is not None:
            known.window.forget(step.now)
            self._show(known)
            self._arm(known, step.now)

    def _add_unlisted(self, step: Step, cell: str, message: NodeMessage) -> Node | None:
        """Add the node of a message, which no database has shown yet; None if it is ignored."""
        host = _host_in(message)
        if cell in self._listed_cells and not self._unlisted_nodes.may_name_one(host, step.now):
            self.counters["messages_of_unlisted_nodes"] += 1
            return None
        if len(self._nodes) >= self._settings.nodes_max:
            self.counters["messages_of_too_many_nodes"] += 1
            return None
        self._unlisted_nodes.add(message.node, host)
        if cell in self._listed_cells:  # the row is stale until the database has shown the node
            step.emit(RefreshNode("", message.node, "only messages name it", cause=step.cause))
        return self._add(cell, message.node, step.now)

    def _add(self, cell: str, node: str, now: float) -> Node:
        self._nodes[node] = known = Node(cell, node, self._window_of(cell, node), now)
        return known

    def _add_listed(self, event: NodeRead, now: float) -> Node | None:
        """Add a node of the database; an unlisted one makes room for it."""
        if len(self._nodes) >= self._settings.nodes_max:
            unlisted = self._unlisted_nodes.oldest()
            if unlisted is None:
                return None
            self._forget(unlisted)
        return self._add(event.cell, event.node, now)

    def _window_of(self, cell: str, node: str) -> MessageWindow:
        patient_until_s = self._patient_until_s.get(cell, float("-inf"))
        return MessageWindow(
            node, self._rng, self.resync_turns, self._times, self.window_counters, patient_until_s, self._comparisons
        )

    def _source_of(self, node: str) -> str:
        """Whose turn the resync of a node is: its host's.  When the database was read, only its own word counts."""
        known = self._nodes.get(node)
        return (
            known.host if known is not None and (known.is_listed or known.cell not in self._listed_cells) else UNLISTED
        )

    def _heard(self, known: Node, message: NodeMessage) -> None:
        if isinstance(message, Snapshot):
            known.answered_s = known.asked_s
        known.unresponsive = known.unresponsive_for_long = False
        self._timers.cancel(("unresponsive", known.node))

    def _carry_out(self, step: Step, known: Node, outcome: Outcome) -> None:
        for message in outcome.apply:
            self._apply(known, message)
            self._compare(step, message)
            if isinstance(message, Increment):
                known.increments += 1
            else:
                self._record(step, known, NodeChange.SNAPSHOT, message.epoch, message.sequence)
        if outcome.apply and self._table.is_too_large(known.node):
            self.counters["rows_too_large"] += 1
            known.window.forget(step.now)
        self._show(known)
        if outcome.resync is not None:
            self._ask(step, known, outcome.resync)
        self._arm(known, step.now)

    def _record(self, step: Step, known: Node, change: NodeChange, epoch: int, sequence: int) -> None:
        if not self._records_of.take(known.node, step.now) or not self._records.take(step.now):
            self.counters["node_records_left_out"] += 1
            return
        step.emit(RecordNode(known.host, change, epoch, sequence, known.increments, cause=step.cause))
        known.increments = 0

    def _apply(self, known: Node, message: Snapshot | Increment) -> None:
        if isinstance(message, Increment):
            self._table.apply(
                message.node,
                message.leaves,
                message.consumers,
                message.claims,
                epoch=message.epoch,
                sequence=message.sequence,
            )
            return
        # a leaf of nova-compute names the node, and is not there before nova-compute has reported to the agent
        self._table.upsert(known.node, known.cell, known.host, "")
        self._table.load(
            message.node,
            message.leaves,
            message.consumers,
            message.claims,
            epoch=message.epoch,
            sequence=message.sequence,
        )

    def _compare(self, step: Step, message: Snapshot | Increment) -> None:
        """Compare what an agent has published with what this scheduler wrote."""
        if isinstance(message, Snapshot) or AGENT_READY in message.leaves:
            self._own_writes.all_reported(step, message.node)
        elif message.consumers:
            self._own_writes.reported(step, message.node, message.consumers)

    def _arm(self, known: Node, now: float) -> None:
        """Set the timers for the next tick of the window and the next turn; one that rings too early does no harm."""
        self._set_earlier(("window", known.node), known.window.next_deadline_s())
        self._set_earlier(("resync turn", ""), self.resync_turns.next_s(now))

    def _set_earlier(self, timer: TimerKey, at_s: float | None) -> None:
        if at_s is not None and at_s < self._timers.at_s(timer):
            self._timers.set(timer, at_s)

    def on_turn_timer(self, step: Step, _name: str) -> None:
        """Ask the nodes whose turn it is, as many as may be asked now."""
        while (node := self.resync_turns.next(step.now)) is not None:
            known = self._nodes[node]
            self._carry_out(step, known, known.window.on_turn(step.now))
        self._set_earlier(("resync turn", ""), self.resync_turns.next_s(step.now))

    def reading(self, cell: str, more: bool, now: float) -> None:
        """Note whether further messages of a cell wait unread."""
        since_s, last_s = self._behind.pop(cell, (now, now))
        if more:
            self._behind[cell] = (since_s if now - last_s <= READ_BEHIND_PAUSE_S else now, now)

    def _is_behind(self, cell: str, now: float) -> bool:
        since_s, last_s = self._behind.get(cell, (now, float("-inf")))
        return now - last_s <= READ_BEHIND_PAUSE_S and now - since_s <= READ_BEHIND_MAX_S

    def on_window_timer(self, step: Step, node: str) -> None:
        """Give one window its tick; later if the messages for which it waits may only be unread."""
        known = self._nodes[node]
        due_s = known.window.next_deadline_s() or step.now
        may_be_unread = self._is_behind(known.cell, step.now) and not known.window.is_first_request_due(step.now)
        if may_be_unread and step.now - due_s <= READ_BEHIND_MAX_S:
            self.counters["ticks_postponed"] += 1
            self._timers.set(("window", node), step.now + READ_BEHIND_PAUSE_S)
            return
        was_silent = known.window.freshness is WindowFreshness.SILENT
        self._carry_out(step, known, known.window.on_tick(step.now))
        if known.window.freshness is WindowFreshness.SILENT and not was_silent:
            self._record(step, known, NodeChange.SILENT, known.window.epoch, 0)
            step.report(AgentSilent(known.node, "its agent is silent"))

    def _ask(self, step: Step, known: Node, wish: ResyncWish) -> None:
        if not known.host:
            self.counters["resyncs_without_host"] += 1
            return
        self._record(step, known, NodeChange.RESYNC, wish.epoch, wish.after_sequence)
        address = self._identity.address(known.cell)
        message = Resync(known.node, address, wish.epoch, wish.after_sequence, wish.recheck)
        step.emit(Send(known.cell, agent_address(known.host), message, cause=step.cause))

    # -- the channel

    def connected(self, step: Step, cell: str, spread_s: float) -> None:
        """The channel of a cell is connected (again); all agents were asked to report within ``spread_s``."""
        self._patient_until_s[cell] = step.now + spread_s
        for known in self.of_cell(cell):
            known.window.reconnected(step.now)
            known.window.be_patient(step.now + spread_s)
            self._show(known)
            self._arm(known, step.now)

    def of_cell(self, cell: str) -> list[Node]:
        """The nodes of one cell."""
        return [known for known in self._nodes.values() if known.cell == cell]

    # -- other sources

    def read(self, step: Step, event: NodeRead) -> None:
        """Update a row from the databases and Placement, if no agent reports for the node."""
        known = self._node_of(event, step.now)
        if known is None:
            return
        self._list(step, known, event.host, event.read_at_s)
        if self._replaces_row(known, event):
            self._load_read(step, known, event)

    def _node_of(self, event: NodeRead, now: float) -> Node | None:
        """The node of a read, which may be new or have moved to another cell; None if the read does not count."""
        known = self._nodes.get(event.node)
        if known is not None and known.cell != event.cell:
            if counter := self._why_it_stays(known, event):
                self.counters[counter] += 1
                return None
            self._forget(event.node)  # it is in the other cell now, and starts anew
        known = self._nodes.get(event.node) or self._add_listed(event, now)
        if known is None:
            self.counters["rows_of_too_many_nodes"] += 1
        return known

    def _replaces_row(self, known: Node, event: NodeRead) -> bool:
        """Whether the row is replaced by a read, which is counted if not."""
        if self._freshness_of(known) != Freshness.PROVISIONAL:
            self.counters["reads_ignored"] += 1
        elif event.read_at_s < known.read_at_s or event.host != known.host:
            self.counters["reads_overtaken"] += 1
        elif find_invalid_leaf(event.leaves, dict, self._pool):
            self.counters["reads_unusable"] += 1
        else:
            return True
        return False

    def _load_read(self, step: Step, known: Node, event: NodeRead) -> None:
        known.read_at_s = event.read_at_s
        self._table.upsert(event.node, event.cell, event.host, event.nodename)
        self._table.load(event.node, event.leaves, consumers_of(event, self._table))
        self._own_writes.all_reported(step, event.node, event.read_at_s)
        known.window.forget(step.now)
        self._show(known)
        step.report(RowRead(known.node, event.read_at_s))

    def _why_it_stays(self, known: Node, event: NodeRead) -> str:
        """The counter of a read of another cell that does not count; empty if it does.

        A node that only messages name is in the cell of the database, whichever agent has named it."""
        if known.is_listed and self.agent_speaks_for(event.node):
            return "reads_ignored"
        return "reads_overtaken" if event.read_at_s < known.read_at_s else ""

    def listed(self, step: Step, event: NodesListed) -> frozenset[str]:
        """Take the hosts of nodes from the database.  Returns the nodes of the cell that it does not have."""
        self._listed_cells.add(event.cell)
        for node in sorted((event.moved | set(self._unlisted_nodes)) & event.hosts.keys()):
            known = self._nodes.get(node)
            if known is not None and known.cell == event.cell:
                self._list(step, known, event.hosts[node], event.read_at_s)
        left = [self._nodes[node] for node in self._unlisted_nodes]
        gone = [known.node for known in left if known.cell == event.cell and known.added_s < event.read_at_s]
        for node in gone:
            self._unlisted_nodes.unknown(node, event.read_at_s)
        return frozenset(gone)

    def _list(self, step: Step, known: Node, host: str, read_at_s: float) -> None:
        """Take the host of a node from a read of the database that began then."""
        if read_at_s < known.listed_at_s:
            return
        known.listed_at_s, has_moved = read_at_s, known.is_listed and known.host != host
        if known.host != host:
            self.second_agents.forget(known.node)
            known.own_epoch = 0
            if known.host and not known.is_listed:  # what was accepted is of another sender
                self.resync_turns.leave(known.node)
                known.window = self._window_of(known.cell, known.node)
                known.past = (0, 0.0)
                self._table.remove(known.node)
        known.host, known.is_listed = host, True
        self._unlisted_nodes.known(known.node)
        self.resync_turns.moved(known.node)
        self._show(known)
        self._arm(known, step.now)
        if has_moved and self.agent_speaks_for(known.node):  # the row is what the agent of the old host has told
            self._leave_alone(step, known, ResyncWish(0, 0))

    def gone(self, event: NodesGone) -> frozenset[str]:
        """Remove nodes that no longer exist.  Returns them, without those that have moved to another cell."""
        moved = {node for node in event.nodes if (known := self._nodes.get(node)) and known.cell != event.cell}
        for node in sorted(event.nodes - moved):
            self._forget(node)
        return event.nodes - moved

    def _forget(self, node: str) -> None:
        self._unlisted_nodes.known(node)
        self.second_agents.forget(node)
        self.resync_turns.leave(node)
        if self._nodes.pop(node, None) is not None:
            for kind in ("window", "unresponsive"):
                self._timers.cancel((kind, node))
        self._table.remove(node)

    # -- corrections because of claims

    def verdict_missed(self, step: Step, node: str, began_s: float) -> None:
        """Ask an agent that gave no verdict on a claim for its state, unless it has answered such a question after the
        claim began (``began_s``)."""
        self.counters["verdicts_missed"] += 1
        known = self._nodes.get(node)
        if known is not None and known.answered_s <= began_s:
            self._leave_alone(step, known, ResyncWish(0, 0))

    def agent_gone(self, step: Step, node: str) -> None:
        """Send no claims to an agent that is not connected, until it is heard.

        It is asked for its state, because it may have connected since the message that was returned was sent.
        """
        self.counters["agents_gone"] += 1
        known = self._nodes.get(node)
        if known is not None:
            self._leave_alone(step, known, ResyncWish(0, 0))

    def judged_in_the_past(self, step: Step, node: str, epoch: int) -> None:
        """Ask an agent to exceed ``epoch``, because it judged a claim of ``epoch`` in an earlier epoch.

        The agent has lost its memory.  Schedulers ignore its messages, because their epoch is old, and the agent
        refuses claims that are based on its earlier messages.  It has to continue above ``epoch``
        (``compute_agent/epochs.py``), if ``epoch`` is still the epoch of our window.
        """
        known = self._nodes.get(node)
        if known is not None and known.window.epoch == epoch:
            self.counters["epochs_of_the_past"] += 1
            self._leave_alone(step, known, ResyncWish(epoch, 0))

    def _leave_alone(self, step: Step, known: Node, wish: ResyncWish) -> None:
        """Ask the agent, and send it no claims until it answers."""
        if known.unresponsive:
            return
        known.unresponsive = True
        silent_s = max(step.now, known.window.heard_at_s + self._settings.silent_after_s)
        wait_until_s = min(step.now + self._settings.silent_after_timeout_s, silent_s)
        self._timers.set(("unresponsive", known.node), wait_until_s)
        self._show(known)
        if self.resync_turns.take(known.node, step.now):
            known.asked_s = step.now
            self._ask(step, known, wish)

    def on_unresponsive_timer(self, step: Step, node: str) -> None:
        """Treat the node as a node without an agent, because its agent did not answer for too long."""
        known = self._nodes[node]
        known.unresponsive_for_long = True
        self._show(known)
        self._record(step, known, NodeChange.SILENT, known.window.epoch, 0)
        step.report(AgentSilent(known.node, "its agent does not answer"))

    def ask_to_check_placement(self, step: Step, node: str) -> bool:
        """Ask the agent to read Placement and to send a snapshot then; False if that is not possible now."""
        known = self._nodes[node]
        if not known.host or not self.resync_turns.take(node, step.now):
            return False
        self._ask(step, known, ResyncWish(0, 0, recheck=True))
        return True

    def distrust(self, step: Step, node: str) -> None:
        """Ask the agent to read Placement and to send a snapshot then, which replaces the row whatever it has.

        The row may be used until then.  The window repeats the request, within its limits.
        """
        known = self._nodes[node]
        outcome = known.window.distrust(step.now)
        self._show(known)
        if outcome.resync is not None:
            self._ask(step, known, outcome.resync)
        self._arm(known, step.now)

    # -- freshness of rows

    def _freshness_of(self, known: Node) -> Freshness:
        if not known.is_listed and known.cell in self._listed_cells:
            return Freshness.STALE
        if known.unresponsive_for_long:
            return Freshness.PROVISIONAL
        if known.unresponsive:
            return Freshness.STALE
        return ROW_FRESHNESS[known.window.freshness]

    def _show(self, known: Node) -> None:
        if known.node in self._table:
            self._table.set_freshness(known.node, self._freshness_of(known))


def _host_in(message: NodeMessage) -> str:
    """The host that a message names; empty if it names none."""
    return message.host if isinstance(message, Hello | Snapshot | Heartbeat) else ""
