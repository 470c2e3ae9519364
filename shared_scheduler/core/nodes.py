# SPDX-License-Identifier: Apache-2.0
"""Every node of which this scheduler receives messages: one window each, and the updates of the table.

A row of the table is as fresh as its window says, with two things on top that only the core knows:

*unresponsive*  The agent gave no verdict on a claim, or judged it in an epoch of the past.  Its row is
                stale (not chosen) until the agent is heard again.  If that takes too long, the agent
                counts as silent although no heartbeat is overdue yet.
*quarantined*   The node refused several claims in a row.  It is chosen last for a while.

=====================================  ===========  =========================================
window (protocol/window.py)            freshness    who judges a claim
=====================================  ===========  =========================================
NEW, SILENT, or unresponsive for long  provisional  Placement; NodeRead keeps the row current
IN_ORDER                               fresh        the agent
UNVERIFIED, GAP, DIFFERS               suspect      the agent
LOST, or unresponsive                  stale        nobody; the row is not selected
=====================================  ===========  =========================================

A message with a leaf of a wrong kind (``model/leaf_validation.py``) is dropped as if it had been lost.  The window
misses it and asks again with back-off; what stays unusable ends as a LOST window, a stale row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from shared_scheduler.core.effects import Send
from shared_scheduler.core.events import NodeRead, NodesGone
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.core.step import Fact, Step, Timers
from shared_scheduler.model.leaf_validation import find_invalid_leaf
from shared_scheduler.model.leaves import AGENT_GROUPS, COMPUTE_NODE
from shared_scheduler.protocol.limits import (
    RESYNC_PATIENCE_S,
    RESYNCS_IN_FLIGHT_MAX,
    SCHEDULER_RESYNCS_BURST,
    SCHEDULER_RESYNCS_PER_S,
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
from shared_scheduler.protocol.rate_limits import InFlight, TokenBucket
from shared_scheduler.protocol.window import Freshness as WindowFreshness
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

#: window freshness -> row freshness; what else the core knows comes on top (``_freshness_of``)
ROW_FRESHNESS = {
    WindowFreshness.NEW: Freshness.PROVISIONAL,
    WindowFreshness.FRESH: Freshness.FRESH,
    WindowFreshness.SUSPECT: Freshness.SUSPECT,
    WindowFreshness.STALE: Freshness.STALE,
    WindowFreshness.SILENT: Freshness.PROVISIONAL,
}

#: rows whose claims go to the node's agent
BY_AGENT = frozenset({Freshness.FRESH, Freshness.SUSPECT, Freshness.STALE})

#: where an agent says what its node is called (Nova: hypervisor_hostname)
NODENAME_LEAF = COMPUTE_NODE + "hypervisor_hostname"


def consumers_of(event: NodeRead) -> dict[str, Consumer]:
    """The consumers of a read as an agent would publish them."""
    return {
        uuid: Consumer(event.consumers.get(uuid, {}), uuid in event.members)
        for uuid in sorted(event.consumers.keys() | event.members)
    }


@dataclass(frozen=True, slots=True)
class RowRead(Fact):
    """All of a node's row was read, from its agent or from the databases."""

    node: str


@dataclass(frozen=True, slots=True)
class AgentSilent(Fact):
    """A node's agent does not report any more: its row is read from the databases from now on."""

    node: str
    why: str


@dataclass(slots=True)
class Node:
    """What the core knows of one node besides its row."""

    cell: str
    node: str
    window: MessageWindow
    host: str = ""
    unresponsive: bool = False
    unresponsive_for_long: bool = False
    #: when the newest read of the databases began; an older one that comes later is no news
    read_at_s: float = float("-inf")


class Nodes:
    """All nodes that were ever heard of, by uuid."""

    def __init__(
        self,
        identity: Identity,
        settings: SchedulerSettings,
        table: HostTable,
        timers: Timers,
        rng: Random,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._table = table
        self._timers = timers
        self._rng = rng
        self._bucket = TokenBucket(SCHEDULER_RESYNCS_PER_S, SCHEDULER_RESYNCS_BURST)
        self._in_flight = InFlight(RESYNCS_IN_FLIGHT_MAX, RESYNC_PATIENCE_S)
        self._times = WindowTimes(silent_after_s=settings.silent_after_s)
        self._nodes: dict[str, Node] = {}
        self._patient_until_s: dict[str, float] = {}
        self.window_counters = WindowCounters()
        self.counters: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, node: str) -> Node | None:
        """What is known of one node."""
        return self._nodes.get(node)

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
        """A message of a node, from its agent."""
        known = self._nodes.get(message.node) or self._add(cell, message.node)
        if known is None:
            self.counters["messages_of_too_many_nodes"] += 1
            return
        if isinstance(message, Snapshot | Increment) and find_invalid_leaf(
            message.leaves, lambda: self._leaves(known)
        ):
            self._unusable(step, known)
            return
        heard_s, past = known.window.heard_at_s, known.window.counters.old_epochs
        outcome = known.window.receive(message, step.now, lambda: self._table.digest(known.node))
        if known.window.counters.old_epochs == past or not known.host:  # a message of the past moves nobody
            known.host = _host_in(message) or known.host
        if known.window.heard_at_s > heard_s:
            self._heard(known)
        self._carry_out(step, known, outcome)
        if isinstance(message, Snapshot):
            step.tell(RowRead(known.node))  # perhaps it was asked for; it may show just what we have

    def _leaves(self, known: Node) -> Mapping[str, Leaf]:
        slot = self._table.slot_of(known.node)
        row = None if slot is None else self._table.row(slot)
        return {} if row is None else row.leaves

    def _unusable(self, step: Step, known: Node) -> None:
        """Drop a message as if it had been lost: the window misses it, and asks with back-off."""
        self.counters["messages_unusable"] += 1
        known.window.reconnected(step.now)
        self._show(known)
        self._arm(known)

    def distrust(self, step: Step, node: str) -> None:
        """We failed on a message of this node: its row may be half changed, use it no more."""
        known = self._nodes.get(node)
        if known is not None:
            known.window.forget(step.now)
            self._show(known)
            self._arm(known)

    def _add(self, cell: str, node: str) -> Node | None:
        if len(self._nodes) >= self._settings.nodes_max:
            return None
        window = MessageWindow(
            node,
            self._rng,
            self._bucket,
            self._times,
            self.window_counters,
            self._patient_until_s.get(cell, float("-inf")),
            self._in_flight,
        )
        self._nodes[node] = known = Node(cell, node, window)
        return known

    def _heard(self, known: Node) -> None:
        known.unresponsive = known.unresponsive_for_long = False
        self._timers.cancel(("unresponsive", known.node))

    def _carry_out(self, step: Step, known: Node, outcome: Outcome) -> None:
        for message in outcome.apply:
            self._apply(known, message)
        self._show(known)
        if outcome.resync is not None:
            self._ask(step, known, outcome.resync)
        self._arm(known)

    def _apply(self, known: Node, message: Snapshot | Increment) -> None:
        leaves, consumers, claims = message.leaves, message.consumers, message.claims
        if isinstance(message, Increment):
            self._table.apply(
                message.node,
                leaves,
                consumers,
                claims,
                epoch=message.epoch,
                sequence=message.sequence,
            )
            return
        nodename = leaves.get(NODENAME_LEAF)
        self._table.upsert(
            known.node,
            known.cell,
            message.host,
            nodename if isinstance(nodename, str) else message.host,
        )
        self._table.load(
            message.node,
            message.leaves,
            message.consumers,
            message.claims,
            epoch=message.epoch,
            sequence=message.sequence,
        )

    def _arm(self, known: Node) -> None:
        """Be there when the window wants a tick; an alarm that comes too early does no harm."""
        deadline_s = known.window.next_deadline_s()
        if deadline_s is not None and deadline_s < self._timers.at_s(("window", known.node)):
            self._timers.set(("window", known.node), deadline_s)

    def on_window_timer(self, step: Step, node: str) -> None:
        """Time passed for one window."""
        known = self._nodes[node]
        was_silent = known.window.freshness is WindowFreshness.SILENT
        self._carry_out(step, known, known.window.on_tick(step.now))
        if known.window.freshness is WindowFreshness.SILENT and not was_silent:
            step.tell(AgentSilent(known.node, "its agent is silent"))

    def _ask(self, step: Step, known: Node, wish: ResyncWish, doubted: bool = False) -> None:
        if not known.host:
            self.counters["resyncs_without_host"] += 1
            return
        address = self._identity.address(known.cell)
        message = Resync(known.node, address, wish.epoch, wish.after_sequence, doubted)
        step.emit(Send(known.cell, agent_address(known.host), message, cause=step.cause))

    # -- the channel

    def connected(self, step: Step, cell: str, spread_s: float) -> None:
        """The channel of a cell is up (again); all agents were asked to speak within ``spread_s``."""
        self._patient_until_s[cell] = step.now + spread_s
        for known in self.of_cell(cell):
            known.window.reconnected(step.now)
            known.window.be_patient(step.now + spread_s)
            self._show(known)
            self._arm(known)

    def of_cell(self, cell: str) -> list[Node]:
        """The nodes of one cell."""
        return [known for known in self._nodes.values() if known.cell == cell]

    # -- other sources

    def read(self, step: Step, event: NodeRead) -> None:
        """A node as read from the databases and Placement: used while no agent reports for it."""
        known = self._nodes.get(event.node) or self._add(event.cell, event.node)
        if known is None:
            self.counters["rows_of_too_many_nodes"] += 1
            return
        if self._freshness_of(known) != Freshness.PROVISIONAL:
            self.counters["reads_ignored"] += 1
            return
        if event.read_at_s < known.read_at_s:
            self.counters["reads_overtaken"] += 1
            return
        if find_invalid_leaf(event.leaves, dict):
            self.counters["reads_unusable"] += 1
            return
        known.read_at_s = event.read_at_s
        known.host = event.host
        self._table.upsert(event.node, event.cell, event.host, event.nodename)
        self._table.load(event.node, event.leaves, consumers_of(event))
        known.window.forget(step.now)
        self._show(known)
        step.tell(RowRead(known.node))

    def gone(self, event: NodesGone) -> None:
        """These nodes are no more."""
        for node in sorted(event.nodes):
            if self._nodes.pop(node, None) is not None:
                for kind in ("window", "unresponsive"):
                    self._timers.cancel((kind, node))
            self._table.remove(node)

    # -- what claims teach

    def verdict_missed(self, step: Step, node: str) -> None:
        """Its agent gave no verdict on a claim: ask it to speak."""
        self.counters["verdicts_missed"] += 1
        known = self._nodes.get(node)
        if known is not None:
            self._leave_alone(step, known, ResyncWish(0, 0))

    def judged_in_the_past(self, step: Step, node: str, epoch: int) -> None:
        """Its agent judged a claim, decided on in ``epoch``, in an earlier one: its memory is lost.

        Nobody believes what it says now, and it refuses what is decided on what it said before: ask it
        to go on above ``epoch`` (``compute_agent/epochs.py``), if that is still what we follow.
        """
        known = self._nodes.get(node)
        if known is not None and known.window.epoch == epoch:
            self.counters["epochs_of_the_past"] += 1
            self._leave_alone(step, known, ResyncWish(epoch, 0))

    def _leave_alone(self, step: Step, known: Node, wish: ResyncWish) -> None:
        """Ask, and give it no claims until it is heard."""
        if known.unresponsive:
            return
        known.unresponsive = True
        self._timers.set(("unresponsive", known.node), step.now + self._settings.silent_after_timeout_s)
        self._show(known)
        if self._bucket.take(step.now):
            self._ask(step, known, wish)

    def on_unresponsive_timer(self, step: Step, node: str) -> None:
        """The agent was silent for too long: from now on the node counts as a node without an agent."""
        known = self._nodes[node]
        known.unresponsive_for_long = True
        self._show(known)
        step.tell(AgentSilent(known.node, "its agent does not answer"))

    def ask_to_check_placement(self, step: Step, node: str) -> bool:
        """Have its agent check Placement, and send a snapshot then; False if that cannot be asked now."""
        known = self._nodes[node]
        if not known.host or not self._bucket.take(step.now):
            return False
        self._ask(step, known, ResyncWish(0, 0), doubted=True)
        return True

    # -- what the table shows

    def _freshness_of(self, known: Node) -> Freshness:
        if known.unresponsive_for_long:
            return Freshness.PROVISIONAL
        if known.unresponsive:
            return Freshness.STALE
        return ROW_FRESHNESS[known.window.freshness]

    def _show(self, known: Node) -> None:
        if known.node in self._table:
            self._table.set_freshness(known.node, self._freshness_of(known))


def _host_in(message: NodeMessage) -> str:
    """The host that a message names, if it names one."""
    return message.host if isinstance(message, Hello | Snapshot | Heartbeat) else ""
