# SPDX-License-Identifier: Apache-2.0
"""The agent of one node as a machine without I/O: ``step(event, now) -> effects``.

It owns the node's sequence, judges claims one after another (claim_ledger.py), keeps its mirror of the node's tree
in Placement fresh (placement_mirror.py, ``model/read_schedule.py``) and publishes the state to the schedulers
(publisher.py).

Readiness
=========
Claims are judged only while the agent is authoritative:

===============  =====================================================  =========================
state            event                                                  next
===============  =====================================================  =========================
AWAY             the tracker is connected                               LEARNING
LEARNING         a complete report after nova-compute's own audit, and  READY
                 one read of the provider tree and its allocations
READY            Placement does not answer                              READY (the state is kept)
READY            Placement has no provider of the node                  LEARNING
READY            the tracker connects again, or nova-compute has not    LEARNING
                 audited the node since it started anew
READY, LEARNING  the tracker is lost                                    AWAY
===============  =====================================================  =========================

Nothing is published before the node is READY for the first time or ``OPEN_AFTER_S`` have passed.  An agent that starts
beside a running nova-compute therefore publishes one full snapshot and not several.  Nor is a node's first snapshot
published before the channel is connected: schedulers cast claims as soon as they have it, and without a queue of its
own, the agent would not get them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cachetools import FIFOCache

from compute_agent import events as ev
from compute_agent.agent_settings import MAX_RECENT_VERDICTS, MAX_WAITING_SCHEDULERS, AgentSettings
from compute_agent.claim_ledger import ClaimEnd, ClaimLedger, EndedClaim, TopologyFit
from compute_agent.effects import (
    Broadcast,
    Effect,
    Keep,
    KeepEpoch,
    KeptClaim,
    Notice,
    NoticeCode,
    ReadAllocations,
    ReadTree,
)
from compute_agent.ends_of_builds import EndsOfBuilds
from compute_agent.epochs import Epochs, ResyncCase
from compute_agent.fair_memory import FairMemory
from compute_agent.pending_deallocations import PendingDeallocations
from compute_agent.publisher import Publisher
from compute_agent.tap_wire import BUILD_CLAIM
from shared_scheduler.model import leaves as names
from shared_scheduler.model.read_schedule import ReadSchedule
from shared_scheduler.protocol.causes import cause_of
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
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

#: A node that cannot become ready (nova-compute is down) is published, as not ready, after this.
OPEN_AFTER_S = 5.0
#: Refusals for lack of capacity, and releases, make the agent read its allocations at most once in this time.
RECHECK_EVERY_S = 1.0
#: The sequence of the snapshot that opens an epoch.
FIRST_SEQUENCE = 1
NOT_AUDITED = "nova-compute has not audited the node since it started"

TrackerEvent = (
    ev.TrackerConnected | ev.TrackerLost | ev.TrackerReported | ev.ClaimBegun | ev.ClaimRefused | ev.BuildEnded
)
PlacementEvent = ev.TreeChanged | ev.TreeRead | ev.AllocationsRead | ev.ReadFailed


class AgentCore:
    """The core of one node.

    ``host`` is the nova-compute service, ``address`` where casts to this agent go, ``epoch`` the first
    epoch of this run, ``restored`` the claims and ``groups`` the groups of consumers that an earlier run kept
    (``effects.Keep``).
    """

    def __init__(
        self,
        node: str,
        host: str,
        address: str,
        epoch: int,
        fit: TopologyFit,
        settings: AgentSettings,
        rng: random.Random,
        now: float,
        restored: Iterable[KeptClaim] = (),
        groups: Mapping[str, str] | None = None,
        release: str = "",
    ) -> None:
        self.node = node
        self.host = host
        self._epochs = Epochs(epoch, rng)
        self.ledger = ClaimLedger(node, fit, groups or {})
        self.publisher = Publisher(node, host, address, epoch, settings.heartbeat_interval_s, rng, release)
        self.tree = ReadSchedule(settings.read_times, rng)
        self.allocations = ReadSchedule(settings.read_times, rng)
        self._pending_deallocations = PendingDeallocations(settings)
        self._settings = settings
        self._mode, self._release = "", release
        self._reported = False
        self._why_not_reported = "nova-compute has not reported yet"
        #: claim id and scheduler -> the verdict
        self._verdicts: FairMemory[tuple[str, str], Verdict] = FairMemory(MAX_RECENT_VERDICTS)
        #: consumer -> the scheduler whose claim for it was accepted last
        self._placed_by: FIFOCache[str, str] = FIFOCache(MAX_RECENT_VERDICTS)
        self._ends_of_builds = EndsOfBuilds()
        self._open_at_s = now + OPEN_AFTER_S
        self._kept_changed = False
        self._kept_groups = dict(groups or {})
        self._was_ready = False
        self._stopped = False
        self._connected = False
        self._dirty = True
        self._last_read_s = self._last_tree_read_s = float("-inf")
        #: address -> the newest resync of its scheduler, and the times of the first and last one without an answer;
        #: Placement is read before the answer
        self._rechecks: dict[str, tuple[Resync, float, float]] = {}
        self._effects: list[Effect] = []
        #: the cause of the event or message that is being handled
        self._cause = ""
        for kept in restored:
            self.ledger.restore(kept, now)
            self._placed_by[kept.claim.consumer] = kept.claim.scheduler
        self.tree.ask(now, self._cause)

    def reconfigure(self, settings: AgentSettings, now: float) -> None:
        """Apply new durations, except the interval of heartbeats, on which schedulers rely.

        Shorter durations count from ``now``.  Call ``step`` with a ``Tick`` next.
        """
        self._settings = self._pending_deallocations.settings = settings
        for plan in (self.tree, self.allocations):
            plan.reconfigure(settings.read_times, now)

    # -- the machine ------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch of published messages.  While the agent runs, only the rules of epochs.py change it."""
        return self._epochs.epoch

    @property
    def ready(self) -> bool:
        mirror = self.ledger.mirror
        return self._reported and mirror.tree_known and mirror.allocations_known

    def step(self, event: ev.Event, now: float) -> list[Effect]:
        """Take one event.  The effects must be carried out in order."""
        self._effects, self._cause = [], event.cause
        if not self._stopped:
            self._handle(event, now)
            self._begin_due_reads(now)
            self._note_readiness()
            self._keep_claims()
            self._sync()
            self._open_when_due(now)
            self._effects += (self._with_ends(effect, now) for effect in self.publisher.due(now))
        return self._effects

    def next_deadline_s(self, now: float) -> float | None:
        """When a ``Tick`` is due at the latest; None after ``Stopping``."""
        if self._stopped:
            return None
        wanted = [self.publisher.next_deadline_s(now), self.tree.due_s()]
        if self.ledger.mirror.tree_known:  # otherwise there are no providers whose allocations could be read
            wanted += [self.allocations.due_s(), self._next_check_s()]
        if self._connected and not self.publisher.open:
            wanted.append(self._open_at_s)
        return min((at for at in wanted if at is not None), default=None)

    def _handle(self, event: ev.Event, now: float) -> None:
        match event:
            case ev.TreeRead() | ev.AllocationsRead() | ev.ReadFailed() | ev.TreeChanged():
                self._handle_placement_event(event, now)
            case ev.MessagesArrived(messages=messages, arrived_at_s=arrived_at_s):
                for message in messages:
                    self._cause = cause_of(message)
                    self._handle_message(message, arrived_at_s, now)
            case ev.CastReturned(message=message):
                if isinstance(message, BuildResult):
                    self._effects.append(Broadcast(message))
            case ev.ChannelChanged(connected=connected):
                self._connected = connected
                if connected:
                    self._effects += self.publisher.on_connected(now)
            case ev.Stopping():
                self._stop(now)
            case ev.Tick():
                pass
            case _:
                self._handle_tracker_event(event, now)

    # -- nova-compute -----------------------------------------------------------------------------

    def _handle_tracker_event(self, event: TrackerEvent, now: float) -> None:
        self._dirty = True
        match event:
            case ev.TrackerConnected(mode=mode):
                self._mode, self._reported, self._why_not_reported = mode, False, NOT_AUDITED
                self.ledger.tracker_lost()
                self.tree.ask(now, self._cause)  # the writes before the connection were not reported
            case ev.TrackerLost(why=why):
                self._reported, self._why_not_reported = False, why
                self.ledger.tracker_lost()
            case ev.TrackerReported():
                self._handle_report(event, now)
            case ev.ClaimBegun(consumer=consumer):
                if not self.ledger.awaits(consumer):
                    self.allocations.ask(now, self._cause)
            case ev.ClaimRefused(consumer=consumer, kind=kind, text=text):
                self._note_endings(self.ledger.refused_by_compute(consumer, f"{kind}: {text}"), now)
                if kind == BUILD_CLAIM and consumer in self._placed_by:
                    self._report_build(consumer, False, text, now)
            case ev.BuildEnded(consumer=consumer, succeeded=succeeded, text=text):
                self._report_build(consumer, succeeded, text, now)

    def _report_build(self, consumer: str, succeeded: bool, text: str, now: float) -> None:
        scheduler, number = self._placed_by.get(consumer, ""), self._ends_of_builds.next_number()
        result = BuildResult(self.node, self.epoch, consumer, succeeded, text, scheduler, number)
        self._effects.append(self._ends_of_builds.send(result, now))

    def _handle_report(self, report: ev.TrackerReported, now: float) -> None:
        before, capacity = dict(self.ledger.members), self.ledger.capacity()
        had_reported = self._reported
        self._reported = report.ready and (report.complete or self._reported)
        self._note_endings(self.ledger.reported(report, now), now)
        if any(capacity) and capacity != self.ledger.capacity():
            self.tree.ask(now, self._cause)  # without a tap, no event follows; Placement was written before
        for consumer in report.members.keys() | (before.keys() if report.complete else set()):
            self._membership_changed(consumer, before.get(consumer), now)
        if self._reported and not had_reported:
            self._expect_unexplained_gone(self.ledger.mirror.known, now)
        for claim_id in self.ledger.in_doubt():
            self._notice(NoticeCode.TOPOLOGY_IN_DOUBT, claim_id=claim_id)

    def _membership_changed(self, consumer: str, before: ev.Member | None, now: float) -> None:
        after = self.ledger.members.get(consumer)
        if after is not None and self._is_unread(consumer, before, after):
            self.allocations.ask(now, self._cause)
        if before is None:
            return
        if before.instance and (after is None or not after.instance):
            self._expect_gone(consumer, now)
            if not self.ledger.holds_something(consumer):  # a migration that the tracker does not know held it
                self._expect_unexplained_gone(self.ledger.mirror.known, now)
        if before.migration and (after is None or after.migration != before.migration):
            self._expect_gone(before.migration, now)
            self._expect_gone(consumer, now)

    def _is_unread(self, consumer: str, before: ev.Member | None, after: ev.Member) -> bool:
        """Whether it was placed without a claim, or has begun to move: then its migration holds what it had here."""
        moves = before is not None and before.instance and after.migration not in ("", before.migration)
        holds = self.ledger.holds_something
        return not holds(consumer) or (moves and not holds(after.migration))

    def _expect_unexplained_gone(self, consumers: Iterable[str], now: float) -> None:
        """Watch consumers whose end is not reported: migrations, and allocations written without a claim."""
        for consumer in sorted(consumers):
            if not self.ledger.explains(consumer):
                self._expect_gone(consumer, now)

    def _expect_gone(self, consumer: str, now: float) -> None:
        at_s = self._pending_deallocations.add(consumer, now)
        if at_s is not None:
            self.allocations.ask(at_s, self._cause)

    # -- Placement --------------------------------------------------------------------------------

    def _handle_placement_event(self, event: PlacementEvent, now: float) -> None:
        self._dirty = True
        match event:
            case ev.TreeChanged():
                self.tree.ask_at_once(now, self._cause)
            case ev.TreeRead():
                self._handle_tree(event, now)
            case ev.AllocationsRead():
                self._handle_allocations(event, now)
            case ev.ReadFailed():
                self._handle_failed_read(event, now)

    def _begin_due_reads(self, now: float) -> None:
        check_s = self._next_check_s()
        if check_s is not None and check_s <= now:
            self.allocations.ask(now, self._cause)
        if self.tree.begin(now):
            self._effects.append(ReadTree(self.node, cause=self.tree.cause))
        mirror = self.ledger.mirror
        if mirror.tree_known and self.allocations.begin(now):
            providers = tuple(sorted(mirror.providers))
            self._effects.append(ReadAllocations(self.node, providers, cause=self.allocations.cause))

    def _next_check_s(self) -> float | None:
        """When pending claims are compared with Placement; None while there are none, or while it is read.  It is due
        until the read has begun, because the service asks again before it ticks.  It is not in the plan of the reads:
        nova-compute counts most servers before, and their claims need no read then."""
        oldest_s = min((held.accepted_at_s for held in self.ledger.pending.values()), default=None)
        if oldest_s is None or self.allocations.reading:
            return None
        return self.allocations.earliest_s(self._check_at_s(oldest_s))

    def _check_at_s(self, oldest_s: float) -> float:
        """The next multiple of ``claim_check_after_s`` in the life of the oldest pending claim."""
        every_s = self._settings.claim_check_after_s
        passed = int((max(self._last_read_s, oldest_s) - oldest_s) / every_s)
        return oldest_s + (passed + 1) * every_s

    def _handle_tree(self, event: ev.TreeRead, now: float) -> None:
        self._last_tree_read_s = event.started_at_s
        changed = self.ledger.mirror.set_tree(event.providers)
        if not event.providers:
            self._notice(NoticeCode.TREE_MISSING)
            self.tree.failed(now)
            self._answer_rechecks(now, now)
            return
        self.tree.finished(now)
        if changed:
            self.allocations.ask(now, self._cause)
        self._answer_rechecks(min(self._last_read_s, self._last_tree_read_s), now)

    def _handle_allocations(self, event: ev.AllocationsRead, now: float) -> None:
        before = self.ledger.mirror.known.keys()
        self._last_read_s = event.started_at_s
        self._note_endings(
            self.ledger.allocations_read(
                event.consumers, event.started_at_s, self._settings.claim_check_after_s, event.generations
            ),
            now,
        )
        self.allocations.finished(now)
        again_s = self._pending_deallocations.note_read(self.ledger.mirror.known, now)
        if again_s is not None:
            self.allocations.ask(again_s, self._cause)
        if self._reported:
            self._expect_unexplained_gone(event.consumers.keys() - before, now)
        self._answer_rechecks(min(self._last_read_s, self._last_tree_read_s), now)

    def _handle_failed_read(self, event: ev.ReadFailed, now: float) -> None:
        self._notice(NoticeCode.READ_FAILED, what=event.what, why=event.why)
        (self.tree if event.what == "tree" else self.allocations).failed(now)
        self._answer_rechecks(now, now)

    # -- schedulers -------------------------------------------------------------------------------

    def _handle_message(self, message: Message, arrived_at_s: float, now: float) -> None:
        match message:
            case Claim():
                self._handle_claim(message, arrived_at_s, now)
            case Release():
                self._handle_release(message, now)
            case Resync():
                self._handle_resync(message, now)
            case Hello(role=Role.SCHEDULER):
                self.publisher.plan_answer(message, now)
            case _:
                pass  # for schedulers

    def _handle_resync(self, asked: Resync, now: float) -> None:
        match self._epochs.judge(asked.epoch, now):
            case ResyncCase.SURPASS:
                self._begin_epoch(asked.epoch, now)
                return
            case ResyncCase.REFUSED:
                self._notice(NoticeCode.EPOCH_REFUSED, asked=asked.epoch)
        if asked.recheck and len(self._rechecks) < MAX_WAITING_SCHEDULERS:
            first_s = self._rechecks.get(asked.scheduler, (asked, now, now))[1]
            self._rechecks[asked.scheduler] = (asked, first_s, now)
            self._read_placement_soon(now)
        else:
            self._effects += self.publisher.resync(asked, now)

    def _answer_rechecks(self, read_at_s: float, now: float) -> None:
        """Answer the rechecks that were asked for before ``read_at_s``, when Placement was read."""
        for address, (asked, first_s, last_s) in list(self._rechecks.items()):
            if last_s <= read_at_s:
                del self._rechecks[address]
            elif first_s <= read_at_s:
                self._rechecks[address] = (asked, last_s, last_s)  # the next read is for those that came later
            if first_s <= read_at_s:
                self._effects += self.publisher.resync(asked, now)

    def _begin_epoch(self, asked: int, now: float) -> None:
        """Start an epoch above ``asked``.  It is kept before the node is published in it, as after a start."""
        epoch = self._epochs.surpass(asked)
        self._effects.append(KeepEpoch(self.node, epoch, cause=self._cause))
        self._notice(NoticeCode.EPOCH_BEGUN, asked=asked, epoch=epoch)
        if self.publisher.open:
            self._open_at_s = now
        self._effects += self.publisher.begin_epoch(epoch)
        self._dirty = True

    def _handle_claim(self, claim: Claim, arrived_at_s: float, now: float) -> None:
        known = self._verdicts.get((claim.claim_id, claim.scheduler))
        if known is not None:
            self._answer(claim, known.accepted, known.reason, self._reflected(known), now)
            return
        if self.ledger.holds_claim(claim):  # an earlier run accepted it
            self._answer(claim, True, None, self.publisher.next_sequence, now)
            return
        reason = self._reason_not_to_judge(claim, arrived_at_s, now) or self.ledger.judge(claim, now)
        if reason is None:
            self._accept(claim, now)
            self._answer(claim, True, None, self.publisher.next_sequence, now)
        else:
            self._notice_verdict(NoticeCode.REFUSED, claim, reason)
            self._recheck_refusal(reason, now)
            self._answer(claim, False, reason, 0, now)

    def _reflected(self, known: Verdict) -> int:
        """The sequence that reflects a repeated verdict.  The first snapshot reflects those of an earlier epoch."""
        return FIRST_SEQUENCE if known.accepted and known.epoch != self.epoch else known.reflected_sequence

    def _recheck_refusal(self, reason: Reason, now: float) -> None:
        """Read Placement after a refusal that may be due to a stale mirror, so that the next verdict is right."""
        if reason.code == RefusalCode.NO_INVENTORY:
            self.tree.ask(now, self._cause)
        elif reason.code == RefusalCode.NO_CAPACITY:
            self._read_allocations_soon(now)

    def _read_allocations_soon(self, now: float) -> None:
        self.allocations.ask(max(now, self._last_read_s + RECHECK_EVERY_S), self._cause)

    def _read_placement_soon(self, now: float) -> None:
        self._read_allocations_soon(now)
        self.tree.ask(max(now, self._last_tree_read_s + RECHECK_EVERY_S), self._cause)

    def _reason_not_to_judge(self, claim: Claim, arrived_at_s: float, now: float) -> Reason | None:
        if claim.node != self.node:
            return Reason(RefusalCode.WRONG_NODE, {"node": self.node})
        if not self.ready:
            return Reason(RefusalCode.NOT_AUTHORITATIVE, {"why": self.missing()})
        if claim.seen_epoch not in (0, self.epoch):
            # An earlier run may have judged it and seen its end, so it must not begin again.  An epoch above ours
            # belongs to a run whose state directory is lost (epochs.py).
            seen: dict[str, Leaf] = {"seen_epoch": claim.seen_epoch, "epoch": self.epoch}
            return Reason(RefusalCode.EXPIRED, seen)
        waited_ms = int((now - arrived_at_s) * 1000)
        if claim.deadline_ms and waited_ms > claim.deadline_ms:
            return Reason(RefusalCode.EXPIRED, {"waited_ms": waited_ms, "deadline_ms": claim.deadline_ms})
        return None

    def _accept(self, claim: Claim, now: float) -> None:
        """Count and keep the claim before the verdict is sent."""
        if self.ledger.mirror.allocations_of(claim.consumer):
            self.allocations.ask(now, self._cause)  # a move to the same host: its allocations have just changed
        self._placed_by[claim.consumer] = claim.scheduler
        self._kept_changed = self._dirty = True
        self._keep_claims()
        self._sync()
        self._notice_verdict(NoticeCode.ACCEPTED, claim, None)

    def _answer(self, claim: Claim, accepted: bool, reason: Reason | None, reflected: int, now: float) -> None:
        verdict = Verdict(claim.claim_id, self.node, self.epoch, accepted, reason, reflected)
        self._verdicts.set(claim.scheduler, (claim.claim_id, claim.scheduler), verdict)
        self._effects += self.publisher.answer(claim, verdict, now)

    def _handle_release(self, release: Release, now: float) -> None:
        ending = self.ledger.release(release.claim_id, release.consumer, release.scheduler)
        if ending is not None:
            self._note_endings([ending], now)
        if ending is not None and not release.never_written:
            self._read_placement_soon(now)  # perhaps Placement refused it, because the mirror is stale
        if not self.ledger.mirror.allocations_of(release.consumer):
            return
        if self._pending_deallocations.watches(release.consumer):  # a release must not restart the reads
            self._read_placement_soon(now)
        else:
            self._expect_gone(release.consumer, now)

    def _note_endings(self, endings: Iterable[EndedClaim], now: float) -> None:
        for ending in endings:
            self._kept_changed = self._dirty = True
            self._notice(
                NoticeCode.ENDED,
                claim_id=ending.claim.claim_id,
                consumer=ending.claim.consumer,
                how=ending.how.value,
                why=ending.why,
            )
            if ending.how is ClaimEnd.REFUSED:
                self._expect_gone(ending.claim.consumer, now)

    # -- publishing ------------------------------------------------------------------------------

    def _sync(self) -> None:
        if not self._dirty:
            return
        self._dirty = False
        agent: dict[str, Leaf] = {names.AGENT_READY: self.ready, names.AGENT_GROUPS: True}
        if self._mode:
            agent[names.AGENT_MODE] = self._mode
        if self._release:
            agent[names.AGENT_RELEASE] = self._release
        ledger = self.ledger
        self._effects += self.publisher.sync(
            ledger.leaves | ledger.mirror.leaves() | agent, ledger.consumers(), ledger.claims(), self._cause
        )

    def _with_ends(self, effect: Effect, now: float) -> Effect:
        """A heartbeat to all carries the ends of builds that are due once more, if there is a broker to carry it."""
        if not (self._connected and isinstance(effect, Broadcast) and isinstance(effect.message, Heartbeat)):
            return effect
        ends = self._ends_of_builds.take_due(now)
        return Broadcast(replace(effect.message, ends=ends)) if ends else effect

    def _open_when_due(self, now: float) -> None:
        is_time = self.ready or now >= self._open_at_s
        if self._connected and is_time and not self.publisher.open:
            self._effects += self.publisher.begin(now)

    def _stop(self, now: float) -> None:
        self._effects += self.publisher.leave(now)
        self._stopped = True

    def _keep_claims(self) -> None:
        groups = self.ledger.groups.known
        if self._kept_changed or groups != self._kept_groups:
            self._kept_changed, self._kept_groups = False, dict(groups)
            self._effects.append(Keep(self.node, self.ledger.kept(), self._kept_groups, cause=self._cause))

    # -- notices ------------------------------------------------------------------------------------

    def missing(self) -> str:
        """What is missing until claims are judged."""
        if not self._reported:
            return self._why_not_reported
        if not self.ledger.mirror.tree_known:
            return "the provider tree was not read from Placement yet"
        return "the allocations were not read from Placement yet"

    def _note_readiness(self) -> None:
        if self.ready != self._was_ready:
            self._was_ready = self.ready
            if self.ready:
                self._notice(NoticeCode.READY, mode=self._mode)
            else:
                self._notice(NoticeCode.NOT_READY, why=self.missing())

    def _notice_verdict(self, code: NoticeCode, claim: Claim, reason: Reason | None) -> None:
        detail: dict[str, Leaf] = {"claim_id": claim.claim_id, "consumer": claim.consumer}
        if reason is not None:
            detail |= {"reason": reason.code, "detail": dict(reason.detail)}
        self._notice(code, **detail)

    def _notice(self, code: NoticeCode, **detail: Leaf) -> None:
        self._effects.append(Notice(code, self.node, detail, cause=self._cause))
