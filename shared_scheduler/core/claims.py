# SPDX-License-Identifier: Apache-2.0
"""The life of a claim, from *assume* to its one ending.

A claim is one instance's try for one node.  It is assumed in the table first, so that the next
decision sees it; then the node's agent judges it; then Placement is told.  Where no agent speaks for
the node, Placement is the only judge and the write says so (``serialise``).

A request may lose interest in a claim at any moment (it timed out, or another instance of it found
no host).  The claim then unwinds by itself, whatever was under way, and no faster than is safe: a
write in flight is awaited, and what was written is taken back before the node hears of it.

=========  ==========================  ===========  ===========================================
state      event                       next         what is done
=========  ==========================  ===========  ===========================================
(none)     begin, an agent speaks      CLAIMING     assume; cast Claim
(none)     begin, provisional row      WRITING      assume; write, serialised
CLAIMING   accepted                    WRITING      write
CLAIMING   refused                     REFUSED      forget
CLAIMING   no verdict in time          TIMED_OUT    forget; cast Release
CLAIMING   unwanted                    RELEASED     forget; cast Release
WRITING    written, wanted             WRITTEN
WRITING    written, unwanted           DELETING     delete
WRITING    not written                 NOT_WRITTEN  forget; cast Release
WRITING    nobody can tell             DELETING     delete (it may stand there)
WRITING    no answer, long after its   DELETING     the same; our writer has lost it
           deadline
WRITTEN    kept (request answered)     CONFIRMED    confirm; look later whether the node shows it
WRITTEN    unwanted                    DELETING     delete
DELETING   gone                        DELETED      forget; cast Release
DELETING   gone, but the lost write    DELETING     delete: the one that was under way may have come
           was done meanwhile                       before that write
CONFIRMED  nobody heard the answer     DELETING     delete
DELETED    the lost write was done     DELETING     assume; delete (its answer came after all)
DELETING   others have added to it     LEFT_ALONE   forget; no Release, for it stands there
DELETING   not gone                    DELETING     delete again after a pause, for ever; after some
                                                    attempts the request is told ABANDONED
=========  ==========================  ===========  ===========================================

States on the right that do not appear on the left are endings; every claim has exactly one.
CONFIRMED is one, too, unless its caller had gone: the last few are remembered for that.  So are those
DELETED ones whose write was given up: it may have waited somewhere while the delete overtook it.

Where no agent speaks nobody is told; but if one speaks by the end, its Release makes it look.  It may
have seen in Placement what was written without it.

A Release may be lost, and a late verdict may then accept what nobody wants.  Claims that ended with
a Release are remembered for a while, and such a verdict is answered with the Release again.  What
even that misses is found by the agent, which asks Placement about claims that nobody took over.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from shared_scheduler.core.effects import (
    ConsumerPolicy,
    DeleteAllocation,
    Send,
    WriteAllocation,
)
from shared_scheduler.core.events import (
    AllocationDeleted,
    AllocationWritten,
    WriteCode,
)
from shared_scheduler.core.settings import Identity, Settings
from shared_scheduler.core.turn import Timers, Turn
from shared_scheduler.core.watch import Watch
from shared_scheduler.protocol.addresses import agent_address
from shared_scheduler.protocol.messages import (
    Allocations,
    Claim,
    Reason,
    Release,
    Usage,
    Verdict,
)
from shared_scheduler.state.row import Freshness, Version
from shared_scheduler.state.table import HostTable
from shared_scheduler.state.topology import TopologyTake

#: the version of a row that no agent has spoken for
DATABASES = Version(0, 0)
#: pauses between attempts to delete stop growing here
DELETE_PAUSE_MAX_S = 30.0
#: a write that is not answered this long after its deadline never will be
WRITE_GRACE_S = 30.0


class ClaimState(StrEnum):
    """Where a claim is in its life.  The second half are endings."""

    CLAIMING = "claiming"
    WRITING = "writing"
    WRITTEN = "written"
    DELETING = "deleting"

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    RELEASED = "released"
    NOT_WRITTEN = "not_written"
    DELETED = "deleted"
    LEFT_ALONE = "left_alone"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Intent:
    """What a claim wants: one consumer on one node.  ``by_agent`` tells who judges it first.

    ``epoch`` is the life of that agent: it may have begun after the host was chosen.
    """

    node: str
    cell: str
    host: str
    consumer: str
    allocations: Allocations
    mappings: Mapping[str, tuple[str, ...]]
    usage: Usage
    topology: str
    by_agent: bool
    project_id: str
    user_id: str
    policy: ConsumerPolicy
    request_id: str
    deadline_s: float
    #: what it takes of NUMA cells and PCI pools, as far as the judge knows
    take: TopologyTake | None = None
    epoch: int = 0


@dataclass(slots=True)
class OpenClaim:
    """A claim that has not ended.  ``owner`` is the request and the instance that it belongs to."""

    claim_id: str
    owner: tuple[int, int]
    intent: Intent
    state: ClaimState
    began_s: float
    #: the version of the row that it was decided on
    seen: Version = DATABASES
    judged_s: float | None = None  # when the verdict came, and in which life of the agent
    judged_epoch: int = 0
    writing_s: float | None = None  # when the write began, and when its answer came
    answered_s: float | None = None
    wanted: bool = True
    accepted: bool = False
    reason: Reason | None = None
    write_code: WriteCode | None = None
    write_detail: str = ""
    written: Allocations = field(default_factory=dict)
    before: Allocations = field(default_factory=dict)  # what a merge found
    deletes: int = 0
    #: its lost write was done while a delete was under way, which may have come too early
    outrun: bool = False
    abandoned: bool = False


class ClaimListener(Protocol):
    """Who hears how claims go (``requests.Requests``)."""

    def claim_written(self, turn: Turn, claim: OpenClaim) -> None:
        """It stands in Placement; keep it or drop it later."""

    def claim_ended(self, turn: Turn, claim: OpenClaim, ending: ClaimState) -> None:
        """It is over, everything that it held is given back (not told of CONFIRMED)."""


class Claims:
    """All claims of this scheduler that have not ended, and what is remembered of some that have."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        table: HostTable,
        timers: Timers,
        watch: Watch,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._table = table
        self._timers = timers
        self._watch = watch
        self._open: dict[str, OpenClaim] = {}
        self._in_flight: dict[str, int] = {}  # node -> claims without a verdict
        #: a claim of a node that had as many in flight as it may has landed; whoever looks puts it back
        self.made_room = False
        self._released: OrderedDict[str, Intent] = OrderedDict()
        self._kept: OrderedDict[str, OpenClaim] = OrderedDict()
        self._given_up: OrderedDict[str, OpenClaim] = OrderedDict()
        self.begun = 0
        self.endings: Counter[str] = Counter()
        self._prefix = identity.digest()
        self.listener: ClaimListener | None = None

    def __len__(self) -> int:
        return len(self._open)

    def open(self) -> Iterator[OpenClaim]:
        """The claims that have not ended, oldest first."""
        return iter(self._open.values())

    def is_open(self, claim_id: str) -> bool:
        """Whether it has not ended."""
        return claim_id in self._open

    def has_room_on(self, node: str) -> bool:
        """Whether one more claim may be cast to ``node``."""
        return self._in_flight.get(node, 0) < self._settings.claims_per_node_max

    # -- begin

    def begin(self, turn: Turn, owner: tuple[int, int], intent: Intent) -> OpenClaim:
        """Assume it, and ask the node's agent, or else Placement."""
        self.begun += 1
        claim_id = f"{self._prefix}-{self.begun}"
        state = ClaimState.CLAIMING if intent.by_agent else ClaimState.WRITING
        claim = OpenClaim(claim_id, owner, intent, state, turn.now)
        claim.seen = max(self._table.version(intent.node), Version(intent.epoch, 0))
        self._open[claim_id] = claim
        self._assume(claim)
        if intent.by_agent:
            self._in_flight[intent.node] = self._in_flight.get(intent.node, 0) + 1
            at_s = turn.now + self._settings.verdict_timeout_s
            self._timers.set(("verdict", claim_id), at_s)
            self._cast(turn, claim)
        else:
            self._write(turn, claim)
        return claim

    def _assume(self, claim: OpenClaim) -> None:
        intent = claim.intent
        self._table.assume(
            intent.node,
            claim.claim_id,
            intent.consumer,
            intent.allocations,
            intent.usage,
            intent.take,
        )

    def _cast(self, turn: Turn, claim: OpenClaim) -> None:
        intent = claim.intent
        timeout_s = self._settings.verdict_timeout_s
        message = Claim(
            claim_id=claim.claim_id,
            node=intent.node,
            scheduler=self._identity.address(intent.cell),
            consumer=intent.consumer,
            allocations=intent.allocations,
            usage=intent.usage,
            topology=intent.topology,
            seen_epoch=claim.seen.epoch,
            seen_sequence=claim.seen.sequence,
            deadline_ms=int(timeout_s * 1000),
        )
        turn.emit(Send(intent.cell, agent_address(intent.host), message))
        repeat_s = self._settings.claim_repeat_s
        if 0 < repeat_s < claim.began_s + timeout_s - turn.now:
            self._timers.set(("repeat", claim.claim_id), turn.now + repeat_s)

    def on_repeat_timer(self, turn: Turn, claim_id: str) -> None:
        """No verdict for a while: claim or verdict may be lost."""
        self._cast(turn, self._open[claim_id])

    def _write(self, turn: Turn, claim: OpenClaim) -> None:
        intent = claim.intent
        claim.state, claim.writing_s = ClaimState.WRITING, turn.now
        deadline_s = min(intent.deadline_s, turn.now + self._settings.write_timeout_s)
        self._timers.set(("write", claim.claim_id), deadline_s + WRITE_GRACE_S)
        turn.emit(
            WriteAllocation(
                claim_id=claim.claim_id,
                consumer=intent.consumer,
                allocations=intent.allocations,
                mappings=intent.mappings,
                project_id=intent.project_id,
                user_id=intent.user_id,
                policy=intent.policy,
                serialise=not (self._is_judged(intent) or self._has_plenty(intent)),
                request_id=intent.request_id,
                deadline_s=deadline_s,
            )
        )

    def _is_judged(self, intent: Intent) -> bool:
        """An agent judges its own tree; of shared storage only Placement can tell."""
        return intent.by_agent and self._table.owns(intent.node, intent.allocations)

    def _has_plenty(self, intent: Intent) -> bool:
        return self._table.has_plenty(intent.node, intent.allocations)

    # -- the agent's word

    def on_verdict(self, turn: Turn, verdict: Verdict) -> None:
        """The node answered.  Late or repeated verdicts change nothing."""
        claim = self._open.get(verdict.claim_id)
        if claim is None or claim.state != ClaimState.CLAIMING:
            self._release_again(turn, verdict)
            return
        self._landed(claim)
        claim.reason, claim.judged_s, claim.judged_epoch = verdict.reason, turn.now, verdict.epoch
        if verdict.accepted:
            claim.accepted = True
            self._table.accepted(claim.claim_id, verdict.epoch, verdict.reflected_sequence)
            self._write(turn, claim)
        else:
            self._forget(turn, claim, ClaimState.REFUSED)

    def _release_again(self, turn: Turn, verdict: Verdict) -> None:
        intent = self._released.get(verdict.claim_id)
        if intent is not None and verdict.accepted:
            self._cast_release(turn, verdict.claim_id, intent)

    def on_verdict_timer(self, turn: Turn, claim_id: str) -> None:
        """No verdict came in time."""
        claim = self._open[claim_id]
        self._landed(claim)
        self._release(turn, claim)
        self._forget(turn, claim, ClaimState.TIMED_OUT)

    def _landed(self, claim: OpenClaim) -> None:
        self._timers.cancel(("verdict", claim.claim_id))
        self._timers.cancel(("repeat", claim.claim_id))
        node = claim.intent.node
        self.made_room |= not self.has_room_on(node)
        self._in_flight[node] -= 1
        if not self._in_flight[node]:
            del self._in_flight[node]

    # -- Placement's word

    def on_written(self, turn: Turn, event: AllocationWritten) -> None:
        """How the write ended."""
        claim = self._open.get(event.claim_id)
        if claim is None or claim.state != ClaimState.WRITING:
            self._written_after_all(turn, event)
            return
        self._timers.cancel(("write", claim.claim_id))
        claim.write_code, claim.write_detail = event.code, event.detail
        claim.answered_s = turn.now
        self._note_what_stands(claim, event)
        if event.code == WriteCode.WRITTEN:
            self._now_stands(turn, claim)
        elif event.code == WriteCode.UNREACHABLE:
            self._delete(turn, claim)
        else:
            self._release(turn, claim)
            self._forget(turn, claim, ClaimState.NOT_WRITTEN)

    @staticmethod
    def _note_what_stands(claim: OpenClaim, event: AllocationWritten) -> None:
        claim.written, claim.before = event.written or claim.intent.allocations, event.before

    def on_write_timer(self, turn: Turn, claim_id: str) -> None:
        """The write was lost on its way; what stands there must be taken back."""
        detail = "the write was never answered"
        claim = self._open.get(claim_id)
        if claim is None:
            return
        self._given_up[claim_id] = claim
        if len(self._given_up) > self._settings.released_max:
            self._given_up.popitem(last=False)
        self.on_written(turn, AllocationWritten(claim_id, WriteCode.UNREACHABLE, detail))

    def _written_after_all(self, turn: Turn, event: AllocationWritten) -> None:
        """A write that was given up is answered: a delete may have come too early, so once more."""
        claim = self._given_up.pop(event.claim_id, None)
        if event.code != WriteCode.WRITTEN or claim is None:
            return
        self._note_what_stands(claim, event)
        if claim.state == ClaimState.DELETED:
            self.endings[ClaimState.DELETED.value] -= 1
            claim.abandoned = True  # its request has heard of its end
            self._open[claim.claim_id] = claim
            self._assume(claim)
            self._delete(turn, claim)
        elif claim.state == ClaimState.DELETING:
            claim.outrun = True
            if self._timers.cancel(("delete", claim.claim_id)):  # none is under way
                self._delete(turn, claim)

    def _now_stands(self, turn: Turn, claim: OpenClaim) -> None:
        if not claim.wanted:
            self._delete(turn, claim)
            return
        claim.state = ClaimState.WRITTEN
        self._listen().claim_written(turn, claim)

    def keep(self, turn: Turn, claim: OpenClaim) -> None:
        """The request is answered: the claim stays, until the node itself shows it."""
        assert claim.state == ClaimState.WRITTEN, claim.state
        del self._open[claim.claim_id]
        claim.state = ClaimState.CONFIRMED
        self.endings[claim.state.value] += 1
        self._table.confirm(claim.claim_id)
        self._watch.begin(turn, claim.claim_id, claim.intent.consumer, claim.intent.allocations)
        self._kept[claim.claim_id] = claim
        if len(self._kept) > self._settings.released_max:
            self._kept.popitem(last=False)

    def unheard(self, turn: Turn, claim_ids: Iterable[str]) -> None:
        """The answer with these claims found nobody: take back what they wrote."""
        for claim_id in claim_ids:
            claim = self._kept.pop(claim_id, None)
            if claim is not None:
                self.endings[ClaimState.CONFIRMED.value] -= 1
                claim.wanted = False
                self._open[claim_id] = claim
                self._delete(turn, claim)

    # -- unwinding

    def unwant(self, turn: Turn, claim: OpenClaim) -> None:
        """The request has no use for it any more; ``claim_ended`` follows, now or later."""
        claim.wanted = False
        if claim.state == ClaimState.CLAIMING:
            self._landed(claim)
            self._release(turn, claim)
            self._forget(turn, claim, ClaimState.RELEASED)
        elif claim.state == ClaimState.WRITTEN:
            self._delete(turn, claim)

    def _delete(self, turn: Turn, claim: OpenClaim) -> None:
        claim.state, claim.outrun = ClaimState.DELETING, False
        claim.deletes += 1
        self._timers.cancel(("delete", claim.claim_id))
        request_id = claim.intent.request_id
        consumer = claim.intent.consumer
        turn.emit(DeleteAllocation(claim.claim_id, consumer, claim.written, claim.before, request_id))

    def on_deleted(self, turn: Turn, event: AllocationDeleted) -> None:
        """How the delete ended."""
        claim = self._open.get(event.claim_id)
        if claim is None or claim.state != ClaimState.DELETING:
            return
        if event.gone and claim.outrun:
            self._delete(turn, claim)
            return
        if event.gone:
            self._release(turn, claim)
            self._forget(turn, claim, ClaimState.DELETED)
            return
        claim.write_detail = event.detail
        if event.left_alone:
            self._forget(turn, claim, ClaimState.LEFT_ALONE)
            return
        pause_s = self._settings.delete_pause_s * 2.0 ** min(claim.deletes - 1, 16)
        at_s = turn.now + min(pause_s, DELETE_PAUSE_MAX_S)
        self._timers.set(("delete", claim.claim_id), at_s)
        if claim.deletes >= self._settings.delete_attempts_max and not claim.abandoned:
            claim.abandoned = True
            self._listen().claim_ended(turn, claim, ClaimState.ABANDONED)

    def on_delete_timer(self, turn: Turn, claim_id: str) -> None:
        """Try the delete again."""
        self._delete(turn, self._open[claim_id])

    # -- endings

    def _release(self, turn: Turn, claim: OpenClaim) -> None:
        if not (claim.intent.by_agent or self._agent_speaks_for(claim.intent.node)):
            return
        self._released[claim.claim_id] = claim.intent
        if len(self._released) > self._settings.released_max:
            self._released.popitem(last=False)
        self._cast_release(turn, claim.claim_id, claim.intent)

    def _agent_speaks_for(self, node: str) -> bool:
        """One may have come since we wrote without it, and count what it saw in Placement."""
        return node in self._table and self._table.freshness(node) is not Freshness.PROVISIONAL

    def _cast_release(self, turn: Turn, claim_id: str, intent: Intent) -> None:
        sender = self._identity.address(intent.cell)
        message = Release(claim_id, intent.node, sender, intent.consumer)
        turn.emit(Send(intent.cell, agent_address(intent.host), message))

    def _forget(self, turn: Turn, claim: OpenClaim, ending: ClaimState) -> None:
        del self._open[claim.claim_id]
        claim.state = ending
        self.endings[ending.value] += 1
        self._table.forget(claim.claim_id)
        if not claim.abandoned:
            self._listen().claim_ended(turn, claim, ending)

    def _listen(self) -> ClaimListener:
        assert self.listener is not None, "Claims needs a listener before the first claim"
        return self.listener
