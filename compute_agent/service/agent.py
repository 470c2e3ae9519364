# SPDX-License-Identifier: Apache-2.0
"""The agent of one nova-compute: a core for each of its nodes, one thread that steps them.

All events go through one inbox and are handled by one thread, so the cores need no lock.  The other threads (bus, tap,
Placement, fallback) only put items into the inbox and carry out what the core asks for.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, Full, SimpleQueue
from typing import Protocol, TypeVar

from compute_agent import events as ev
from compute_agent import tap_wire
from compute_agent.agent_settings import AgentSettings
from compute_agent.claim_ledger import TopologyFit
from compute_agent.core import AgentCore
from compute_agent.effects import Broadcast, Cast, Effect, Keep, KeepEpoch, KeptClaim, Notice, ReadAllocations, ReadTree
from compute_agent.service.notices import NoticeLog
from compute_agent.service.placement_thread import Answer, PlacementThread
from shared_scheduler.placement.reader import PlacementReader
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Hello,
    Message,
    Reason,
    RefusalCode,
    Release,
    Resync,
    Role,
    Verdict,
)
from shared_scheduler.release import release
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Items that wait to be handled.  When there are more, messages of schedulers are dropped (they ask again) and the
#: tap's reader waits (the queue in nova-compute is bounded and never waits).
INBOX_MAX = 10_000
#: Further items that only threads of nova-compute may add, because they must not wait (``embedded.py``).
RESERVE_MAX = 1_000
#: The pause of the tap's reader while the inbox is full.
INBOX_FULL_PAUSE_S = 0.05
#: The pause after a tick that failed, because its node is still due.
FAILED_TICK_PAUSE_S = 0.1
#: How long another thread waits for an answer of the agent's.
INSPECT_TIMEOUT_S = 5.0
#: The longest wait for an item; it bounds the effect of a wrong deadline.
IDLE_MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class ForNode:
    """An event of one node, or of all that exist if ``node`` is empty."""

    node: str
    event: ev.Event


@dataclass(frozen=True, slots=True)
class FromTap:
    """A message of the tap, or the end of its connection."""

    message: tap_wire.TapMessage | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Do:
    """An action for the agent's thread (reload, stop)."""

    action: Callable[[], None]


Item = ForNode | FromTap | Do


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node; ``missing`` says why it is not ready."""

    ready: bool
    missing: str
    pending: int


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What the agent reports to operators.

    ``epoch`` is that of this life, ``counters`` are those of the channel, ``notices`` by ``NoticeCode``.
    """

    epoch: int
    connected: bool
    tap_connected: bool
    waiting: int
    counters: Mapping[str, int]
    notices: Mapping[str, int]
    nodes: Mapping[str, NodeFacts]


class State(Protocol):
    """The state that an agent keeps for its next start: ``service.state_directory.StateDirectory``."""

    def kept(self) -> Mapping[str, tuple[KeptClaim, ...]]: ...
    def groups(self, node: str) -> Mapping[str, str]: ...
    def keep(self, node: str, claims: tuple[KeptClaim, ...], groups: Mapping[str, str]) -> None: ...
    def forget(self, node: str) -> None: ...
    def keep_epoch(self, epoch: int) -> None: ...
    def close(self) -> None: ...


class Agent:
    """Call ``run`` in one thread; the methods of the first section may be called from any thread."""

    def __init__(
        self,
        host: str,
        channel: Channel,
        reader: PlacementReader,
        state: State,
        epoch: int,
        fit: TopologyFit,
        settings: AgentSettings,
        rng: random.Random,
        mode: str = "tap",
    ) -> None:
        """``mode``: the leaf ``agent.mode`` while the tap is the source."""
        self.host = host
        self._mode = mode
        self.cores: dict[str, AgentCore] = {}
        #: when the tap was lost; None while it is connected
        self.tap_lost_at_s: float | None = time.monotonic()
        self._channel = channel
        self._state = state
        self._epoch = epoch
        self._fit = fit
        self._settings = settings
        self._rng = rng
        self._inbox: SimpleQueue[Item] = SimpleQueue()
        self._notices = NoticeLog()
        self._log = RateLimitedLog(LOG)
        self._dropped = 0  # messages of schedulers
        self._placement = PlacementThread(reader, self._placement_answered)
        self._connected = False
        self._sources: dict[str, str] = {}  # node -> mode of its source
        self._running = True

    # -- from other threads -------------------------------------------------------------------------

    def put(self, item: Item) -> None:
        self._inbox.put(item)

    def received(self, messages: Sequence[Message]) -> None:
        """Take messages of the channel, oldest first.  They are dropped when the inbox is full."""
        if self._inbox.qsize() >= INBOX_MAX:
            self._dropped += len(messages)
            line = "messages are dropped, %d so far: more than %d events are waiting"
            self._log.write(logging.WARNING, "dropped", line, self._dropped, INBOX_MAX)
            return
        arrived_at_s = time.monotonic()
        for node, own in _by_node(messages).items():
            self.put(ForNode(node, ev.MessagesArrived(tuple(own), arrived_at_s)))

    def returned(self, message: Message) -> None:
        """Take a message that the broker has returned.  It is dropped when the inbox is full."""
        if isinstance(message, BuildResult) and self._inbox.qsize() < INBOX_MAX:
            self.put(ForNode(message.node, ev.CastReturned(message)))

    def channel_changed(self, connected: bool) -> None:
        self.put(Do(lambda: self._set_channel(connected)))

    def take_from_tap(self, message: tap_wire.TapMessage) -> None:
        """Take a message from the tap's reader.  Waits while the inbox is full."""
        while self._inbox.qsize() >= INBOX_MAX:
            time.sleep(INBOX_FULL_PAUSE_S)
        self.put(FromTap(message))

    def offer_from_tap(self, message: tap_wire.TapMessage) -> None:
        """Take a message from a thread of nova-compute.  Does not wait.

        :raises Full: when the inbox and its reserve are full; the caller sends the message again
        """
        if self._inbox.qsize() >= INBOX_MAX + RESERVE_MAX:
            raise Full(f"the inbox is full: {INBOX_MAX + RESERVE_MAX} items are waiting")
        self.put(FromTap(message))

    def tap_lost(self, why: str) -> None:
        self.put(FromTap(None, why))

    def reconfigure(self, settings: AgentSettings) -> None:
        self.put(Do(lambda: self._set_settings(settings)))

    def inspect(self, question: Callable[[Agent], T]) -> T:
        """Ask something in the agent's thread.

        :raises TimeoutError: when the agent has not answered within ``INSPECT_TIMEOUT_S``
        """
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                answer.set_result(question(self))
            except Exception as error:
                answer.set_exception(error)

        self.put(Do(ask))
        return answer.result(INSPECT_TIMEOUT_S)

    def stop(self) -> None:
        """Safe to call from a signal handler."""
        self.put(Do(self._stop))

    def _placement_answered(self, node: str, answer: Answer) -> None:
        self.put(ForNode(node, answer))

    def facts(self) -> AgentFacts:
        """What operators are told.  Call in the agent's thread (``inspect``)."""
        nodes = {
            node: NodeFacts(core.ready, "" if core.ready else core.missing(), len(core.ledger.pending))
            for node, core in self.cores.items()
        }
        counters = {**self._channel.counters, "inbox_full": self._dropped}
        waiting, tap_connected = self._inbox.qsize(), self.tap_lost_at_s is None
        notices = dict(self._notices.counts)
        return AgentFacts(self._epoch, self._connected, tap_connected, waiting, counters, notices, nodes)

    # -- the agent's thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Run until ``stop``.  Then another agent may use the state directory."""
        self._placement.start()
        for node, kept in self._state.kept().items():
            self._add_core(node, kept)
        self._channel.start(self.received, self.channel_changed, self.returned)
        while self._running:
            self._handle_next()
        self._placement.stop()
        self._channel.close()
        self._state.close()

    def _handle_next(self) -> None:
        """Handle one item of the inbox, or wait until a core is due."""
        try:
            self._handle(self._inbox.get(timeout=self._wait_s()))
        except Empty:
            self._tick()

    def _wait_s(self) -> float:
        now = time.monotonic()
        deadlines = [core.next_deadline_s(now) for core in self.cores.values()]
        soonest = min((at for at in deadlines if at is not None), default=now + IDLE_MAX_S)
        return min(max(soonest - now, 0.0), IDLE_MAX_S)

    def _tick(self) -> None:
        now = time.monotonic()
        for node, core in list(self.cores.items()):
            deadline = core.next_deadline_s(now)
            is_due = deadline is not None and deadline <= now
            if is_due and not self._handle(ForNode(node, ev.Tick())):
                time.sleep(FAILED_TICK_PAUSE_S)

    def _handle(self, item: Item) -> bool:
        """Return False if handling the item failed, because one bad event must not end the agent or stop other nodes.

        The next heartbeat and the next read correct the state.
        """
        try:
            match item:
                case ForNode(node="", event=event):
                    return all([self._handle(ForNode(node, event)) for node in list(self.cores)])
                case ForNode(node=node, event=event):
                    self._for_node(node, event)
                case FromTap(message=None, why=why):
                    self._lose_tap(why)
                case FromTap(message=message) if message is not None:
                    self._from_tap(message)
                case Do(action=action):
                    action()
        except Exception:
            LOG.exception("handling %s failed", _description_of(item))
            return False
        return True

    def _for_node(self, node: str, event: ev.Event) -> None:
        if isinstance(event, ev.TrackerReported) and node not in self.cores:
            self._add_core(node, ())
        if node in self.cores:
            self._step(node, event)
        elif isinstance(event, ev.MessagesArrived):
            self._refuse_claims_of_unknown_node(event.messages)

    def _refuse_claims_of_unknown_node(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(message, Claim):
                reason = Reason(RefusalCode.WRONG_NODE, {"host": self.host})
                verdict = Verdict(message.claim_id, message.node, self._epoch, False, reason)
                self._carry_out([Cast(message.scheduler, verdict)])

    def _add_core(self, node: str, kept: Sequence[KeptClaim]) -> AgentCore:
        groups = self._state.groups(node)
        core = AgentCore(
            node, self.host, self._channel.address, self._epoch, self._fit, self._settings,
            self._rng, time.monotonic(), kept, groups, release(),
        )  # fmt: skip
        self.cores[node] = core
        self._keep(node, tuple(kept), groups)
        if self._connected:
            self._step(node, ev.ChannelChanged(True))
        return core

    def _step(self, node: str, event: ev.Event) -> None:
        self._carry_out(self.cores[node].step(event, time.monotonic()))

    # -- sources ------------------------------------------------------------------------------------

    def source_changed(self, node: str, mode: str) -> None:
        """Tell the core that its source is of another kind than before."""
        if self._sources.get(node) != mode:
            self._sources[node] = mode
            self._step(node, ev.TrackerConnected(mode))

    def fallback_reported(self, node: str, report: ev.TrackerReported) -> None:
        """Take a complete report that came through nova-conductor.  Call in the agent's thread."""
        if self.tap_lost_at_s is None:
            return  # the tap is connected again
        if node not in self.cores:
            self._add_core(node, ())
        self.source_changed(node, "fallback")
        self._step(node, report)

    def fallback_lost(self, why: str) -> None:
        """nova-compute is down, or nova-conductor does not answer.  Call in the agent's thread."""
        if self.tap_lost_at_s is not None:
            self._lose_trackers(why)

    def _from_tap(self, message: tap_wire.TapMessage) -> None:
        match message:
            case tap_wire.TapHello():
                self.tap_lost_at_s = None
            case tap_wire.NodeReported(node=node, leaves=leaves, members=members, complete=complete):
                if node not in self.cores:
                    self._add_core(node, ())
                if complete:
                    self.source_changed(node, self._mode)
                self._step(node, ev.TrackerReported(leaves, members, complete, message.ready))
            case tap_wire.NodeGone(node=node):
                self._remove_node(node)
            case tap_wire.TreeWritten(node=node):
                self._for_node(node, ev.TreeChanged())
            case tap_wire.ClaimEntered(consumer=consumer):
                if not any(core.ledger.awaits(consumer) for core in self.cores.values()):
                    self._handle(ForNode("", ev.ClaimBegun(consumer)))
            case tap_wire.ClaimFailed(consumer=consumer, kind=kind, text=text):
                self._handle(ForNode("", ev.ClaimRefused(consumer, kind, text)))
            case tap_wire.BuildEnded(node=node, consumer=consumer, succeeded=succeeded, text=text):
                self._for_node(node, ev.BuildEnded(consumer, succeeded, text))

    def _lose_tap(self, why: str) -> None:
        self.tap_lost_at_s = time.monotonic()
        self._lose_trackers(why)

    def _lose_trackers(self, why: str) -> None:
        for node in list(self._sources):
            del self._sources[node]
            if node in self.cores:
                self._handle(ForNode(node, ev.TrackerLost(why)))

    def _remove_node(self, node: str) -> None:
        self._sources.pop(node, None)
        if node in self.cores:
            self._step(node, ev.Stopping())
            self._keep_epoch(self.cores.pop(node).epoch + 1)  # if the node returns, its sequence starts again
            self._state.forget(node)

    # -- the process --------------------------------------------------------------------------------

    def _set_channel(self, connected: bool) -> None:
        self._connected = connected
        LOG.info("state channel %s", "connected" if connected else "lost, reconnecting")
        self._handle(ForNode("", ev.ChannelChanged(connected)))

    def _set_settings(self, settings: AgentSettings) -> None:
        self._settings = settings
        now = time.monotonic()
        for node, core in list(self.cores.items()):
            core.reconfigure(settings, now)
            self._handle(ForNode(node, ev.Tick()))

    def _stop(self) -> None:
        self._handle(ForNode("", ev.Stopping()))
        self._running = False

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Broadcast(message=message):
                    self._channel.broadcast(message)
                case Cast(address=address, message=message):
                    self._channel.cast(address, message)
                case ReadTree() | ReadAllocations():
                    self._placement.submit(effect)
                case Keep(node=node, claims=claims, groups=groups):
                    self._keep(node, claims, groups)
                case KeepEpoch(epoch=epoch):
                    self._keep_epoch(epoch)
                case Notice():
                    self._notices.write(effect)

    def _keep(self, node: str, claims: tuple[KeptClaim, ...], groups: Mapping[str, str]) -> None:
        try:
            self._state.keep(node, claims, groups)
        except OSError as error:
            LOG.error(
                "claims cannot be kept (%s): make room in [compute_agent] state_path. Until then, "
                "after a restart, this agent knows them only from Placement and the tracker", error,
            )  # fmt: skip

    def _keep_epoch(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)  # for nodes that are added later, and for refusals of unknown nodes
        try:
            self._state.keep_epoch(epoch)
        except OSError as error:
            LOG.error(
                "the epoch cannot be kept (%s): make room in [compute_agent] state_path. Until then, "
                "after a restart, schedulers ask this agent for a greater one again", error,
            )  # fmt: skip


def _description_of(item: Item) -> str:
    match item:
        case ForNode(node=node, event=event):
            return f"{type(event).__name__} of node {node}"
        case FromTap(message=message):
            return f"the tap's {type(message).__name__}"
        case Do():
            return "an action of another thread"


def _by_node(messages: Iterable[Message]) -> dict[str, list[Message]]:
    """The messages of each node; those under "" are for all nodes."""
    found: dict[str, list[Message]] = {}
    for message in messages:
        if isinstance(message, Claim | Release | Resync):
            found.setdefault(message.node, []).append(message)
        elif isinstance(message, Hello) and message.role is Role.SCHEDULER:
            found.setdefault("", []).append(message)
    return found
