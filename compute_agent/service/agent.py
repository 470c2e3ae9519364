# SPDX-License-Identifier: Apache-2.0
"""The agent of one nova-compute: a core for each of its nodes, one thread that steps them.

Everything that happens goes through one inbox and is taken by one thread, so cores need no lock.  The
threads around it (bus, tap, Placement, fallback) only put into the inbox and carry out.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, Full, SimpleQueue
from typing import Protocol

from compute_agent import events as ev
from compute_agent.core import AgentCore
from compute_agent.effects import (
    Broadcast,
    Cast,
    Effect,
    Keep,
    KeepEpoch,
    KeptClaim,
    Notice,
    ReadAllocations,
    ReadTree,
)
from compute_agent.ledger import TopologyFit
from compute_agent.service.channel import Channel
from compute_agent.service.notices import NoticeLog
from compute_agent.service.reading import Answer, PlacementThread
from compute_agent.settings import Settings
from compute_agent.sources.placement import PlacementReader
from compute_agent.tap import wire
from shared_scheduler.protocol.messages import (
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
from shared_scheduler.transport.complaints import Complaints

LOG = logging.getLogger(__name__)

#: Things that wait to be handled.  Messages of schedulers beyond this are dropped (they ask again),
#: the tap's reader waits (nova-compute's side is bounded and never waits).
INBOX_MAX = 10_000
#: Beyond it, what nova-compute's own threads say, which must not wait (``embedded.py``).
RESERVE_MAX = 1_000
#: How long the tap's reader waits for room at a time.
ROOM_S = 0.05
#: How long a node rests whose tick failed: it is still due.
MISTAKE_PAUSE_S = 0.1
#: The longest sleep; bounds the harm of a deadline that was computed wrongly.
IDLE_MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class ForNode:
    """An event of one node, or of all that exist if ``node`` is empty."""

    node: str
    event: ev.Event


@dataclass(frozen=True, slots=True)
class FromTap:
    """A message of the tap, or the end of its connection."""

    message: wire.TapMessage | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Do:
    """Something to be done by the agent's thread (reload, stop)."""

    action: Callable[[], None]


Item = ForNode | FromTap | Do


class State(Protocol):
    """What an agent keeps for its next life: ``service.state.StateDirectory``."""

    def kept(self) -> Mapping[str, tuple[KeptClaim, ...]]: ...
    def keep(self, node: str, claims: tuple[KeptClaim, ...]) -> None: ...
    def forget(self, node: str) -> None: ...
    def keep_epoch(self, epoch: int) -> None: ...
    def close(self) -> None: ...


class Agent:
    """``run`` in one thread; everything else may be called from any."""

    def __init__(
        self,
        host: str,
        channel: Channel,
        reader: PlacementReader,
        state: State,
        epoch: int,
        fit: TopologyFit,
        settings: Settings,
        rng: random.Random,
        mode: str = "tap",
    ) -> None:
        """``mode``: what is published of how nova-compute is heard (``state.leaves``)."""
        self.host = host
        self._mode = mode
        self.cores: dict[str, AgentCore] = {}
        #: is anybody speaking for nova-compute through the tap?
        self.tap_lost_at_s: float | None = time.monotonic()
        self._channel = channel
        self._state = state
        self._epoch = epoch
        self._fit = fit
        self._settings = settings
        self._rng = rng
        self._inbox: SimpleQueue[Item] = SimpleQueue()
        self._notices = NoticeLog()
        self._complaints = Complaints(LOG)
        self._dropped = 0  # messages of schedulers
        self._placement = PlacementThread(reader, self._placement_answered)
        self._connected = False
        self._sources: dict[str, str] = {}  # node -> mode of whoever speaks for it
        self._settling: list[Callable[[], None]] = []
        self._running = True

    # -- from other threads -------------------------------------------------------------------------

    def put(self, item: Item) -> None:
        self._inbox.put(item)

    def received(self, messages: Sequence[Message]) -> None:
        """From the channel, oldest first."""
        if self._inbox.qsize() >= INBOX_MAX:
            self._dropped += len(messages)
            self._complaints.say("dropped", "", self._dropped, "dropped, too much waits to be handled")
            return
        arrived_at_s = time.monotonic()
        for node, own in _by_node(messages).items():
            self.put(ForNode(node, ev.MessagesArrived(tuple(own), arrived_at_s)))

    def channel_changed(self, connected: bool) -> None:
        self.put(Do(lambda: self._set_channel(connected)))

    def heard(self, message: wire.TapMessage) -> None:
        """From the tap's reader, which may wait."""
        while self._inbox.qsize() >= INBOX_MAX:
            time.sleep(ROOM_S)
        self.put(FromTap(message))

    def told(self, message: wire.TapMessage) -> None:
        """From a thread of nova-compute, which must not wait.

        :raises Full: too much waits; what was to be told is to be told again
        """
        if self._inbox.qsize() >= INBOX_MAX + RESERVE_MAX:
            raise Full(f"no room: {INBOX_MAX + RESERVE_MAX} things wait to be handled")
        self.put(FromTap(message))

    def tap_lost(self, why: str) -> None:
        self.put(FromTap(None, why))

    def reconfigure(self, settings: Settings) -> None:
        self.put(Do(lambda: self._set_settings(settings)))

    def when_settled(self, told: Callable[[], None]) -> None:
        """Call ``told`` when everything put before is handled, what Placement is asked because of it
        is answered, and schedulers were told."""
        self.put(Do(lambda: self._settling.append(told)))

    def stop(self) -> None:
        """Safe to call from a signal handler."""
        self.put(Do(self._stop))

    def _placement_answered(self, node: str, answer: Answer) -> None:
        self.put(ForNode(node, answer))

    # -- the agent's thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Until ``stop``; another agent may have the state then."""
        self._placement.start()
        for node, kept in self._state.kept().items():
            self._core(node, kept)
        self._channel.start(self.received, self.channel_changed)
        while self._running:
            try:
                self._handle(self._inbox.get(timeout=self._wait_s()))
            except Empty:
                self._tick()
            if self._settling and self._is_settled():
                self._tell_settled()
        self._tell_settled()
        self._placement.stop()
        self._channel.close()
        self._state.close()

    def _wait_s(self) -> float:
        now = time.monotonic()
        deadlines = [core.next_deadline_s(now) for core in self.cores.values()]
        soonest = min((at for at in deadlines if at is not None), default=now + IDLE_MAX_S)
        return min(max(soonest - now, 0.0), IDLE_MAX_S)

    def _is_settled(self) -> bool:
        now = time.monotonic()
        return self._inbox.empty() and not any(core.asks(now) for core in self.cores.values())

    def _tell_settled(self) -> None:
        for core in self.cores.values():
            self._carry_out(core.flush(time.monotonic()))
        settling, self._settling = self._settling, []
        for told in settling:
            told()

    def _tick(self) -> None:
        now = time.monotonic()
        for node, core in list(self.cores.items()):
            deadline = core.next_deadline_s(now)
            is_due = deadline is not None and deadline <= now
            if is_due and not self._handle(ForNode(node, ev.Tick())):
                time.sleep(MISTAKE_PAUSE_S)

    def _handle(self, item: Item) -> bool:
        """False if that failed: one bad event must not end the agent, nor keep it from other nodes.
        The next beat and read find what it left wrong."""
        try:
            match item:
                case ForNode(node="", event=event):
                    return all([self._handle(ForNode(node, event)) for node in list(self.cores)])
                case ForNode(node=node, event=event):
                    self._for_node(node, event)
                case FromTap(message=None, why=why):
                    self._tap_is_lost(why)
                case FromTap(message=message) if message is not None:
                    self._from_tap(message)
                case Do(action=action):
                    action()
        except Exception:
            LOG.exception("handling %s failed", _about(item))
            return False
        return True

    def _for_node(self, node: str, event: ev.Event) -> None:
        if isinstance(event, ev.TrackerReported) and node not in self.cores:
            self._core(node, ())
        if node in self.cores:
            self._step(node, event)
        elif isinstance(event, ev.MessagesArrived):
            self._refuse_strangers(event.messages)

    def _refuse_strangers(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(message, Claim):
                reason = Reason(RefusalCode.WRONG_NODE, {"host": self.host})
                verdict = Verdict(message.claim_id, message.node, self._epoch, False, reason)
                self._carry_out([Cast(message.scheduler, verdict)])

    def _core(self, node: str, kept: Sequence[KeptClaim]) -> AgentCore:
        core = AgentCore(
            node, self.host, self._channel.address, self._epoch, self._fit, self._settings,
            self._rng, time.monotonic(), kept,
        )  # fmt: skip
        self.cores[node] = core
        self._keep(node, tuple(kept))
        if self._connected:
            self._step(node, ev.ChannelChanged(True))
        return core

    def _step(self, node: str, event: ev.Event) -> None:
        self._carry_out(self.cores[node].step(event, time.monotonic()))

    # -- sources ------------------------------------------------------------------------------------

    def source_changed(self, node: str, mode: str) -> None:
        """Whoever speaks for the node is of another kind than before: it begins anew."""
        if self._sources.get(node) != mode:
            self._sources[node] = mode
            self._step(node, ev.TrackerConnected(mode))

    def fallback_reported(self, node: str, report: ev.TrackerReported) -> None:
        """A complete report through nova-conductor (agent's thread)."""
        if self.tap_lost_at_s is None:
            return  # the tap came back meanwhile
        if node not in self.cores:
            self._core(node, ())
        self.source_changed(node, "fallback")
        self._step(node, report)

    def fallback_lost(self, why: str) -> None:
        """nova-compute is down, or nova-conductor cannot say (agent's thread)."""
        if self.tap_lost_at_s is not None:
            self._nobody_speaks(why)

    def _from_tap(self, message: wire.TapMessage) -> None:
        match message:
            case wire.TapHello():
                self.tap_lost_at_s = None
            case wire.NodeReported(node=node, leaves=leaves, members=members, complete=complete):
                if node not in self.cores:
                    self._core(node, ())
                if complete:
                    self.source_changed(node, self._mode)
                self._step(node, ev.TrackerReported(leaves, members, complete, message.ready))
            case wire.NodeGone(node=node):
                self._node_is_gone(node)
            case wire.TreeWritten(node=node):
                self._for_node(node, ev.TreeChanged())
            case wire.ClaimEntered(consumer=consumer):
                self._handle(ForNode("", ev.ClaimBegun(consumer)))
            case wire.ClaimFailed(consumer=consumer, kind=kind, text=text):
                self._handle(ForNode("", ev.ClaimRefused(consumer, kind, text)))

    def _tap_is_lost(self, why: str) -> None:
        self.tap_lost_at_s = time.monotonic()
        self._nobody_speaks(why)

    def _nobody_speaks(self, why: str) -> None:
        for node in list(self._sources):
            del self._sources[node]
            if node in self.cores:
                self._handle(ForNode(node, ev.TrackerLost(why)))

    def _node_is_gone(self, node: str) -> None:
        self._sources.pop(node, None)
        if node in self.cores:
            self._step(node, ev.Stopping())
            del self.cores[node]
            self._state.forget(node)

    # -- the process --------------------------------------------------------------------------------

    def _set_channel(self, connected: bool) -> None:
        self._connected = connected
        LOG.info("state channel %s", "connected" if connected else "lost, connecting again")
        self._handle(ForNode("", ev.ChannelChanged(connected)))

    def _set_settings(self, settings: Settings) -> None:
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
                    self._placement.put(effect)
                case Keep(node=node, claims=claims):
                    self._keep(node, claims)
                case KeepEpoch(epoch=epoch):
                    self._keep_epoch(epoch)
                case Notice():
                    self._notices.write(effect)

    def _keep(self, node: str, claims: tuple[KeptClaim, ...]) -> None:
        try:
            self._state.keep(node, claims)
        except OSError as error:
            LOG.error(
                "claims cannot be kept (%s): make room in [compute_agent] state_path. Until then a "
                "restart of this agent finds them in Placement and in the tracker only", error,
            )  # fmt: skip

    def _keep_epoch(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)  # of nodes to come, and of answers for nobody's node
        try:
            self._state.keep_epoch(epoch)
        except OSError as error:
            LOG.error(
                "the epoch cannot be kept (%s): make room in [compute_agent] state_path. Until then a "
                "restart of this agent is asked for a greater one again", error,
            )  # fmt: skip


def _about(item: Item) -> str:
    match item:
        case ForNode(node=node, event=event):
            return f"{type(event).__name__} of node {node}"
        case FromTap(message=message):
            return f"the tap's {type(message).__name__}"
        case Do():
            return "what another thread asked for"


def _by_node(messages: Iterable[Message]) -> dict[str, list[Message]]:
    """Messages for each node; those under "" are for all of them."""
    found: dict[str, list[Message]] = {}
    for message in messages:
        if isinstance(message, Claim | Release | Resync):
            found.setdefault(message.node, []).append(message)
        elif isinstance(message, Hello) and message.role is Role.SCHEDULER:
            found.setdefault("", []).append(message)
    return found
