# SPDX-License-Identifier: Apache-2.0
"""Checks the invariants of a world while it runs (``rest.py``: when it is at rest).

``invariants.py`` lists the invariants.  Each check is made when something happens that could
violate it: an agent sends, a scheduler takes a step, a request is answered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.model.leaves import AGENT_READY
from shared_scheduler.model.resources import same_allocations, sum_amounts
from shared_scheduler.protocol.digest import told_digest
from shared_scheduler.protocol.messages import (
    Allocations,
    Claim,
    Heartbeat,
    Increment,
    Message,
    Release,
    Snapshot,
    Verdict,
)
from shared_scheduler.sim.attached_ports import without_ports
from shared_scheduler.sim.compared_names import check_comparisons
from shared_scheduler.sim.floods import TurnChecks
from shared_scheduler.sim.group_checks import GroupChecks
from shared_scheduler.sim.invariants import Violation
from shared_scheduler.sim.left_out_hosts import LeftOutHosts
from shared_scheduler.sim.left_providers import SearchChecks
from shared_scheduler.sim.over_commits import OverCommits
from shared_scheduler.sim.placement import Write
from shared_scheduler.sim.published import Published
from shared_scheduler.sim.soft_choices import SoftChoices
from shared_scheduler.sim.topology import Holding, holding_in, holding_of, over_given
from shared_scheduler.sim.workload import SentRequest, Server, ServerState
from shared_scheduler.table.row import Version

if TYPE_CHECKING:
    from compute_agent.core import AgentCore
    from shared_scheduler.sim.nodes import SimNode
    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: a request may be answered this long after its deadline
LATE_MAX_S = 0.1
#: the pipe is checked at heartbeats whose sequence is a multiple of this
PIPES_EVERY = 4
#: the claims and requests of a scheduler are counted once in this many steps
BALANCE_EVERY = 8
#: maximum number of violations that are kept
VIOLATIONS_MAX = 20


#: requests that arrive this long after Placement is well are served as usual; and the failures that it causes
WELL_AFTER_S = 10.0
ILL_PLACEMENT = (ef.FailureCode.OVERLOADED, ef.FailureCode.NO_TIME, ef.FailureCode.PLACEMENT_UNREACHABLE)

#: A request cleans up with a few calls to Placement, one after the other, that wait for calls of others.  If this many
#: calls take longer than its ``cleanup_s``, what it wrote may stand at the deadline of its caller.
CLEAN_UP_CALLS = 10
#: a deadline on the clock of a machine, which is another one than that of the world, is rounded by less than this
ROUNDED_S = 1e-6

#: a server that needs the allocations of its node
PROMISED = (ServerState.BUILDING, ServerState.LIVES)
#: a server to which no resources are promised any more
GONE = (ServerState.FAILED, ServerState.DELETED, ServerState.MOVES)


class Checkers:
    """``violations`` holds the violations, ``checked`` the number of checks by invariant.

    ``rows_every``: of the steps that apply something to a row, every so many-th is followed by a
    full comparison with what the agent published (costly); 0 turns it off.
    """

    def __init__(self, world: World, rows_every: int = 20) -> None:
        self.violations: list[Violation] = []
        self.checked: Counter[str] = Counter()
        self.rows_every = rows_every
        #: node -> snapshots that its agent sent
        self.snapshots: Counter[str] = Counter()
        self._world = world
        self._accepted: dict[str, dict[str, Claim]] = {}  # node -> claim id -> claim
        self._published: dict[str, Published] = {}
        self._versions: dict[tuple[str, str], Version] = {}
        #: (scheduler, node) -> servers to which the scheduler promised the node, by uuid
        self._promised: dict[tuple[str, str], dict[str, Server]] = {}
        self.groups = GroupChecks(world, self.check)
        self.soft_choices = SoftChoices(world, self.check)
        self.left_out_hosts = LeftOutHosts(world, self.check)
        self.turns = TurnChecks(world, self.check)
        self.searches = SearchChecks(world, self.check)
        self.over_commits = OverCommits(world, self.check)
        self._claimed: dict[str, Claim] = {}  # claim id -> what was cast
        self._cast: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # (node, consumer) -> ids of claims
        self._agreed: set[tuple[str, str]] = set()  # (node, claim id): the agent of the node has accepted the claim
        #: ids of claims, accepted or not, that own no allocations in Placement, also if their servers have some there
        self._taken_back: set[str] = set()
        self._begun: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # also without an agent
        self._released: set[str] = set()  # ids of claims
        self._lost: set[tuple[str, str]] = set()  # (node, consumer) that its agent accepted and forgot
        self._liars: set[str] = set()  # nodes that have published what their agents have not
        self._steps = 0
        self._phases: dict[tuple[str, str], str] = {}  # of windows, for a detailed trace

    def published(self, node: str) -> Published | None:
        """The published state of a node; None before its agent has published it."""
        return self._published.get(node)

    def newest_of(self, node: str) -> Version | None:
        """The newest version that a node's agent has published."""
        published = self._published.get(node)
        return published.version if published is not None else None

    def check(self, name: str, holds: bool, where: str, *seen: object) -> None:
        """Count a check, and keep the violation if there is one; only then ``seen`` is called for its text."""
        self.checked[name] += 1
        if not holds and len(self.violations) < VIOLATIONS_MAX:
            what = " ".join(map(str, seen))
            self.violations.append(Violation(name, self._world.now, where, what))
            self._world.trace.note(where, f"BROKEN {name}: {what}")

    # -- agents

    def agent_sent(self, node: SimNode, message: Message) -> None:
        """An agent is about to send a message."""
        match message:
            case Increment():
                published = self._published.setdefault(node.node, Published())
                whole = published.follow(message)
                self.check("sequence_grows", whole, node.node, "sent", message.sequence)
                for verdict in node.acceptances(message):
                    self._accepts(node, verdict)
            case Snapshot():
                self.snapshots[node.node] += 1
                same = self._published.setdefault(node.node, Published()).see(message)
                self.check("row_equals_agent", same, node.node, "a snapshot's digest is wrong")
            case Heartbeat():
                self._check_heartbeat(node, message)
            case Verdict(accepted=True):
                self._accepts(node, message)
            case Verdict(claim_id=claim_id) if claim_id in self._claimed:
                self.groups.refused(message, self._claimed[claim_id].consumer)

    def _accepts(self, node: SimNode, verdict: Verdict) -> None:
        self._agreed.add((node.node, verdict.claim_id))
        self.over_commits.accepted(node, verdict)
        self._check_capacity(node, verdict)

    def agent_forgot(self, node: SimNode) -> None:
        """An agent lost its state: claims that it accepted count from now on if Placement holds them."""
        held = self._accepted.get(node.node, {})
        self.groups.agent_forgot(node, [claim.consumer for claim in held.values()])
        self.over_commits.unreliable(node.node)
        on_node = self._world.placement.consumers_of(node.node)
        for claim_id in [key for key, claim in held.items() if claim.consumer not in on_node]:
            self._lost.add((node.node, held.pop(claim_id).consumer))

    def lied(self, node: str) -> None:
        """A stolen node publishes what its agent has not: its own row and its own claims are what it says, until the
        world is at rest."""
        self._liars.add(node)
        self.over_commits.unreliable(node)

    def drop_claims_of(self, node: str, consumer: str) -> None:
        """Forget the claims and promises of a consumer on a node: it moved out, was not built, or arrives without a
        claim (by force, or as an alternate).  An agent that accepts one of these claims later counts it only until it
        ends."""
        self._taken_back |= self._cast[node, consumer]
        held = self._accepted.get(node, {})
        for claim_id in [key for key, claim in held.items() if claim.consumer == consumer]:
            del held[claim_id]
        for (_, promised_node), promised in self._promised.items():
            if promised_node == node:
                promised.pop(consumer, None)

    def _check_heartbeat(self, node: SimNode, heartbeat: Heartbeat) -> None:
        assert node.agent is not None
        if heartbeat.sequence % PIPES_EVERY == 0:
            self._check_valid(node.node, node.agent.publisher.pipe.validate)
        published = self._published.get(node.node)
        if published is not None and Version(heartbeat.epoch, heartbeat.sequence) == published.version:
            same = published.digest == told_digest(heartbeat)
            self.check("row_equals_agent", same, node.node, "a heartbeat's digest is wrong")

    def _check_valid(self, where: str, validate: Callable[[], None]) -> None:
        try:
            validate()
        except AssertionError as error:
            self.check("bounds", False, where, error)
        else:
            self.check("bounds", True, where)

    def _check_capacity(self, node: SimNode, verdict: Verdict) -> None:
        assert node.agent is not None
        pending = node.agent.ledger.pending
        held = self._accepted.setdefault(node.node, {})
        judged_now = verdict.claim_id in pending and pending[verdict.claim_id].accepted_at_s == node.clock.now
        if verdict.claim_id in pending:
            held[verdict.claim_id] = pending[verdict.claim_id].claim
        owners, on_node = self._world.owners(), self._world.placement.consumers_of(node.node)
        for claim_id in [c for c, one in held.items() if owners[one.consumer].state is ServerState.DELETED]:
            del held[claim_id]
        by_consumer = {
            claim.consumer: claim.allocations
            for claim_id, claim in held.items()
            if claim_id in pending or (claim.consumer in on_node and claim_id not in self._taken_back)
        }
        # an earlier life may have judged it, and the verdict was lost; or its server is deleted already
        if judged_now and verdict.claim_id in held:
            self.groups.judged(node, verdict, held[verdict.claim_id], by_consumer)
        used = sum_amounts(by_consumer.values()).get(node.node, {})
        inventories = self._world.placement.providers[node.node].inventories
        over = {rc: n for rc, n in used.items() if n > inventories[rc].capacity}
        self.check("no_overcommit", not over, node.node, verdict.claim_id, "makes it", over)
        self._check_topology(node, node.agent, verdict)

    def _check_topology(self, node: SimNode, agent: AgentCore, verdict: Verdict) -> None:
        leaves, board = agent.ledger.leaves, node.tracker.size.board
        if board is None:
            return
        over = over_given(leaves)
        self.check("no_overpinning", not over, node.node, verdict.claim_id, "makes it", over)
        pending = agent.ledger.pending.values()
        if not node.is_current or any(held.in_doubt for held in pending):
            return  # nova-compute took the resources of claims with an unknown outcome: they are not counted
        texts = [held.topology for held in node.tracker.instances.values()]
        wanted = holding_of([*texts, *(held.claim.topology for held in pending)])
        counted = _plus_devices(holding_in(leaves), board.cells * board.devices_per_cell)
        self.check("no_overpinning", wanted == counted, node.node, wanted, "given,", counted, "taken")

    # -- schedulers

    def scheduler_stepped(self, scheduler: SimScheduler, event: ev.Event) -> None:
        """A scheduler took a step, and its effects are on their way."""
        self._steps += 1
        self.turns.stepped(scheduler)
        self.searches.stepped(scheduler)
        if self._steps % BALANCE_EVERY == 0:
            self.balance(scheduler)
        if self._world.trace.detailed:
            self._tell_phases(scheduler)
        if type(event) is ev.ConsumerAnswered:
            check_comparisons(self.check, scheduler, event)
        if type(event) is ev.MessagesArrived:
            for message in event.messages:
                if isinstance(message, Increment | Snapshot | Verdict):
                    self._row_stepped(scheduler, message.node)

    def balance(self, scheduler: SimScheduler) -> None:
        """Begun claims minus ended claims equal the open claims; a difference never disappears again."""
        core = scheduler.core
        begun, ended = core.claims.begun, sum(core.claims.endings.values())
        requests, claims = len(core.requests), len(core.claims)
        self.check("one_ending", begun == ended + claims, scheduler.name, begun, "begun", ended, "ended")
        in_bounds = requests <= core.settings.requests_max and claims <= core.settings.claims_max
        self.check("bounds", in_bounds, scheduler.name, requests, "requests", claims, "claims")
        self._check_valid(scheduler.name, core.nodes.resync_turns.validate)

    def _tell_phases(self, scheduler: SimScheduler) -> None:
        for known in scheduler.core.nodes:
            key, phase = (scheduler.name, known.node), known.window.phase.value
            before = self._phases.get(key)
            if phase != before:
                self._phases[key] = phase
                self._world.trace.detail(scheduler.name, f"window of {known.node}: {before} -> {phase}")

    def cast(self, scheduler: SimScheduler, claim: Claim) -> None:
        """A scheduler is about to send a claim.  Without an epoch in it, an agent that was restarted could not
        detect a copy of a claim that was judged before the restart."""
        self._claimed[claim.claim_id] = claim
        self._cast[claim.node, claim.consumer].add(claim.claim_id)
        self.check("seen_epoch", claim.seen_epoch > 0, scheduler.name, claim.claim_id, "on", claim.node)

    def released(self, release: Release) -> None:
        """A scheduler is about to release a claim.  A late write of it may still arrive, or one of a claim of before
        that no agent has judged."""
        self._released.add(release.claim_id)
        key = release.node, release.consumer
        if self._begun[key] - self._cast[key]:
            self._taken_back.add(release.claim_id)
        self.groups.released(release)

    def claimed_again(self, node: str, claim_id: str, consumer: str) -> None:
        """A scheduler claims a node for a server, perhaps again and without its agent: what Placement has of the server
        from now on is not of a claim that was released before, even if its agent accepts that one later."""
        self._begun[node, consumer].add(claim_id)
        self._taken_back |= (self._cast[node, consumer] & self._released) - {claim_id}

    def taken_back(self, scheduler: SimScheduler, server: Server, allocations: Allocations) -> None:
        """A scheduler is about to delete the allocations of a server."""
        needed = server.state in PROMISED and server.node in allocations
        kept = not needed or self._world.repeats.may_be_taken(server)
        self.check("allocation_kept", kept, scheduler.name, server.uuid, server.state, "on", server.node)
        held = (one for node in allocations for one in self._accepted.get(node, {}).items())
        self._taken_back.update(claim_id for claim_id, claim in held if claim.consumer == server.uuid)

    def replaced(self, write: Write) -> None:
        """A write is carried out: one of a scheduler leaves what a server needs."""
        server = self._world.owners().get(write.consumer)  # None: a migration
        if server is None or not write.writer.startswith("scheduler-") or server.state not in PROMISED:
            return
        kept = server.node in write.allocations or self._world.repeats.may_be_taken(server)
        self.check(
            "allocation_kept", kept, write.writer, server.uuid, "on", server.node, "is written", write.allocations
        )

    def applied(self, scheduler: SimScheduler, node: str, before: Version, now: Version) -> None:
        """A scheduler is about to apply an increment."""
        follows = now == Version(before.epoch, before.sequence + 1)
        self.check("no_gap", follows, scheduler.name, node, now, "after", before)

    def _row_stepped(self, scheduler: SimScheduler, node: str) -> None:
        table = scheduler.core.table
        if node not in table:
            return
        version = table.version(node)
        self._check_growth(scheduler, node, version)
        known = scheduler.core.nodes.get(node)
        if known is not None:
            self._check_valid(scheduler.name, known.window.validate)
        if self.rows_every and self._steps % self.rows_every == 0 and node not in self._liars:
            self._check_row(scheduler, node, version)
            self._check_overlay(scheduler, node)

    def _check_growth(self, scheduler: SimScheduler, node: str, version: Version) -> None:
        if version.epoch == 0:  # read from the databases
            return
        if self._has_begun_again(scheduler, node):
            return
        before = self._versions.get((scheduler.name, node), Version(0, 0))
        same_life = version.epoch == before.epoch
        newer = version.epoch >= before.epoch
        self.check("older_epoch", newer, scheduler.name, node, before, "then", version)
        grows = not same_life or version.sequence >= before.sequence
        self.check("sequence_grows", grows, scheduler.name, node, before, "then", version)
        self._versions[scheduler.name, node] = version

    def _has_begun_again(self, scheduler: SimScheduler, node: str) -> bool:
        """Whether late messages have begun the row of a node again that has gone: its claims went with the row before.

        The row is not selected, and the next read of the database removes it."""
        return node in self._world.gone and not scheduler.core.nodes.owner_of(node)

    def _check_row(self, scheduler: SimScheduler, node: str, version: Version) -> None:
        published = self._published.get(node)
        truth = published.digest_at(version) if published is not None else None
        if truth is not None:
            same = scheduler.core.table.digest(node) == truth
            self.check("row_equals_agent", same, scheduler.name, node, "at", version)

    def _check_overlay(self, scheduler: SimScheduler, node: str) -> None:
        core = scheduler.core
        ids = [own.claim_id for own in core.table.outstanding(node)]
        unknown = [one for one in ids if not core.claims.is_open(one) and one not in core.confirmed_claims]
        self.check("overlay", not unknown, scheduler.name, node, unknown, "forgotten")
        if not self._has_begun_again(scheduler, node):
            self._check_assumed(scheduler, node)
        self._check_promises(scheduler, node)
        servers = {own.consumer for own in core.table.outstanding(node)}
        if len(servers) < len(ids):  # asked for again on this node, while an earlier write of it may still arrive
            return
        view = core.table.view(node)
        once = sum_amounts(consumer.allocations for consumer in view.consumers.values())
        same = same_allocations(once, view.used)
        self.check("visible_once", same, scheduler.name, node, "counts", view.used, "not", once)

    def _check_assumed(self, scheduler: SimScheduler, node: str) -> None:
        core = scheduler.core
        lost = [
            claim.claim_id
            for claim in core.claims.open()
            if claim.intent.node == node
            and not core.table.is_outstanding(claim.claim_id)
            and not self._world.owners()[claim.intent.consumer].twins  # taken over with the claim of the other one
        ]
        self.check("overlay", not lost, scheduler.name, node, lost, "not assumed")

    def _check_promises(self, scheduler: SimScheduler, node: str) -> None:
        """Resources promised to a server that exists or will exist are always counted in the scheduler's own row.

        Only while an agent is not ready, and reports this, they may be missing: its node is not selected then.  And as
        long as the row is of a run that the agent has forgotten, because a late message of that run came to a scheduler
        that has known no earlier one (``protocol/window.py``), also when the agent has exceeded it, but was not heard
        yet: the agent refuses what is decided on that row.  If two schedulers got the request, a claim of the other one
        for the same node may end, and take the server out of the row until the agent has read Placement again.
        """
        view, published = scheduler.core.table.view(node), self.published(node)
        is_of_forgotten_run = published is not None and scheduler.core.table.version(node).epoch in published.forgotten
        if view.leaves.get(AGENT_READY) is False or is_of_forgotten_run:
            return
        promised = self._promised.get((scheduler.name, node), {})
        on_node = self._world.placement.consumers_of(node)
        for uuid, server in list(promised.items()):
            if server.state in GONE or server.node not in ("", node) or uuid not in on_node:
                del promised[uuid]
            elif not server.twins:
                self.check("overlay", uuid in view.consumers, scheduler.name, node, uuid, "was promised")

    # -- requests

    def answered(self, scheduler: SimScheduler, asked: SentRequest, effect: ef.Answer | ef.Fail) -> None:
        """A scheduler ends a request."""
        where, request_id = scheduler.name, asked.request.request_id
        deadlines, ended = sorted(asked.deadlines_of(where)), asked.ended_by[where]
        self.check("answered_once", ended < len(deadlines), where, request_id, "again")
        in_time = ended >= len(deadlines) or self._world.now <= deadlines[ended] + LATE_MAX_S
        undisturbed = scheduler.disturbed_s < asked.asked_s
        self.check("answered_once", in_time or not undisturbed, where, request_id, "late")
        self._check_record(asked, effect)
        self.left_out_hosts.answered(scheduler, asked, effect)
        bad = isinstance(effect, ef.Fail) and effect.code is ef.FailureCode.BAD_REQUEST
        self.check("well_asked", not bad, where, request_id, isinstance(effect, ef.Fail) and effect.text)
        if asked.moved is not None and asked.servers[0].state is not ServerState.DELETED:
            self._world.ports.check(asked.servers[0].uuid, where)
        if undisturbed and self._world.is_placement_well(asked.asked_s - WELL_AFTER_S):
            ill = isinstance(effect, ef.Fail) and effect.code in ILL_PLACEMENT
            self.check("well_again", not ill, where, request_id, isinstance(effect, ef.Fail) and effect.text)
        if asked.outcome is not None:
            return  # its caller does not hear this one
        if isinstance(effect, ef.Answer):
            self._check_answer(asked, effect, where)
            self.groups.answered(scheduler, asked, effect)
        elif undisturbed and not asked.servers[0].twins:
            self._check_failure(scheduler, asked)
            self.groups.failed(scheduler, effect)

    def _check_record(self, asked: SentRequest, effect: ef.Answer | ef.Fail) -> None:
        request_id = asked.request.request_id
        for counts in effect.record.decisions:
            parts = counts.survivors + sum(counts.reasons.values())
            whole = counts.hosts == parts
            self.check("reasons_add_up", whole, asked.scheduler, request_id, parts, "of", counts.hosts)

    def _check_answer(self, asked: SentRequest, answer: ef.Answer, where: str) -> None:
        placement = self._world.placement
        chosen = {inner[0].node for inner in answer.choices}
        for server, inner in zip(asked.servers, answer.choices, strict=True):
            candidate = inner[0].candidate
            stands, left = placement.consumers.get(server.uuid, {}), self._world.scheduled_moves.left(server.uuid)
            wanted = None if candidate is None else {**candidate.allocations, **left}
            written = wanted is not None and (_is_written(stands, wanted) or self._is_taken(server, where, wanted))
            over = asked.moved is not None and self._world.scheduled_moves.is_over(server.uuid)
            self.check("written_first", written or over, where, server.uuid, stands)
            if (inner[0].node, server.uuid) not in self._lost:
                self._promised.setdefault((where, inner[0].node), {})[server.uuid] = server
            others = all(c.cell == inner[0].cell and c.node not in chosen for c in inner[1:])
            enough = len(inner) - 1 <= asked.request.num_alternates
            self.check("alternates", others and enough, where, server.uuid)
            (query,) = asked.request.queries
            lost = [one.node for one in inner if not self._world.operators.had(one.node, query, asked.asked_s)]
            self.check("selected", not lost, where, server.uuid, lost, "lack what was asked for")
            self._check_names(inner, where)
        cast = [self._claimed[claim_id] for claim_id in answer.claim_ids if claim_id in self._claimed]
        honest = (claim for claim in cast if claim.node not in self._liars)
        unheard = [claim.claim_id for claim in honest if (claim.node, claim.claim_id) not in self._agreed]
        self.check("own_word", not unheard, where, unheard, "were not accepted by the agents of their nodes")

    def _is_taken(self, server: Server, where: str, wanted: Allocations) -> bool:
        """Whether a scheduler has written what it answers with, and another one that got the request has replaced it
        since."""
        writers = self._world.placement.writers[server.uuid]
        by_twin = writers.last != where and writers.last in server.twins
        was_written = _is_written(writers.last_of(where), wanted)
        return by_twin and was_written and self._world.repeats.may_be_taken(server)

    def _check_names(self, choices: Sequence[ef.Choice], where: str) -> None:
        """Check the names of nodes that have not gone."""
        for choice in choices:
            if (node := self._world.nodes.get(choice.node)) is not None:
                same = (choice.host, choice.nodename) == (node.host, node.nodename)
                self.check("named", same, where, choice.node, "is", choice.host, choice.nodename)

    def _check_failure(self, scheduler: SimScheduler, asked: SentRequest) -> None:
        """Applies only when Placement was reachable all the time."""
        if self._world.placement.answers and not self._world.was_down_since(asked.asked_s):
            first = (s for s in asked.servers if s.tries == 1)  # an earlier try may have left something
            left = {s.uuid for s in first if s.uuid in self._world.placement.consumers}
            late = {claim.intent.consumer for claim in scheduler.core.claims.open()}
            if self._may_be_late(scheduler, asked):
                left -= late
            left |= self._left_elsewhere(asked) - late  # what others have changed waits until Nova can tell
            self.check("nothing_left_behind", not left, asked.scheduler, sorted(left), "are written")

    def _left_elsewhere(self, asked: SentRequest) -> set[str]:
        """The server of an evacuation that has failed, if it has allocations of a server on other nodes than the one
        where it is."""
        moves = self._world.scheduled_moves
        evacuated = {s.uuid for s in asked.servers if asked.moved is not None and moves.is_evacuation(s.uuid)}
        return {
            uuid
            for uuid in evacuated
            if without_ports(self._world.placement.consumers.get(uuid, {})).keys() - moves.left(uuid).keys()
        }

    def _may_be_late(self, scheduler: SimScheduler, asked: SentRequest) -> bool:
        """Whether its caller waits no longer, and calls to Placement are too slow for all to be deleted by now.

        What is left is deleted afterwards: its claims are still open."""
        clean_up_s = CLEAN_UP_CALLS * (self._world.sizes.placement_s + self._world.placement.takes_s(1))
        at_deadline = self._world.now > asked.deadline_s - ROUNDED_S
        return at_deadline and clean_up_s > scheduler.core.settings.cleanup_s


def _is_written(stands: Allocations, wanted: Allocations) -> bool:
    """Whether allocations are those of an answer; ports may have been attached since."""
    return same_allocations(without_ports(stands), wanted)


def _plus_devices(free: Holding, has: int) -> Holding:
    """``holding_in`` knows the devices that are free (as less than nothing), not how many there are."""
    return Holding(free.pinned_cpus, free.pages, has + free.devices)
