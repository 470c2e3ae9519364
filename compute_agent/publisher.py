# SPDX-License-Identifier: Apache-2.0
"""What the agent has published to the schedulers, and what it still has to publish.

The publisher passes the whole state of the node to the ``MessagePipe``, which finds the changes: the same report
twice sends nothing.  It also answers resyncs and Hellos.  All schedulers that want a snapshot wait for one token
bucket.  If it is the turn of more than one when a token is available, one broadcast serves all that wait, unless it
would also reach as many that were sent a snapshot lately: then each whose turn it is gets its own.  A Hello is
answered ``SNAPSHOT_PAUSE_S`` after the last answer to its sender, because anybody may repeat it.  If a claim was
decided on an old state, the agent sends its scheduler a snapshot, but at most one within ``SNAPSHOT_PAUSE_S``, because
many such claims arrive at once.  A scheduler whose snapshot is lost asks for another.

Schedulers that miss a heartbeat ask together whether the agent is there.  If more than one waits for a heartbeat, the
next one to all is sent at once and serves them, so that a host which is behind does not fall further behind by answers.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from math import inf

from cachetools import FIFOCache

from compute_agent.agent_settings import MAX_WAITING_SCHEDULERS
from compute_agent.effects import Broadcast, Cast, Effect, Notice, NoticeCode
from shared_scheduler.protocol.limits import AGENT_SNAPSHOTS_BURST, AGENT_SNAPSHOTS_PER_S
from shared_scheduler.protocol.messages import Claim, Consumer, Heartbeat, Hello, Leaf, Resync, Role, Verdict, Want
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.rate_limits import TokenBucket

#: After a reconnection, a heartbeat is sent within this time.  It shows the schedulers whether they missed a message.
RECONNECT_SPREAD_S = 1.0

#: A scheduler that was sent a snapshot gets no other one within this time, unless it asks for it.
SNAPSHOT_PAUSE_S = 5.0
#: Heartbeats to all because more than one asks for one; anybody may ask.
HEARTBEATS_FOR_ALL_PER_S = 1.0
#: Schedulers that start together ask within this time: their processes compete for the CPU time of a machine.
STARTED_TOGETHER_S = 30.0
#: the longest spread of a scheduler's Hello that is accepted: two seconds for a thousand nodes, of 60,000
SPREAD_MAX_S = 120.0


class Publisher:
    """One node's side of the state channel.

    Nothing is published until ``begin`` sets ``open``.
    """

    def __init__(
        self,
        node: str,
        host: str,
        address: str,
        epoch: int,
        heartbeat_interval_s: float,
        rng: random.Random,
        release: str = "",
    ) -> None:
        self.open = False
        self._heartbeat_interval_s = heartbeat_interval_s
        self._rng = rng
        self._host, self._address, self._release = host, address, release
        self._set_epoch(node, epoch)
        self._bucket = TokenBucket(AGENT_SNAPSHOTS_PER_S, AGENT_SNAPSHOTS_BURST)
        self._replays = TokenBucket(AGENT_SNAPSHOTS_PER_S, AGENT_SNAPSHOTS_BURST)  # a replay may be as large
        self._heartbeats = TokenBucket(HEARTBEATS_FOR_ALL_PER_S, 1)
        #: address -> when its snapshot or its heartbeat may be sent
        self._want_snapshot: dict[str, float] = {}
        self._want_heartbeat: dict[str, float] = {}
        self._everybody_wants = False
        #: the end of the time for the answer to those that wait, and at which part of it that is
        self._answer_by_s, self._answer_at_part = 0.0, 0.0
        #: address -> when its last snapshot was sent; below: when the last snapshot was broadcast
        self._has_snapshot_s: FIFOCache[str, float] = FIFOCache(MAX_WAITING_SCHEDULERS)
        self._everybody_has_s = -inf
        #: what could not be sent of the last state
        self._unsendable: frozenset[str] = frozenset()

    def _set_epoch(self, node: str, epoch: int) -> None:
        self.pipe = MessagePipe(node, self._host, epoch, self._rng, heartbeat_interval_s=self._heartbeat_interval_s)
        self._hello = Hello(Role.AGENT, self._address, epoch, node, self._host, release=self._release)

    # -- the state of the node ---------------------------------------------------------------------

    def sync(
        self,
        leaves: Mapping[str, Leaf],
        consumers: Mapping[str, Consumer],
        claims: Mapping[str, str],
        cause: str,
    ) -> list[Effect]:
        """Replace the state of the node.  The notices, which have ``cause``, name what cannot be sent, once."""
        errors = {error.where: str(error) for error in self.pipe.replace(leaves, consumers, claims)}
        new, self._unsendable = errors.keys() - self._unsendable, frozenset(errors)
        return [
            Notice(NoticeCode.UNSENDABLE, self.pipe.node, {"why": why}, cause=cause)
            for where, why in errors.items()
            if where in new
        ]

    # -- answers to schedulers ----------------------------------------------------------------------

    def answer(self, claim: Claim, verdict: Verdict, now: float) -> list[Effect]:
        """Send a verdict, with the increments since the state on which the scheduler decided; of an accepted claim only
        its increment, if that suffices.

        Before a refusal all changes are flushed, so that the scheduler is not refused again for the same reason.
        """
        if verdict.accepted and self._increment_suffices(claim, now):
            return [Broadcast(increment) for increment in self.pipe.flush(now)]
        flushed = self.pipe.flush(now) if self.open and not verdict.accepted else ()
        news = self.pipe.news(claim.seen_epoch, claim.seen_sequence)
        if news is None and not self._had_snapshot_lately(claim, now):
            self._plan_snapshot(claim.scheduler, now)
        completed = Verdict(
            verdict.claim_id,
            verdict.node,
            verdict.epoch,
            verdict.accepted,
            verdict.reason,
            verdict.reflected_sequence,
            news or (),
        )
        return [Cast(claim.scheduler, completed), *map(Broadcast, flushed)]

    def _increment_suffices(self, claim: Claim, now: float) -> bool:
        """Whether the claim, which was accepted, is in an increment that is due and that its scheduler can apply."""
        is_told_now = self.open and self.pipe.tells_of(claim.claim_id, now)
        can_apply = self.pipe.since(claim.seen_epoch, claim.seen_sequence) is not None
        return claim.increment_suffices and is_told_now and can_apply

    def resync(self, asked: Resync, now: float) -> list[Effect]:
        """Replay increments from the ring, or plan a heartbeat if there are none.  Plan a snapshot if the ring does not
        have them, or replays are too many."""
        replay = self.pipe.since(asked.epoch, asked.after_sequence) if self.open else None
        if replay is None or (replay and not self._replays.take(now)):
            self._plan_snapshot(asked.scheduler, now)
            return []
        if not replay:
            self._plan_heartbeat(asked.scheduler, now)
        return [Cast(asked.scheduler, one) for one in replay]

    def plan_answer(self, hello: Hello, now: float) -> None:
        """Plan the answer to the Hello of a scheduler, at a random time within its spread."""
        spread_s = min(hello.spread_ms / 1000, SPREAD_MAX_S)
        if hello.want is Want.SNAPSHOT:
            self._plan_shared_snapshot(hello.sender, spread_s, now)
        elif hello.want is Want.HEARTBEAT:
            self._plan_heartbeat(hello.sender, now + self._rng.uniform(0, spread_s))

    def _plan_heartbeat(self, address: str, at_s: float) -> None:
        if address in self._want_heartbeat or len(self._want_heartbeat) < MAX_WAITING_SCHEDULERS:
            self._want_heartbeat[address] = min(at_s, self._want_heartbeat.get(address, at_s))

    def _plan_shared_snapshot(self, sender: str, spread_s: float, now: float) -> None:
        """Plan one answer for all that wait: schedulers that start together need one broadcast of each node.

        The answer is at a random part of the time that is left for it, so each further Hello moves it, but never beyond
        the spread of any of them.  Therefore few agents answer before the last of several Hellos, and the answers of
        all agents are spread evenly over the time after it.  What is due, or waits only for its pause, is not moved.
        """
        if self._want_snapshot.get(sender, inf) <= now:
            return
        planned = [one for one, at_s in self._want_snapshot.items() if at_s > max(now, self._pause_ends_s(one))]
        if planned:
            self._answer_by_s = min(self._answer_by_s, now + spread_s)
        else:
            self._answer_by_s, self._answer_at_part = now + spread_s, self._rng.random()
        is_due = min(self._want_snapshot.values(), default=inf) <= now  # the next snapshot serves all
        at_s = now if is_due else now + self._answer_at_part * max(0.0, self._answer_by_s - now)
        for address in (*planned, sender):
            self._want_snapshot.pop(address, None)
            self._plan_snapshot(address, max(at_s, self._pause_ends_s(address)))

    def _pause_ends_s(self, address: str) -> float:
        return self._has_snapshot_s.get(address, -inf) + SNAPSHOT_PAUSE_S

    def on_connected(self, now: float) -> list[Effect]:
        """The channel was connected: send Hello, and soon a heartbeat that shows whether messages were missed."""
        self.pipe.heartbeat_within(now, RECONNECT_SPREAD_S)
        return [Broadcast(self._hello)]

    def _had_snapshot_lately(self, claim: Claim, now: float) -> bool:
        """Whether its scheduler was sent a snapshot lately: alone or, if it knew an epoch of the node, by broadcast."""
        sent_s = self._has_snapshot_s.get(claim.scheduler)
        if claim.seen_epoch and now - self._everybody_has_s < SNAPSHOT_PAUSE_S:
            return True
        return sent_s is not None and now - sent_s < SNAPSHOT_PAUSE_S

    def _plan_snapshot(self, address: str, at_s: float) -> None:
        if address in self._want_snapshot or len(self._want_snapshot) < MAX_WAITING_SCHEDULERS:
            self._want_snapshot[address] = min(at_s, self._want_snapshot.get(address, at_s))
        else:
            self._everybody_wants = True

    # -- sending ---------------------------------------------------------------------------------

    @property
    def next_sequence(self) -> int:
        return self.pipe.sequence + 1

    def begin_epoch(self, epoch: int) -> list[Effect]:
        """Start a new epoch, in which nothing is published yet.  Call ``sync`` and ``begin`` next, as after a start.

        The snapshot that ``begin`` broadcasts also serves the schedulers that wait for a snapshot or a heartbeat.
        """
        self.open = False
        self._set_epoch(self.pipe.node, epoch)
        return [Broadcast(self._hello)]

    def begin(self, now: float) -> list[Effect]:
        """Start publishing, with one snapshot for all schedulers."""
        self.open = True
        self._want_snapshot.clear()
        self._want_heartbeat.clear()
        self._everybody_wants = False
        self._everybody_has_s = now
        _, snapshot = self.pipe.take_snapshot(now)
        return [Broadcast(snapshot)]

    def due(self, now: float) -> list[Effect]:
        """Return everything that is to be sent at ``now``."""
        if not self.open:
            return []
        return [*self._polled(now), *self._snapshots(now)]

    def _polled(self, now: float) -> list[Effect]:
        """What is due to all, and heartbeats to those who want one and do not get one with it."""
        due = [key for key, at_s in self._want_heartbeat.items() if at_s <= now]
        if len(due) > 1 and self._heartbeats.take(now):
            self.pipe.heartbeat_within(now, 0.0)
        polled = self.pipe.poll(now)
        for address in due:
            del self._want_heartbeat[address]
        alone = [] if any(isinstance(one, Heartbeat) for one in polled) else due
        return [*map(Broadcast, polled), *(Cast(address, self.pipe.heartbeat()) for address in alone)]

    def next_deadline_s(self, now: float) -> float | None:
        """When ``due`` has something to send, as far as is known; None while nothing is published."""
        if not self.open:
            return None
        wanted = [self.pipe.next_deadline_s(), *self._want_heartbeat.values()]
        asked_s = min(self._want_snapshot.values(), default=None)
        if asked_s is not None or self._everybody_wants:
            wanted.append(max(asked_s or now, now + self._bucket.wait_s(now)))
        return min(wanted)

    def leave(self, now: float) -> list[Effect]:
        return [Broadcast(message) for message in self.pipe.leave(now)] if self.open else []

    def _snapshots(self, now: float) -> list[Effect]:
        due = [key for key, at_s in self._want_snapshot.items() if at_s <= now]
        if not (due or self._everybody_wants):
            return []
        to_all = self._everybody_wants or len(due) > 1 + self._others_with_snapshot(due, now)
        served = [*self._want_snapshot] if to_all else [address for address in due if self._bucket.take(now)]
        if not (self._bucket.take(now) if to_all else served):
            return []
        flushed, snapshot = self.pipe.take_snapshot(now)
        for address in served:
            del self._want_snapshot[address]
            self._has_snapshot_s[address] = now
        if to_all:
            self._everybody_wants, self._everybody_has_s = False, now
            return [*map(Broadcast, flushed), Broadcast(snapshot)]
        return [*map(Broadcast, flushed), *(Cast(address, snapshot) for address in served)]

    def _others_with_snapshot(self, due: Collection[str], now: float) -> int:
        """How many other schedulers were sent a snapshot lately: each would decode another one for nothing."""
        lately = [address for address, sent_s in self._has_snapshot_s.items() if now - sent_s < STARTED_TOGETHER_S]
        return len(set(lately) - set(due))
