# SPDX-License-Identifier: Apache-2.0
"""What the agent has told the schedulers, and what it still has to tell.

Compares the state that is with the state that was handed to the ``MessagePipe`` last, and hands it
the difference: the same report twice sends nothing.  Answers to resyncs and to Hellos are made here
too.  Schedulers that want a snapshot wait for the token bucket together; if more than one waits when
a token is there, one broadcast serves them all.  A claim that was decided on something old brings its
scheduler a snapshot, unless it was sent one a moment ago: claims come in crowds, and a scheduler whose
snapshot is lost asks for another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from compute_agent.claims import Bounded
from compute_agent.effects import Broadcast, Cast, Effect, Notice, NoticeCode
from compute_agent.settings import MAX_WAITING_SCHEDULERS
from shared_scheduler.protocol.bucket import TokenBucket
from shared_scheduler.protocol.errors import UnsendableMessage
from shared_scheduler.protocol.limits import AGENT_SNAPSHOTS_BURST, AGENT_SNAPSHOTS_PER_S
from shared_scheduler.protocol.messages import (
    Claim,
    Consumer,
    Hello,
    Leaf,
    Resync,
    Role,
    Verdict,
    Want,
)
from shared_scheduler.protocol.pipe import MessagePipe

Value = TypeVar("Value")

#: After the channel was away, the beat that shows what was missed comes within this time.
RETURN_SPREAD_S = 1.0

#: Who was sent a snapshot gets no further one within this time, unless it asks.
SNAPSHOT_PAUSE_S = 5.0


class Publisher:
    """One node's side of the state channel.

    ``open`` is False until there is something worth telling; nothing is published before.
    """

    def __init__(
        self,
        node: str,
        host: str,
        address: str,
        epoch: int,
        beat_interval_s: float,
        rng: random.Random,
    ) -> None:
        self.open = False
        self._beat_interval_s = beat_interval_s
        self._rng = rng
        self._host, self._address = host, address
        self._epoch_begins(node, epoch)
        self._bucket = TokenBucket(AGENT_SNAPSHOTS_PER_S, AGENT_SNAPSHOTS_BURST)
        self._leaves: Mapping[str, Leaf] = {}
        self._consumers: Mapping[str, Consumer] = {}
        self._claims: Mapping[str, str] = {}
        #: address -> when it may have its snapshot or its beat
        self._want_snapshot: dict[str, float] = {}
        self._want_beat: dict[str, float] = {}
        self._everybody_wants = False
        #: address -> when it was sent its last snapshot, and when everybody was
        self._has_snapshot_s: Bounded[float] = Bounded(MAX_WAITING_SCHEDULERS)
        self._everybody_has_s = float("-inf")
        self._unsendable: set[str] = set()

    def _epoch_begins(self, node: str, epoch: int) -> None:
        self.pipe = MessagePipe(
            node, self._host, epoch, self._rng, beat_interval_s=self._beat_interval_s
        )
        self._hello = Hello(Role.AGENT, self._address, epoch, node, self._host)

    # -- the state that is ------------------------------------------------------------------------

    def sync(
        self, leaves: Mapping[str, Leaf], consumers: Mapping[str, Consumer], claims: Mapping[str, str]
    ) -> list[Effect]:
        """This is all that is true of the node now.  Notices name what cannot be sent."""
        notices = [
            *self._hand(self.pipe.set_leaf, self._leaves, leaves),
            *self._hand(self.pipe.set_consumer, self._consumers, consumers),
            *self._hand(self.pipe.set_claim, self._claims, claims),
        ]
        self._leaves, self._consumers, self._claims = dict(leaves), dict(consumers), dict(claims)
        return notices

    def _hand(
        self,
        put: Callable[[str, Value | None], None],
        before: Mapping[str, Value],
        now_is: Mapping[str, Value],
    ) -> Iterator[Effect]:
        if now_is == before:
            return
        changed: dict[str, Value | None] = dict.fromkeys(before.keys() - now_is.keys())
        for key, new in now_is.items():
            old = before.get(key)
            if old is not new and old != new:  # most are the same object
                changed[key] = new
        for key, value in changed.items():
            try:
                put(key, value)
            except UnsendableMessage as error:
                put(key, None)  # better unknown than old
                if key not in self._unsendable:
                    self._unsendable.add(key)
                    yield Notice(NoticeCode.UNSENDABLE, self.pipe.node, {"why": str(error)})

    # -- what schedulers ask ------------------------------------------------------------------------

    def answer(self, claim: Claim, verdict: Verdict, now: float) -> list[Effect]:
        """A verdict with the news since what its scheduler had seen.

        Before a refusal everything is flushed: the loser must not lose again for the same reason.
        """
        flushed = self.pipe.flush(now) if self.open and not verdict.accepted else ()
        news = self.pipe.news(claim.seen_epoch, claim.seen_sequence)
        if news is None and not self._had_snapshot(claim, now):
            self._wants_snapshot(claim.scheduler, now)
        told = Verdict(
            verdict.claim_id,
            verdict.node,
            verdict.epoch,
            verdict.accepted,
            verdict.reason,
            verdict.reflected_sequence,
            news or (),
        )
        return [Cast(claim.scheduler, told), *map(Broadcast, flushed)]

    def resync(self, asked: Resync, now: float) -> list[Effect]:
        """Replay from the ring, else have the scheduler wait for a snapshot."""
        replay = self.pipe.since(asked.epoch, asked.after_sequence) if self.open else None
        if replay is None:
            self._wants_snapshot(asked.scheduler, now)
            return []
        return [Cast(asked.scheduler, one) for one in replay or (self.pipe.beat(),)]

    def greeted(self, hello: Hello, now: float) -> None:
        """A scheduler says Hello: answer at a random moment of its spread."""
        at_s = now + self._rng.uniform(0, hello.spread_ms / 1000)
        if hello.want is Want.SNAPSHOT:
            self._wants_snapshot(hello.sender, at_s)
        elif hello.want is Want.BEAT and len(self._want_beat) < MAX_WAITING_SCHEDULERS:
            self._want_beat[hello.sender] = at_s

    def returned(self, now: float) -> list[Effect]:
        """The channel is there (again): say so, and soon show by a beat what may have been missed."""
        self.pipe.beat_within(now, RETURN_SPREAD_S)
        return [Broadcast(self._hello)]

    def _had_snapshot(self, claim: Claim, now: float) -> bool:
        """A moment ago, by itself or, if it has heard of us before, with everybody."""
        sent_s = self._has_snapshot_s.recall(claim.scheduler)
        if claim.seen_epoch and now - self._everybody_has_s < SNAPSHOT_PAUSE_S:
            return True
        return sent_s is not None and now - sent_s < SNAPSHOT_PAUSE_S

    def _wants_snapshot(self, address: str, at_s: float) -> None:
        if address in self._want_snapshot or len(self._want_snapshot) < MAX_WAITING_SCHEDULERS:
            self._want_snapshot[address] = min(at_s, self._want_snapshot.get(address, at_s))
        else:
            self._everybody_wants = True

    # -- what goes out ----------------------------------------------------------------------------

    @property
    def next_sequence(self) -> int:
        return self.pipe.sequence + 1

    def begin_epoch(self, epoch: int) -> list[Effect]:
        """Everything is untold: to be followed by ``sync``, and by ``begin`` as after a start.

        Who waits for a snapshot or for a beat is served by the one that ``begin`` broadcasts.
        """
        self.open = False
        self._epoch_begins(self.pipe.node, epoch)
        self._leaves, self._consumers, self._claims = {}, {}, {}
        return [Broadcast(self._hello)]

    def begin(self, now: float) -> list[Effect]:
        """Open with one full picture for everybody."""
        self.open = True
        self._want_snapshot.clear()
        self._want_beat.clear()
        self._everybody_wants = False
        self._everybody_has_s = now
        _, picture = self.pipe.take_snapshot(now)
        return [Broadcast(picture)]

    def flush(self, now: float) -> list[Effect]:
        """What has changed, without waiting for the pipe's interval."""
        return [Broadcast(message) for message in self.pipe.flush(now)] if self.open else []

    def due(self, now: float) -> list[Effect]:
        """Everything that is to be sent now."""
        if not self.open:
            return []
        out: list[Effect] = [Broadcast(message) for message in self.pipe.poll(now)]
        for address in [key for key, at_s in self._want_beat.items() if at_s <= now]:
            del self._want_beat[address]
            out.append(Cast(address, self.pipe.beat()))
        return out + self._snapshots(now)

    def next_deadline_s(self, now: float) -> float | None:
        """When ``due`` has something, as far as is known; None while nothing is open."""
        if not self.open:
            return None
        wanted = [self.pipe.next_deadline_s(), *self._want_beat.values()]
        asked_s = min(self._want_snapshot.values(), default=None)
        if asked_s is not None or self._everybody_wants:
            wanted.append(max(asked_s or now, now + self._bucket.wait_s(now)))
        return min(wanted)

    def goodbye(self, now: float) -> list[Effect]:
        return [Broadcast(message) for message in self.pipe.say_goodbye(now)] if self.open else []

    def _snapshots(self, now: float) -> list[Effect]:
        addresses = [key for key, at_s in self._want_snapshot.items() if at_s <= now]
        everybody = self._everybody_wants or len(addresses) > 1
        if not (addresses or everybody) or not self._bucket.take(now):
            return []
        flushed, picture = self.pipe.take_snapshot(now)
        self._everybody_wants = False
        for address in addresses:
            del self._want_snapshot[address]
        if everybody:
            self._everybody_has_s = now
            return [*map(Broadcast, flushed), Broadcast(picture)]
        self._has_snapshot_s.remember(addresses[0], now)
        return [*map(Broadcast, flushed), Cast(addresses[0], picture)]
