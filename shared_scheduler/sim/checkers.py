# SPDX-License-Identifier: Apache-2.0
"""What must hold, whatever happens.  Each invariant has a name and a sentence.

Most are checked when something happens that could break them (an agent accepts, a scheduler takes a
step, a request is answered); the last ones after the faults are healed and the world is at rest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.messages import (
    Beat,
    Claim,
    Increment,
    Message,
    Snapshot,
    Verdict,
)
from shared_scheduler.sim.published import Published
from shared_scheduler.sim.workload import Asked, Fate
from shared_scheduler.state.resources import same_allocations, sum_amounts
from shared_scheduler.state.row import Freshness, Version

if TYPE_CHECKING:
    from shared_scheduler.sim.nodes import SimNode
    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: the answer to a request may be this much later than its deadline
LATE_MAX_S = 0.1
#: messages that have no place in a world at rest
NOISE = frozenset({"sent_increment", "sent_snapshot", "sent_resync", "sent_claim", "sent_release", "sent_verdict"})

#: name -> what it says
INVARIANTS = {
    "no_overcommit": "No node holds more than it can by claims that its agent accepted.",
    "one_ending": "Every claim ends exactly once.",
    "sequence_grows": "Per node and epoch, the applied sequence only grows.",
    "older_epoch": "A message of an older epoch changes nothing.",
    "row_is_truth": "A row equals the agent's state at the row's sequence.",
    "overlay": "A row's overlay holds exactly this scheduler's claims that may still be unseen.",
    "bounds": "No buffer passes its bound, no window is in a state that it cannot be in.",
    "reasons_add_up": "The hosts of a decision's reasons and survivors are all the hosts.",
    "answered_once": "Every request is answered once, and in time.",
    "written_first": "What an answer names stands in Placement.",
    "alternates": "Alternates are of the chosen host's cell, none of the chosen hosts.",
    "converged": "At rest, every row is fresh, equals the truth and holds no claim of its own.",
    "no_orphans": "At rest, nothing is allocated and no claim is pending without an owner.",
    "quiet": "At rest, nobody asks for snapshots, and nothing but beats and Hellos is sent.",
    "no_request_left": "At rest, no request and no claim is under way.",
}

#: violations that are kept, so that a world that is broken everywhere still ends
VIOLATIONS_MAX = 20


class InvariantBroken(AssertionError):
    """Raised by ``Checkers.demand``; the text names the first violations."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: its name, when, where, and what was seen."""

    name: str
    at_s: float
    where: str
    what: str

    def line(self) -> str:
        """One line for people."""
        return f"{self.at_s:.6f} {self.where}: {self.name}: {INVARIANTS[self.name]} {self.what}"


class Checkers:
    """Looks over the shoulder of every part of a world.

    ``rows_every``: of the steps that apply something to a row, every so many-th is followed by a
    full comparison with what the agent published (costly); 0 turns it off.
    """

    def __init__(self, world: World, rows_every: int = 20) -> None:
        self.violations: list[Violation] = []
        self.checked: Counter[str] = Counter()
        self.rows_every = rows_every
        self._world = world
        self._accepted: dict[str, dict[str, Claim]] = {}  # node -> claim id -> claim
        self._published: dict[str, Published] = {}
        self._versions: dict[tuple[str, str], Version] = {}
        self._steps = 0

    def newest_of(self, node: str) -> Version | None:
        """The newest version that a node's agent has published."""
        published = self._published.get(node)
        return published.version if published is not None else None

    def check(self, name: str, holds: bool, where: str, what: str = "") -> None:
        """Count a check, and keep the violation if there is one."""
        self.checked[name] += 1
        if not holds and len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(name, self._world.now, where, what))
            self._world.trace.note(where, f"BROKEN {name}: {what}")

    def demand(self) -> None:
        """Raise ``InvariantBroken`` if anything was broken."""
        if self.violations:
            raise InvariantBroken("\n".join(v.line() for v in self.violations))

    # -- agents

    def agent_sent(self, node: SimNode, message: Message) -> None:
        """An agent is about to send this."""
        match message:
            case Increment():
                published = self._published.setdefault(node.node, Published())
                whole = published.follow(message)
                self.check("sequence_grows", whole, node.node, f"sent {message.sequence}")
            case Snapshot():
                same = self._published.setdefault(node.node, Published()).see(message)
                self.check("row_is_truth", same, node.node, "a snapshot's digest is wrong")
            case Beat():
                self._check_beat(node.node, message)
            case Verdict(accepted=True):
                self._check_capacity(node, message)

    def _check_beat(self, node: str, beat: Beat) -> None:
        published = self._published.get(node)
        if published is not None and Version(beat.epoch, beat.sequence) == published.version:
            same = published.digest == beat.digest
            self.check("row_is_truth", same, node, "a beat's digest is wrong")

    def _check_capacity(self, node: SimNode, verdict: Verdict) -> None:
        assert node.agent is not None
        pending = node.agent.ledger.pending
        held = self._accepted.setdefault(node.node, {})
        if verdict.claim_id in pending:
            held[verdict.claim_id] = pending[verdict.claim_id].claim
        on_node = self._world.placement.consumers_of(node.node)
        by_consumer = {
            claim.consumer: claim.allocations
            for claim_id, claim in held.items()
            if claim_id in pending or claim.consumer in on_node
        }
        used = sum_amounts(by_consumer.values()).get(node.node, {})
        inventories = self._world.placement.providers[node.node].inventories
        over = {rc: n for rc, n in used.items() if n > inventories[rc].capacity}
        self.check("no_overcommit", not over, node.node, f"{verdict.claim_id} makes it {over}")

    # -- schedulers

    def scheduler_stepped(self, scheduler: SimScheduler, event: ev.Event) -> None:
        """A scheduler took a step, and its effects are on their way."""
        self._steps += 1
        claims = scheduler.core.claims
        ended = sum(claims.endings.values())
        balance = claims.begun == ended + len(claims)
        self.check("one_ending", balance, scheduler.name, f"{claims.begun} begun, {ended} ended")
        if isinstance(event, ev.MessagesArrived):
            for message in event.messages:
                if isinstance(message, Increment | Snapshot | Verdict):
                    self._row_stepped(scheduler, message.node)

    def _row_stepped(self, scheduler: SimScheduler, node: str) -> None:
        table = scheduler.core.table
        if node not in table:
            return
        version = table.version(node)
        self._check_growth(scheduler, node, version)
        known = scheduler.core.nodes.get(node)
        if known is not None:
            self._check_window(scheduler, node)
        if self.rows_every and self._steps % self.rows_every == 0:
            self._check_row(scheduler, node, version)
            self._check_overlay(scheduler, node)

    def _check_growth(self, scheduler: SimScheduler, node: str, version: Version) -> None:
        if version.epoch == 0:  # read from the databases
            return
        before = self._versions.get((scheduler.name, node), Version(0, 0))
        same_life = version.epoch == before.epoch
        what = f"{before} then {version}"
        self.check("older_epoch", version.epoch >= before.epoch, scheduler.name, f"{node} {what}")
        grows = not same_life or version.sequence >= before.sequence
        self.check("sequence_grows", grows, scheduler.name, f"{node} {what}")
        self._versions[scheduler.name, node] = version

    def _check_window(self, scheduler: SimScheduler, node: str) -> None:
        known = scheduler.core.nodes.get(node)
        assert known is not None
        try:
            known.window.validate()
            broken = ""
        except AssertionError as error:
            broken = f"window of {node}: {error}"
        self.check("bounds", not broken, scheduler.name, broken)
        settings = scheduler.core.settings
        in_bounds = (
            len(scheduler.core.requests) <= settings.requests_max and len(scheduler.core.claims) <= settings.claims_max
        )
        self.check("bounds", in_bounds, scheduler.name, "requests or claims")

    def _check_row(self, scheduler: SimScheduler, node: str, version: Version) -> None:
        published = self._published.get(node)
        truth = published.digest_at(version) if published is not None else None
        if truth is not None:
            same = scheduler.core.table.digest(node) == truth
            self.check("row_is_truth", same, scheduler.name, f"{node} at {version}")

    def _check_overlay(self, scheduler: SimScheduler, node: str) -> None:
        core = scheduler.core
        ids = [own.claim_id for own in core.table.outstanding(node)]
        strangers = [one for one in ids if not core.claims.is_open(one) and one not in core.watch]
        self.check("overlay", not strangers, scheduler.name, f"{node}: {strangers} forgotten")
        lost = [
            claim.claim_id
            for claim in core.claims.open()
            if claim.intent.node == node and not core.table.is_outstanding(claim.claim_id)
        ]
        self.check("overlay", not lost, scheduler.name, f"{node}: {lost} not assumed")

    # -- requests

    def answered(self, asked: Asked, effect: ef.Answer | ef.Fail) -> None:
        """A scheduler ends a request."""
        where, request_id = asked.scheduler, asked.request.request_id
        self.check("answered_once", asked.outcome is None, where, f"{request_id} again")
        in_time = self._world.now <= asked.deadline_s + LATE_MAX_S
        self.check("answered_once", in_time, where, f"{request_id} late")
        self._check_record(asked, effect)
        if isinstance(effect, ef.Answer):
            self._check_answer(asked, effect)
        else:
            self._check_failure(asked)

    def _check_record(self, asked: Asked, effect: ef.Answer | ef.Fail) -> None:
        for counts in effect.record.decisions:
            parts = counts.survivors + sum(counts.reasons.values())
            what = f"{asked.request.request_id}: {parts} of {counts.hosts}"
            self.check("reasons_add_up", counts.hosts == parts, asked.scheduler, what)

    def _check_answer(self, asked: Asked, answer: ef.Answer) -> None:
        placement = self._world.placement
        chosen = {inner[0].node for inner in answer.choices}
        for server, inner in zip(asked.servers, answer.choices, strict=True):
            candidate = inner[0].candidate
            stands = placement.consumers.get(server.uuid, {})
            written = candidate is not None and same_allocations(stands, candidate.allocations)
            self.check("written_first", written, asked.scheduler, f"{server.uuid}: {stands}")
            others = all(c.cell == inner[0].cell and c.node not in chosen for c in inner[1:])
            enough = len(inner) - 1 <= asked.request.num_alternates
            self.check("alternates", others and enough, asked.scheduler, server.uuid)

    def _check_failure(self, asked: Asked) -> None:
        """A failed request has given back what it wrote (while Placement could be reached)."""
        if self._world.placement.up and not self._world.was_down_since(asked.asked_s):
            left = [s.uuid for s in asked.servers if s.uuid in self._world.placement.consumers]
            self.check("no_orphans", not left, asked.scheduler, f"failed, but {left} are written")

    # -- at rest

    def at_rest(self) -> None:
        """The faults are healed, nothing is asked any more, and time enough has passed."""
        for scheduler in self._world.schedulers.values():
            core = scheduler.core
            left = f"{len(core.requests)} requests, {len(core.claims)} claims"
            idle = not len(core.requests) and not len(core.claims)
            self.check("no_request_left", idle, scheduler.name, left)
            for node in self._world.nodes.values():
                self._check_converged(scheduler, node)
        self._check_owners()

    def _check_converged(self, scheduler: SimScheduler, node: SimNode) -> None:
        table, name = scheduler.core.table, node.node
        where = scheduler.name
        self.check("converged", not table.outstanding(name), where, f"{name} own claims left")
        self._check_versus_world(scheduler, node)
        if node.agent is None:
            provisional = table.freshness(name) is Freshness.PROVISIONAL
            self.check("converged", provisional, where, f"{name} has no agent")
            return
        freshness = table.freshness(name)
        self.check("converged", freshness is Freshness.FRESH, where, f"{name} is {freshness}")
        published = self._published[name]
        version = table.version(name)
        newest = version == published.version
        self.check("converged", newest, where, f"{name}: {version}, agent {published.version}")
        same = table.digest(name) == published.digest
        self.check("converged", same, where, f"{name}: other content at {version}")

    def _check_versus_world(self, scheduler: SimScheduler, node: SimNode) -> None:
        """The row says what Placement and the tracker say."""
        view = scheduler.core.table.view(node.node)
        used = self._world.placement.used(node.node)
        same = dict(view.used.get(node.node, {})) == dict(used)
        what = f"{node.node}: row {view.used.get(node.node)}, Placement {used}"
        self.check("converged", same, scheduler.name, what)
        lost = {uuid for uuid in view.members if self._is_lost(uuid)}
        extra = view.members - lost ^ node.tracker.instances.keys() - lost
        self.check("converged", not extra, scheduler.name, f"{node.node}: members {sorted(extra)}")

    def _check_owners(self) -> None:
        world = self._world
        owners = world.owners()
        for consumer, allocations in world.placement.consumers.items():
            server = owners[consumer]
            owned = server.fate == Fate.LIVES and server.node in allocations
            orphaned = world.lost_with_scheduler(server)
            what = f"{consumer} is {server.fate} on {server.node or 'nothing'}"
            self.check("no_orphans", owned or orphaned, ", ".join(allocations), what)
        for node in world.nodes.values():
            if node.agent is not None:
                held = node.agent.ledger.pending.values()
                left = [h.claim.claim_id for h in held if not self._is_lost(h.claim.consumer)]
                self.check("no_orphans", not left, node.node, f"pending: {left}")

    def _is_lost(self, consumer: str) -> bool:
        return self._world.lost_with_scheduler(self._world.owners()[consumer])

    def quiet(self, sent: Counter[str]) -> None:
        """What was sent during a while of rest."""
        noise = {name: n for name, n in sent.items() if name in NOISE and n}
        self.check("quiet", not noise, "network", str(noise))
