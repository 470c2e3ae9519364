# SPDX-License-Identifier: Apache-2.0
"""The agent of one node as a machine without I/O: ``step(event, now) -> effects``.

It owns the node's sequence, judges claims one after another (ledger.py), keeps its own mirror of the
node's tree in Placement fresh (accounts.py, lookout.py) and tells the schedulers (publisher.py).

Readiness
=========
Claims are judged only while the agent is authoritative:

=================  ===========================================  ================
state              event                                        next
=================  ===========================================  ================
AWAY               the tracker is connected                     LEARNING
LEARNING           a complete report after nova-compute's own   READY
                   audit, and the provider tree and its
                   allocations were read once
READY              Placement does not answer                    READY (it keeps what it knows)
READY, LEARNING    the tracker is lost                          AWAY
=================  ===========================================  ================

Nothing is published before the node is READY for the first time or ``OPEN_AFTER_S`` have passed: so
an agent that starts beside a living nova-compute is heard of by one full snapshot and not by several.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from compute_agent import events as ev
from compute_agent.claims import Bounded, Ending, How
from compute_agent.effects import (
    Effect,
    Keep,
    KeepEpoch,
    KeptClaim,
    Notice,
    NoticeCode,
    ReadAllocations,
    ReadTree,
)
from compute_agent.epochs import Ask, Epochs
from compute_agent.ledger import Ledger, TopologyFit
from compute_agent.lookout import Lookout, Watch
from compute_agent.publisher import Publisher
from compute_agent.settings import MAX_RECENT_VERDICTS, MAX_WAITING_SCHEDULERS, Settings
from shared_scheduler.protocol.messages import (
    Claim,
    Hello,
    Leaf,
    Message,
    Reason,
    RefusalCode,
    Release,
    Resync,
    Role,
    Verdict,
)
from shared_scheduler.state import leaves as names

#: A node that cannot become ready (nova-compute is down) is published, as not ready, after this.
OPEN_AFTER_S = 5.0
#: Refusals for lack of room, and releases, make the agent read its allocations at most this often.
DOUBT_EVERY_S = 1.0
#: The sequence of the snapshot that opens an epoch.
FIRST_SEQUENCE = 1
NOT_AUDITED = "nova-compute has not audited the node since it started"

TrackerEvent = (
    ev.TrackerConnected | ev.TrackerLost | ev.TrackerReported | ev.ClaimBegun | ev.ClaimRefused
)
PlacementEvent = ev.TreeChanged | ev.TreeRead | ev.AllocationsRead | ev.ReadFailed


class AgentCore:
    """Speaks for one node.

    ``host`` is the nova-compute service, ``address`` where casts to this agent go, ``epoch`` this
    life of the agent, ``restored`` what an earlier life kept (``effects.Keep``).
    """

    def __init__(
        self,
        node: str,
        host: str,
        address: str,
        epoch: int,
        fit: TopologyFit,
        settings: Settings,
        rng: random.Random,
        now: float,
        restored: Iterable[KeptClaim] = (),
    ) -> None:
        self.node = node
        self.host = host
        self._epochs = Epochs(epoch, rng)
        self.ledger = Ledger(node, fit)
        self.publisher = Publisher(node, host, address, epoch, settings.beat_interval_s, rng)
        self.tree = Lookout(settings, rng)
        self.allocations = Lookout(settings, rng)
        self._watch = Watch(settings)
        self._settings = settings
        self._mode = ""
        self._reported = False
        self._away = "nova-compute was not heard of yet"
        self._verdicts: Bounded[Verdict] = Bounded(MAX_RECENT_VERDICTS)
        self._open_at_s = now + OPEN_AFTER_S
        self._kept_changed = False
        self._was_ready = False
        self._stopped = False
        self._dirty = True
        self._last_read_s = self._last_tree_read_s = float("-inf")
        #: address -> what its scheduler asked, and when: Placement is looked at first
        self._doubters: dict[str, tuple[Resync, float]] = {}
        self._effects: list[Effect] = []
        for kept in restored:
            self.ledger.restore(kept, now)
        self.tree.ask(now)

    def reconfigure(self, settings: Settings, now: float) -> None:
        """Take new times over.  The beat's interval stays: schedulers rely on it.

        Shorter ones count from ``now``; to be followed by a ``Tick``.
        """
        self._settings = self._watch.settings = settings
        for plan in (self.tree, self.allocations):
            plan.reconfigure(settings, now)

    # -- the machine ------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The one that is published in; it grows within a life only as epochs.py tells."""
        return self._epochs.epoch

    @property
    def ready(self) -> bool:
        accounts = self.ledger.accounts
        return self._reported and accounts.tree_known and accounts.allocations_known

    def step(self, event: ev.Event, now: float) -> list[Effect]:
        """Take one event; the effects are to be carried out in order."""
        self._effects = []
        if not self._stopped:
            self._handle(event, now)
            self._look(now)
            self._note_readiness()
            self._keep()
            self._sync()
            self._open(now)
            self._effects += self.publisher.due(now)
        return self._effects

    def next_deadline_s(self, now: float) -> float | None:
        """When a ``Tick`` is wanted at the latest; None after the end."""
        if self._stopped:
            return None
        wanted = [self.publisher.next_deadline_s(now), self.tree.due_s()]
        if self.ledger.accounts.tree_known:  # whose allocations, otherwise?
            wanted.append(self.allocations.due_s())
        if not self.publisher.open:
            wanted.append(self._open_at_s)
        return min((at for at in wanted if at is not None), default=None)

    def asks(self, now: float) -> bool:
        """Whether Placement is being asked, or is to be asked by now."""
        plans = [self.tree, self.allocations] if self.ledger.accounts.tree_known else [self.tree]
        return any(plan.reading or plan.is_due(now) for plan in plans)

    def flush(self, now: float) -> list[Effect]:
        """Tell what has changed now, not at the pipe's own time."""
        return self.publisher.flush(now)

    def _handle(self, event: ev.Event, now: float) -> None:
        match event:
            case ev.TreeRead() | ev.AllocationsRead() | ev.ReadFailed() | ev.TreeChanged():
                self._placement_said(event, now)
            case ev.MessagesArrived(messages=messages, arrived_at_s=arrived_at_s):
                for message in messages:
                    self._message(message, arrived_at_s, now)
            case ev.ChannelChanged(connected=connected):
                if connected:
                    self._effects += self.publisher.returned(now)
            case ev.Stopping():
                self._stop(now)
            case ev.Tick():
                pass
            case _:
                self._tracker_said(event, now)

    # -- nova-compute -----------------------------------------------------------------------------

    def _tracker_said(self, event: TrackerEvent, now: float) -> None:
        self._dirty = True
        match event:
            case ev.TrackerConnected(mode=mode):
                self._mode, self._reported, self._away = mode, False, NOT_AUDITED
                self.tree.ask(now)  # what it wrote before we listened was told to nobody
            case ev.TrackerLost(why=why):
                self._reported, self._away = False, why
            case ev.TrackerReported():
                self._tracker_reported(event, now)
            case ev.ClaimBegun(consumer=consumer):
                if not self.ledger.holds_something(consumer):
                    self.allocations.ask(now)
            case ev.ClaimRefused(consumer=consumer, kind=kind, text=text):
                self._ended(self.ledger.refused_by_compute(consumer, f"{kind}: {text}"), now)

    def _tracker_reported(self, report: ev.TrackerReported, now: float) -> None:
        before, capacity = dict(self.ledger.members), self.ledger.capacity()
        had_reported = self._reported
        self._reported = report.ready and (report.complete or self._reported)
        self._ended(self.ledger.reported(report, now), now)
        if any(capacity) and capacity != self.ledger.capacity():
            self.tree.ask(now)  # without a tap nobody else tells; Placement was written before this
        for consumer in report.members.keys() | (before.keys() if report.complete else set()):
            self._membership_changed(consumer, before.get(consumer), now)
        if self._reported and not had_reported:
            self._look_after(self.ledger.accounts.beliefs, now)
        for claim_id in self.ledger.in_doubt():
            self._notice(NoticeCode.TOPOLOGY_IN_DOUBT, claim_id=claim_id)

    def _membership_changed(self, consumer: str, before: ev.Member | None, now: float) -> None:
        after = self.ledger.members.get(consumer)
        if after is not None and not self.ledger.holds_something(consumer):
            self.allocations.ask(now)  # uninvited: somebody else wrote its allocation
        if before is None:
            return
        if before.instance and (after is None or not after.instance):
            self._expect_gone(consumer, now)
        if before.migration and (after is None or after.migration != before.migration):
            self._expect_gone(before.migration, now)
            self._expect_gone(consumer, now)

    def _look_after(self, consumers: Iterable[str], now: float) -> None:
        """Whose end nobody tells: a migration's, or what was written without us and is taken back."""
        for consumer in sorted(consumers):
            if not self.ledger.explains(consumer):
                self._expect_gone(consumer, now)

    def _expect_gone(self, consumer: str, now: float) -> None:
        at_s = self._watch.add(consumer, now)
        if at_s is not None:
            self.allocations.ask(at_s)

    # -- Placement --------------------------------------------------------------------------------

    def _placement_said(self, event: PlacementEvent, now: float) -> None:
        self._dirty = True
        match event:
            case ev.TreeChanged():
                self.tree.ask(now)
            case ev.TreeRead():
                self._tree_read(event, now)
            case ev.AllocationsRead():
                self._allocations_read(event, now)
            case ev.ReadFailed():
                self._read_failed(event, now)

    def _look(self, now: float) -> None:
        oldest_s = min((held.accepted_at_s for held in self.ledger.pending.values()), default=None)
        if oldest_s is not None and not self.allocations.reading:
            self.allocations.ask(self._check_at_s(oldest_s))
        if self.tree.begin(now):
            self._effects.append(ReadTree(self.node))
        accounts = self.ledger.accounts
        if accounts.tree_known and self.allocations.begin(now):
            self._effects.append(ReadAllocations(self.node, tuple(sorted(accounts.providers))))

    def _check_at_s(self, oldest_s: float) -> float:
        """The next multiple of ``claim_check_after_s`` in the life of the oldest pending claim."""
        every_s = self._settings.claim_check_after_s
        passed = int((max(self._last_read_s, oldest_s) - oldest_s) / every_s)
        return oldest_s + (passed + 1) * every_s

    def _tree_read(self, event: ev.TreeRead, now: float) -> None:
        self._last_tree_read_s = event.started_at_s
        changed = self.ledger.accounts.set_tree(event.providers)
        if not event.providers:
            self._notice(NoticeCode.TREE_MISSING)
            self.tree.failed(now)
            self._answer_doubters(now, now)
            return
        self.tree.finished(now)
        if changed:
            self.allocations.ask(now)
        self._answer_doubters(min(self._last_read_s, self._last_tree_read_s), now)

    def _allocations_read(self, event: ev.AllocationsRead, now: float) -> None:
        before = self.ledger.accounts.beliefs.keys()
        self._last_read_s = event.started_at_s
        self._ended(
            self.ledger.allocations_read(
                event.consumers, event.started_at_s, self._settings.claim_check_after_s
            ),
            now,
        )
        self.allocations.finished(now)
        again_s = self._watch.read(event.consumers, now)
        if again_s is not None:
            self.allocations.ask(again_s)
        if self._reported:
            self._look_after(event.consumers.keys() - before, now)
        self._answer_doubters(min(self._last_read_s, self._last_tree_read_s), now)

    def _read_failed(self, event: ev.ReadFailed, now: float) -> None:
        self._notice(NoticeCode.READ_FAILED, what=event.what, why=event.why)
        (self.tree if event.what == "tree" else self.allocations).failed(now)
        self._answer_doubters(now, now)

    # -- schedulers -------------------------------------------------------------------------------

    def _message(self, message: Message, arrived_at_s: float, now: float) -> None:
        match message:
            case Claim():
                self._claimed(message, arrived_at_s, now)
            case Release():
                self._released(message, now)
            case Resync():
                self._resync(message, now)
            case Hello(role=Role.SCHEDULER):
                self.publisher.greeted(message, now)
            case _:
                pass  # meant for schedulers

    def _resync(self, asked: Resync, now: float) -> None:
        match self._epochs.judge(asked.epoch, now):
            case Ask.SURPASS:
                self._begin_epoch(asked.epoch, now)
                return
            case Ask.REFUSED:
                self._notice(NoticeCode.EPOCH_REFUSED, asked=asked.epoch)
        if asked.doubted and len(self._doubters) < MAX_WAITING_SCHEDULERS:
            self._doubters[asked.scheduler] = (asked, now)
            self._look_everywhere_soon(now)
        else:
            self._effects += self.publisher.resync(asked, now)

    def _answer_doubters(self, looked_s: float, now: float) -> None:
        """Placement was looked at: tell those who asked before that what is there."""
        for address, (asked, asked_s) in list(self._doubters.items()):
            if asked_s <= looked_s:
                del self._doubters[address]
                self._effects += self.publisher.resync(asked, now)

    def _begin_epoch(self, asked: int, now: float) -> None:
        """Go on above ``asked``: kept before anybody is told, then told like after a start."""
        epoch = self._epochs.surpass(asked)
        self._effects.append(KeepEpoch(self.node, epoch))
        self._notice(NoticeCode.EPOCH_BEGUN, asked=asked, epoch=epoch)
        if self.publisher.open:
            self._open_at_s = now
        self._effects += self.publisher.begin_epoch(epoch)
        self._dirty = True

    def _claimed(self, claim: Claim, arrived_at_s: float, now: float) -> None:
        known = self._verdicts.recall(claim.claim_id)
        if known is not None:
            self._answer(claim, known.accepted, known.reason, self._reflected(known), now)
            return
        if claim.claim_id in self.ledger.pending:  # an earlier life accepted it
            self._answer(claim, True, None, self.publisher.next_sequence, now)
            return
        reason = self._unjudged(claim, arrived_at_s, now) or self.ledger.judge(claim, now)
        if reason is None:
            self._accepted(claim, now)
            self._answer(claim, True, None, self.publisher.next_sequence, now)
        else:
            self._notice_verdict(NoticeCode.REFUSED, claim, reason)
            self._doubt(reason, now)
            self._answer(claim, False, reason, 0, now)

    def _reflected(self, known: Verdict) -> int:
        """Where a verdict of an earlier epoch is said again, the opening snapshot reflects it."""
        return FIRST_SEQUENCE if known.accepted and known.epoch != self.epoch else known.reflected_sequence

    def _doubt(self, reason: Reason, now: float) -> None:
        """A "no" of the mirror may be a stale one: look, so that the next answer is not."""
        if reason.code == RefusalCode.NO_INVENTORY:
            self.tree.ask(now)
        elif reason.code == RefusalCode.NO_CAPACITY:
            self._look_soon(now)

    def _look_soon(self, now: float) -> None:
        self.allocations.ask(max(now, self._last_read_s + DOUBT_EVERY_S))

    def _look_everywhere_soon(self, now: float) -> None:
        self._look_soon(now)
        self.tree.ask(max(now, self._last_tree_read_s + DOUBT_EVERY_S))

    def _unjudged(self, claim: Claim, arrived_at_s: float, now: float) -> Reason | None:
        if claim.node != self.node:
            return Reason(RefusalCode.WRONG_NODE, {"node": self.node})
        if not self.ready:
            return Reason(RefusalCode.NOT_AUTHORITATIVE, {"why": self._missing()})
        if claim.seen_epoch not in (0, self.epoch):
            # Another life may have judged it, and seen its end: it must not begin again.  A later epoch
            # than ours is of a life whose memory is lost (epochs.py).
            seen: dict[str, Leaf] = {"seen_epoch": claim.seen_epoch, "epoch": self.epoch}
            return Reason(RefusalCode.EXPIRED, seen)
        waited_ms = int((now - arrived_at_s) * 1000)
        if claim.deadline_ms and waited_ms > claim.deadline_ms:
            return Reason(
                RefusalCode.EXPIRED, {"waited_ms": waited_ms, "deadline_ms": claim.deadline_ms}
            )
        return None

    def _accepted(self, claim: Claim, now: float) -> None:
        """Count it and keep it before anybody is told."""
        if self.ledger.accounts.allocations_of(claim.consumer):
            self.allocations.ask(now)  # a move to the same host: who holds what has just changed
        self._kept_changed = self._dirty = True
        self._keep()
        self._sync()
        self._notice_verdict(NoticeCode.ACCEPTED, claim, None)

    def _answer(
        self, claim: Claim, accepted: bool, reason: Reason | None, reflected: int, now: float
    ) -> None:
        verdict = Verdict(claim.claim_id, self.node, self.epoch, accepted, reason, reflected)
        self._verdicts.remember(claim.claim_id, verdict)
        self._effects += self.publisher.answer(claim, verdict, now)

    def _released(self, release: Release, now: float) -> None:
        ending = self.ledger.release(release.claim_id)
        if ending is not None:
            self._ended([ending], now)
            self._look_everywhere_soon(now)  # perhaps Placement refused it: it knows better
        if self.ledger.accounts.allocations_of(release.consumer):
            self._expect_gone(release.consumer, now)

    def _ended(self, endings: Iterable[Ending], now: float) -> None:
        for ending in endings:
            self._kept_changed = self._dirty = True
            self._notice(
                NoticeCode.ENDED,
                claim_id=ending.claim.claim_id,
                consumer=ending.claim.consumer,
                how=ending.how.value,
                why=ending.why,
            )
            if ending.how is How.REFUSED:
                self._expect_gone(ending.claim.consumer, now)

    # -- what is told -----------------------------------------------------------------------------

    def _sync(self) -> None:
        if not self._dirty:
            return
        self._dirty = False
        agent: dict[str, Leaf] = {names.AGENT_READY: self.ready}
        if self._mode:
            agent[names.AGENT_MODE] = self._mode
        ledger = self.ledger
        self._effects += self.publisher.sync(
            ledger.leaves | ledger.accounts.leaves() | agent, ledger.consumers(), ledger.claims()
        )

    def _open(self, now: float) -> None:
        if not self.publisher.open and (self.ready or now >= self._open_at_s):
            self._effects += self.publisher.begin(now)

    def _stop(self, now: float) -> None:
        self._effects += self.publisher.goodbye(now)
        self._stopped = True

    def _keep(self) -> None:
        if self._kept_changed:
            self._effects.append(Keep(self.node, self.ledger.kept()))
            self._kept_changed = False

    # -- what operators may read --------------------------------------------------------------------

    def _missing(self) -> str:
        if not self._reported:
            return self._away
        if not self.ledger.accounts.tree_known:
            return "the provider tree was not read from Placement yet"
        return "the allocations were not read from Placement yet"

    def _note_readiness(self) -> None:
        if self.ready != self._was_ready:
            self._was_ready = self.ready
            if self.ready:
                self._notice(NoticeCode.READY, mode=self._mode)
            else:
                self._notice(NoticeCode.NOT_READY, why=self._missing())

    def _notice_verdict(self, code: NoticeCode, claim: Claim, reason: Reason | None) -> None:
        detail: dict[str, Leaf] = {"claim_id": claim.claim_id, "consumer": claim.consumer}
        if reason is not None:
            detail |= {"reason": reason.code, "detail": dict(reason.detail)}
        self._notice(code, **detail)

    def _notice(self, code: NoticeCode, **detail: Leaf) -> None:
        self._effects.append(Notice(code, self.node, detail))
