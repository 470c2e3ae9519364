# SPDX-License-Identifier: Apache-2.0
"""Every node that this scheduler hears of: one window each, and what the table is told.

A row of the table is as fresh as its window says, with two things on top that only the core knows:

*mute*        The agent let a claim pass without a verdict, or judged it in an epoch of the past.  Its
              row is stale (not chosen) until the agent is heard again.  If that takes too
              long, the agent counts as silent although its beats are not yet missed.
*quarantine*  The node refused several claims in a row.  It is not chosen for a while.

=============================  ============  ====================================================
window (protocol/window.py)    freshness     who judges a claim
=============================  ============  ====================================================
NEW, SILENT, or mute for long  provisional   Placement alone; the row is kept current by NodeRead
IN_ORDER                       fresh         the agent
UNVERIFIED, GAP, DIFFERS       suspect       the agent
LOST, or mute                  stale         nobody, the row is not chosen
=============================  ============  ====================================================

A message with a leaf of a wrong kind (readable.py) is dropped as if it had been lost.  The window
misses it and asks again with back-off; what stays unusable ends as a LOST window, a stale row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from shared_scheduler.core.effects import RefreshNode, Send
from shared_scheduler.core.events import NodeRead, NodesGone, WriteCode
from shared_scheduler.core.readable import misread
from shared_scheduler.core.settings import Identity, Settings
from shared_scheduler.core.turn import Timers, Turn
from shared_scheduler.protocol.addresses import agent_address
from shared_scheduler.protocol.bucket import InFlight, TokenBucket
from shared_scheduler.protocol.limits import (
    RESYNC_PATIENCE_S,
    RESYNCS_IN_FLIGHT_MAX,
    SCHEDULER_RESYNCS_BURST,
    SCHEDULER_RESYNCS_PER_S,
)
from shared_scheduler.protocol.messages import (
    Beat,
    Consumer,
    Hello,
    Increment,
    Leaf,
    Reason,
    RefusalCode,
    Resync,
    Snapshot,
)
from shared_scheduler.protocol.window import Freshness as WindowFreshness
from shared_scheduler.protocol.window import (
    MessageWindow,
    NodeMessage,
    Outcome,
    ResyncWish,
    WindowCounters,
    WindowTimes,
)
from shared_scheduler.state.leaves import COMPUTE_NODE
from shared_scheduler.state.row import Freshness
from shared_scheduler.state.table import HostTable

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

#: refusals that say nothing of what the node can take
NO_FAULT = frozenset({RefusalCode.RELEASED, RefusalCode.EXPIRED})

#: writes that show that a row is wrong about what its providers have
ROW_IS_WRONG = frozenset({WriteCode.NO_CAPACITY, WriteCode.UNKNOWN_PROVIDER})


#: where an agent says what its node is called (Nova: hypervisor_hostname)
NODENAME_LEAF = COMPUTE_NODE + "hypervisor_hostname"


def consumers_of(event: NodeRead) -> dict[str, Consumer]:
    """The consumers of a read as an agent would publish them."""
    return {
        uuid: Consumer(event.consumers.get(uuid, {}), uuid in event.members)
        for uuid in sorted(event.consumers.keys() | event.members)
    }


@dataclass(slots=True)
class Node:
    """What the core knows of one node besides its row."""

    cell: str
    node: str
    window: MessageWindow
    host: str = ""
    mute: bool = False
    mute_for_long: bool = False
    refusals: int = 0
    quarantined: bool = False
    refreshed_s: float = float("-inf")
    #: when the newest read of the databases began; an older one that comes later is no news
    read_at_s: float = float("-inf")


class Nodes:
    """All nodes that were ever heard of, by uuid."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        table: HostTable,
        timers: Timers,
        rng: Random,
        row_read: Callable[[Turn, str], None],
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._table = table
        self._timers = timers
        self._rng = rng
        self._row_read = row_read
        self._bucket = TokenBucket(SCHEDULER_RESYNCS_PER_S, SCHEDULER_RESYNCS_BURST)
        self._in_flight = InFlight(RESYNCS_IN_FLIGHT_MAX, RESYNC_PATIENCE_S)
        self._times = WindowTimes(silent_after_s=settings.silent_after_s)
        self._nodes: dict[str, Node] = {}
        self._patient_until_s: dict[str, float] = {}
        self.window_counters = WindowCounters()
        self.counters: Counter[str] = Counter()
        #: nodes that are left alone because they refused again and again
        self.quarantined: frozenset[str] = frozenset()

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
        """The life of the agent that claims for this node go to; 0 where none speaks for it."""
        return self._nodes[node].window.epoch if self.agent_speaks_for(node) else 0

    # -- messages

    def receive(self, turn: Turn, cell: str, message: NodeMessage) -> None:
        """A message of a node, from its agent."""
        known = self._nodes.get(message.node) or self._add(cell, message.node)
        if known is None:
            self.counters["messages_of_too_many_nodes"] += 1
            return
        if isinstance(message, Hello | Snapshot | Beat) and message.host:
            known.host = message.host
        if isinstance(message, Snapshot | Increment) and misread(
            message.leaves, lambda: self._leaves(known)
        ):
            self._unusable(turn, known)
            return
        heard_s = known.window.heard_at_s
        outcome = known.window.receive(message, turn.now, lambda: self._table.digest(known.node))
        if known.window.heard_at_s > heard_s:
            self._heard(known)
        self._carry_out(turn, known, outcome)
        if isinstance(message, Snapshot):
            self._row_read(turn, known.node)  # perhaps it was asked for; it may show just what we have

    def _leaves(self, known: Node) -> Mapping[str, Leaf]:
        slot = self._table.slot_of(known.node)
        row = None if slot is None else self._table.row(slot)
        return {} if row is None else row.leaves

    def _unusable(self, turn: Turn, known: Node) -> None:
        """Drop a message as if it had been lost: the window misses it, and asks with back-off."""
        self.counters["messages_unusable"] += 1
        known.window.reconnected(turn.now)
        self._show(known)
        self._arm(known)

    def distrust(self, turn: Turn, node: str) -> None:
        """We failed on a message of this node: its row may be half changed, use it no more."""
        known = self._nodes.get(node)
        if known is not None:
            known.window.forget(turn.now)
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
        known.mute = known.mute_for_long = False
        self._timers.cancel(("mute", known.node))

    def _carry_out(self, turn: Turn, known: Node, outcome: Outcome) -> None:
        for message in outcome.apply:
            self._apply(known, message)
        self._show(known)
        if outcome.resync is not None:
            self._ask(turn, known, outcome.resync)
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

    def on_window_timer(self, turn: Turn, node: str) -> None:
        """Time passed for one window."""
        known = self._nodes[node]
        was_silent = known.window.freshness is WindowFreshness.SILENT
        self._carry_out(turn, known, known.window.on_tick(turn.now))
        if known.window.freshness is WindowFreshness.SILENT and not was_silent:
            self._refresh(turn, known, "its agent is silent")

    def _ask(self, turn: Turn, known: Node, wish: ResyncWish, doubted: bool = False) -> None:
        if not known.host:
            self.counters["resyncs_without_host"] += 1
            return
        address = self._identity.address(known.cell)
        message = Resync(known.node, address, wish.epoch, wish.after_sequence, doubted)
        turn.emit(Send(known.cell, agent_address(known.host), message))

    # -- the channel

    def connected(self, turn: Turn, cell: str, spread_s: float) -> None:
        """The channel of a cell is up (again); all agents were asked to speak within ``spread_s``."""
        self._patient_until_s[cell] = turn.now + spread_s
        for known in self.of_cell(cell):
            known.window.reconnected(turn.now)
            known.window.be_patient(turn.now + spread_s)
            self._show(known)
            self._arm(known)

    def of_cell(self, cell: str) -> list[Node]:
        """The nodes of one cell."""
        return [known for known in self._nodes.values() if known.cell == cell]

    # -- other sources

    def read(self, turn: Turn, event: NodeRead) -> None:
        """The databases and Placement say this of a node: of use while no agent speaks for it."""
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
        if misread(event.leaves, dict):
            self.counters["reads_unusable"] += 1
            return
        known.read_at_s = event.read_at_s
        known.host = event.host
        self._table.upsert(event.node, event.cell, event.host, event.nodename)
        self._table.load(event.node, event.leaves, consumers_of(event))
        known.window.forget(turn.now)
        self._show(known)
        self._row_read(turn, known.node)

    def gone(self, event: NodesGone) -> None:
        """These nodes are no more."""
        for node in sorted(event.nodes):
            if self._nodes.pop(node, None) is not None:
                self.quarantined = self.quarantined - {node}
                for kind in ("window", "mute", "quarantine", "mirrored"):
                    self._timers.cancel((kind, node))
            self._table.remove(node)

    # -- what claims teach

    def took(self, node: str) -> None:
        """A claim on this node went well."""
        known = self._nodes.get(node)
        if known is not None:
            known.refusals = 0

    def refused(self, turn: Turn, node: str, reason: Reason) -> None:
        """Its agent refused a claim."""
        self.counters["refused"] += 1
        known = self._nodes.get(node)
        if known is None or reason.code in NO_FAULT:
            return
        if reason.code in (RefusalCode.WRONG_NODE, RefusalCode.NO_INVENTORY):
            self.doubt_row(turn, node, reason.code)
        self._count_refusal(turn, known)

    def not_written(self, turn: Turn, node: str, code: WriteCode) -> None:
        """Placement did not take an allocation for this node."""
        known = self._nodes.get(node)
        if known is None or code not in ROW_IS_WRONG:
            return
        self.doubt_row(turn, node, f"Placement answered {code.value}")
        self._count_refusal(turn, known)

    def _count_refusal(self, turn: Turn, known: Node) -> None:
        known.refusals += 1
        if known.refusals < self._settings.refusals_max or known.quarantined:
            return
        self.counters["quarantined"] += 1
        known.quarantined = True
        self._timers.set(("quarantine", known.node), turn.now + self._settings.quarantine_s)
        self.quarantined = self.quarantined | {known.node}

    def on_quarantine_timer(self, _turn: Turn, node: str) -> None:
        """It has been left alone for long enough."""
        known = self._nodes[node]
        known.quarantined, known.refusals = False, 0
        self.quarantined = self.quarantined - {node}

    def mute(self, turn: Turn, node: str) -> None:
        """Its agent let a claim without a verdict: ask it to speak."""
        self.counters["verdicts_missed"] += 1
        known = self._nodes.get(node)
        if known is not None:
            self._leave_alone(turn, known, ResyncWish(0, 0))

    def in_the_past(self, turn: Turn, node: str, epoch: int) -> None:
        """Its agent judged a claim, decided on in ``epoch``, in an earlier one: its memory is lost.

        Nobody believes what it says now, and it refuses what is decided on what it said before: ask it
        to go on above ``epoch`` (``compute_agent/epochs.py``), if that is still what we follow.
        """
        known = self._nodes.get(node)
        if known is not None and known.window.epoch == epoch:
            self.counters["epochs_of_the_past"] += 1
            self._leave_alone(turn, known, ResyncWish(epoch, 0))

    def _leave_alone(self, turn: Turn, known: Node, wish: ResyncWish) -> None:
        """Ask, and give it no claims until it is heard."""
        if known.mute:
            return
        known.mute = True
        self._timers.set(("mute", known.node), turn.now + self._settings.silent_after_timeout_s)
        self._show(known)
        if self._bucket.take(turn.now):
            self._ask(turn, known, wish)

    def on_mute_timer(self, turn: Turn, node: str) -> None:
        """It still says nothing: from now on its agent does not speak for it."""
        known = self._nodes[node]
        known.mute_for_long = True
        self._show(known)
        self._refresh(turn, known, "its agent does not answer")

    def doubt_row(self, turn: Turn, node: str, why: str) -> bool:
        """Have the row corrected by whoever speaks for it; False if that cannot be done now."""
        known = self._nodes.get(node)
        if known is None:  # a compute so new that nobody has told of it: any cell may have it
            turn.emit(RefreshNode("", node, why))
            return True
        if self._freshness_of(known) == Freshness.PROVISIONAL:
            return self._refresh(turn, known, why)
        if not known.host or not self._bucket.take(turn.now):
            return False
        self._ask(turn, known, ResyncWish(0, 0), doubted=True)
        return True

    def aggregates_changed(self, turn: Turn, hosts: frozenset[str]) -> None:
        """These joined a host aggregate or left one.  nova-api tells Placement after us, and an agent reads
        that only now and then: have it look, for ``member_of`` is judged by what it says."""
        for host in sorted(hosts):
            for slot in self._table.slots_of_host(host):
                node = self._table.view_at(slot).node
                if self.agent_speaks_for(node):
                    self._timers.set(("mirrored", node), turn.now + self._settings.mirrored_after_s)

    def on_mirrored_timer(self, turn: Turn, node: str) -> None:
        """nova-api had the time to tell Placement."""
        if not self.doubt_row(turn, node, "its aggregates changed"):
            self._timers.set(("mirrored", node), turn.now + self._settings.mirrored_after_s)

    def _refresh(self, turn: Turn, known: Node, why: str) -> bool:
        if turn.now - known.refreshed_s < self._settings.refresh_interval_s:
            return False
        known.refreshed_s = turn.now
        turn.emit(RefreshNode(known.cell, known.node, why))
        return True

    # -- what the table shows

    def _freshness_of(self, known: Node) -> Freshness:
        if known.mute_for_long:
            return Freshness.PROVISIONAL
        if known.mute:
            return Freshness.STALE
        return ROW_FRESHNESS[known.window.freshness]

    def _show(self, known: Node) -> None:
        if known.node in self._table:
            self._table.set_freshness(known.node, self._freshness_of(known))
