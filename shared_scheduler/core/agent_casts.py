# SPDX-License-Identifier: Apache-2.0
"""What is cast to the agents about claims: each Claim until its verdict, and the Release after its end.

``claims.py`` decides which of both is cast.  Here is what follows until the agent has answered: repetitions, timers,
the number of claims in flight for each node, and verdicts that come too late.

An agent of this release sends no verdict on a claim that it accepts if it sends the claim's increment at once, which
accepts it, too.  The claim or this answer may be lost, so the Claim is cast again, and gets a verdict then.  An agent
that takes longer than others is reported as late (``verdict_limit.py``), and not waited for beyond
``verdict_timeout_s``.

A process that stood still handles its timers before the messages that waited, so one timer may ring too early.  The
timers for a verdict allow for that: an agent that may have answered meanwhile gets as much time again as the process
stood still, but at most ``verdict_timeout_s``, and only while there is time to write.

If the node has no agent, no Release is sent.  If an agent has started to report when the claim ends, the agent gets a
Release and reads Placement, because it may have seen the allocation there.

A Release may be lost, and a late verdict may then accept a claim that is not needed any more.  Claims that ended with
a Release are remembered for a while, and such a verdict is answered with the Release again, as is the first increment
that has such a claim if no verdict came before.  The agent finds the remaining cases: it asks Placement about claims
that nova-compute did not take over.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachetools import FIFOCache

from shared_scheduler.core.claim_state import ClaimState, OpenClaim
from shared_scheduler.core.effects import Send
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.core.step import Fact, Step, Timers
from shared_scheduler.core.verdict_limit import VerdictLimit
from shared_scheduler.protocol.messages import Claim, Release, Verdict, agent_address
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Freshness

#: a timer that rings so much too late shows that the process stood still
STOOD_STILL_S = 0.05


@dataclass(frozen=True, slots=True)
class AgentLate(Fact):
    """The agent of a claim did not answer within its limit; its request tries another host, if there is one."""

    claim: OpenClaim


@dataclass(frozen=True, slots=True)
class LateVerdict(Fact):
    """The agent of a node answered a claim that had been released; ``came``: False if it did not answer one that had
    ended as LATE.  ``began_s``: when that claim began."""

    node: str
    came: bool
    began_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class NodeHasRoom(Fact):
    """A node that had the maximum number of claims in flight has one less."""


class AgentCasts:
    """The claims without a verdict, and the last claims that ended with a Release."""

    def __init__(self, identity: Identity, settings: SchedulerSettings, table: HostTable, timers: Timers) -> None:
        self._identity = identity
        self._settings = settings
        self._table = table
        self._timers = timers
        self._in_flight: dict[str, OpenClaim] = {}  # by claim id
        self._in_flight_of: dict[str, int] = {}  # node -> their number
        #: the nodes to which no more claim may be cast
        self.crowded: frozenset[str] = frozenset()
        self._released: FIFOCache[str, Send] = FIFOCache(settings.released_max)  # claim id -> its Release
        #: those of them that ended before the agent had answered: their increments are listened for
        self._unanswered: FIFOCache[str, None] = FIFOCache(settings.released_max)
        #: those of them that ended as LATE: their verdicts are listened for
        self._late: FIFOCache[str, OpenClaim] = FIFOCache(settings.released_max)
        self.limit = VerdictLimit(settings.verdict_timeout_s)

    # -- until the verdict

    def claim(self, step: Step, claim: OpenClaim, limit_s: float) -> None:
        """Cast a claim to the agent of its node.

        ``limit_s``: the agent is reported as late if it does not answer within this time.
        """
        timeout_s = self._settings.verdict_timeout_s
        self._in_flight[claim.claim_id] = claim
        self._count(claim.intent.node, 1)
        claim.verdict_s = step.now + timeout_s
        self._timers.set(("verdict", claim.claim_id), claim.verdict_s)
        if limit_s < timeout_s:
            self.wait_for(claim, step.now + limit_s)
        self._cast(step, claim)

    def _cast(self, step: Step, claim: OpenClaim) -> None:
        intent, timeout_s = claim.intent, self._settings.verdict_timeout_s
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
            group=intent.group,
            increment_suffices=True,
        )
        step.emit(Send(intent.cell, agent_address(intent.host), message, intent.service_host, cause=intent.request_id))
        repeat_s = self._settings.claim_repeat_s
        if 0 < repeat_s < claim.began_s + timeout_s - step.now:
            self._timers.set(("repeat", claim.claim_id), step.now + repeat_s)

    def on_repeat_timer(self, step: Step, claim_id: str) -> None:
        """Cast the claim again, because the claim or its verdict may be lost."""
        self._cast(step, self._in_flight[claim_id])

    def wait_for(self, claim: OpenClaim, until_s: float) -> None:
        """Report the agent as late if it does not answer by then."""
        claim.late_s = until_s
        self._timers.set(("late", claim.claim_id), until_s)

    def on_late_timer(self, step: Step, claim_id: str) -> None:
        """Report that the agent of a claim is late."""
        claim = self._in_flight[claim_id]
        again_s = self._again_s(step, claim, claim.late_s)
        if again_s is not None:
            self.wait_for(claim, again_s)
        else:
            step.trigger = claim.cause
            step.report(AgentLate(claim))

    def report_late(self, step: Step, claim: OpenClaim) -> None:
        """Report an agent once more that was late while its request could claim no other host."""
        if claim.state == ClaimState.CLAIMING and claim.late_s <= step.now:
            self.wait_for(claim, step.now)

    def unanswered(self, step: Step, claim_id: str) -> OpenClaim | None:
        """The claim whose verdict did not come in time, None if it is waited for longer; of a late one, report that the
        verdict will not come."""
        claim = self._in_flight.get(claim_id) or self._late.get(claim_id)
        if claim is None:
            return None
        again_s = self._again_s(step, claim, claim.verdict_s)
        if again_s is not None:
            claim.verdict_s = again_s
            self._timers.set(("verdict", claim_id), again_s)
            return None
        if claim_id in self._in_flight:
            return claim
        del self._late[claim_id]
        step.report(LateVerdict(claim.intent.node, came=False, began_s=claim.began_s))
        return None

    def _again_s(self, step: Step, claim: OpenClaim, due_s: float) -> float | None:
        """When a timer for a verdict that was due at ``due_s`` rings again; None if the agent was waited for.

        A timer that rings late shows that this process stood still, and the verdict may wait to be handled.
        """
        stood_still_s = step.now - due_s
        again_s = min(step.now + min(stood_still_s, self._settings.verdict_timeout_s), claim.written_by_s)
        return again_s if stood_still_s > STOOD_STILL_S and again_s > step.now else None

    def answered(self, step: Step, claim: OpenClaim) -> None:
        """The verdict has arrived."""
        self.not_awaited(step, claim)
        self.limit.answered(claim.intent.node, step.now - claim.began_s)

    def not_awaited(self, step: Step, claim: OpenClaim) -> None:
        """Wait for the verdict no longer: the claim is not in flight any more."""
        for kind in ("verdict", "repeat", "late"):
            self._timers.cancel((kind, claim.claim_id))
        del self._in_flight[claim.claim_id]
        node = claim.intent.node
        if node in self.crowded:
            step.report_last(NodeHasRoom())
        self._count(node, -1)

    def _count(self, node: str, more: int) -> None:
        count = self._in_flight_of.get(node, 0) + more
        self._in_flight_of[node] = count
        if not count:
            del self._in_flight_of[node]
        if count >= self._settings.claims_per_node_max:
            self.crowded |= {node}
        elif node in self.crowded:
            self.crowded -= {node}

    # -- after the end

    def release(self, step: Step, claim: OpenClaim) -> None:
        """Cast the Release of a claim that ends, if an agent knows the claim or may have seen what it wrote."""
        if not (claim.intent.by_agent or self._agent_speaks_for(claim.intent.node)):
            return
        if not claim.accepted:
            self._unanswered[claim.claim_id] = None
        self._released[claim.claim_id] = release = self._release_of(claim)
        step.emit(release)

    def _agent_speaks_for(self, node: str) -> bool:
        """Whether an agent reports now.  It may have started after the write, and count what it saw in Placement."""
        return node in self._table and self._table.freshness(node) is not Freshness.PROVISIONAL

    def _release_of(self, claim: OpenClaim) -> Send:
        intent, is_awaited = claim.intent, claim.state is ClaimState.CLAIMING
        sender = self._identity.address(intent.cell)
        message = Release(claim.claim_id, intent.node, sender, intent.consumer, never_written=is_awaited)
        return Send(intent.cell, agent_address(intent.host), message, cause=intent.request_id)

    def listen_for(self, claim: OpenClaim) -> None:
        """Listen for the verdict of a claim that has ended as LATE, as long as it would have been waited for."""
        self._timers.set(("verdict", claim.claim_id), claim.verdict_s)
        self._late[claim.claim_id] = claim

    def listens_for(self, claim_id: str) -> bool:
        """Whether it is one of the last claims that ended with a Release, and its agent has not answered yet.

        Each is answered by one increment at most, because anybody who reads the broker can send that again."""
        return claim_id in self._unanswered

    def late_verdict(self, step: Step, verdict: Verdict) -> None:
        """Handle the verdict of a claim that is not in flight: if it was released, report that the agent has answered,
        and cast the Release again if the agent has accepted the claim."""
        release = self._released.get(verdict.claim_id)
        if release is None or release.message.node != verdict.node:
            return
        self._unanswered.pop(verdict.claim_id, None)
        late = self._late.pop(verdict.claim_id, None)
        if late is not None:
            self._timers.cancel(("verdict", late.claim_id))
            self.limit.answered(verdict.node, step.now - late.began_s)
        step.report(LateVerdict(verdict.node, came=True))
        if verdict.accepted:
            step.emit(release)
