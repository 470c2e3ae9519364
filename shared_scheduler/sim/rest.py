# SPDX-License-Identifier: Apache-2.0
"""After the faults: repair the world, let it come to rest, and check that it has recovered.

No further requests, deletes and moves begin; those under way end.  A world is at rest when nothing that
changes its state is under way (no request, claim, write, delete, build, move, no audit that finds something)
and nothing was for ``QUIET_S``.  Reactions of the product to changes do not count, so that a
bug in it cannot delay the checks.

Then single requests are sent, each alone: at rest there is no competing claim, so none of their claims may
be refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from compute_agent.agent_settings import AUDITED_AFTER_S
from compute_agent.claim_ledger import PendingClaim
from compute_agent.events import Tick
from shared_scheduler.core.claim_state import ClaimState
from shared_scheduler.core.events import WriteCode
from shared_scheduler.model.resources import same_allocations, sum_amounts
from shared_scheduler.protocol.messages import RefusalCode
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.report import window_counters
from shared_scheduler.sim.schedulers import SimScheduler
from shared_scheduler.sim.second_writer import PART_OF_WORLDS, SecondWriter
from shared_scheduler.sim.workload import SentRequest, ServerState
from shared_scheduler.table.row import Freshness

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: every row is fresh again within this many heartbeats after the repair: three missed ones to be silent, the
#: resync requests with back-off of a window without an answer, and the snapshot
CAUGHT_UP_HEARTBEATS = 20
#: virtual time from then on in which builds and audits end and the world comes to rest, at least
SETTLE_S = 100.0
#: time of the product to process the last change: the time for which an agent keeps a claim that nobody writes
#: (``claim_check_after_s`` and ``CARRIED_OUT_WITHIN_S``), and until its next read
QUIET_S = 90.0
#: additional time for a world that does not come to rest.  It is then checked as it is, long before
#: the agents' full reads of Placement would repair lost data
REST_MAX_S = 120.0
REST_STEP_S = 1.0
#: snapshots that one node may send after the repair and the last late message, and as many again for each scheduler;
#: beyond the first of these, one more for each time that a request without a host lets the node answer again
#: (``core/recheck.py``)
SNAPSHOTS_MAX = 8
#: single requests, so far apart that rows without an agent are read again in between
LONE_REQUESTS = 3
LONE_EVERY_S = 8.0
#: after them, the last instances are built and all processes receive the change
AFTER_LONE_S = 20.0
#: then only heartbeats and Hellos may be sent for this time
REST_S = 20.0
#: messages that must not be sent in a world at rest
NOISE = (
    "sent_increment",
    "sent_snapshot",
    "sent_resync",
    "sent_claim",
    "sent_release",
    "sent_verdict",
)
#: endings of claims that mean a refusal
REFUSALS = (ClaimState.REFUSED, ClaimState.NOT_WRITTEN, ClaimState.TIMED_OUT, ClaimState.UNDELIVERED, ClaimState.LATE)


def heal(world: World) -> None:
    """Stop requests and faults, start everything that is down, wait for rest, and run the final checks."""
    late_s = world.network.network_faults.latest_s
    end_faults(world)
    world.behind_at_healing = sum(lag > 0 for lag in world.lags().values())
    rest = Rest(world)
    world.agenda.after(late_s, rest.count_snapshots)  # late requests are answered until then
    rest.catch_up()
    world.run(SETTLE_S)
    rest.wait()
    rest.settled()
    rest.ask_alone()
    rest.be_quiet()
    if world.rng("somebody else writes").random() < PART_OF_WORLDS:
        SecondWriter(world).write_and_check()


def end_faults(world: World) -> None:
    """Stop requests, losses of messages, and audits that report zeros."""
    world.close()
    network_faults = world.network.network_faults
    world.network.network_faults = NetworkFaults(delay_s=network_faults.delay_s, jitter_s=network_faults.jitter_s)
    for node in world.nodes.values():
        node.audits_seen = 0.0


def is_at_rest(world: World) -> bool:
    """Whether nothing changes the state of the nodes now, and nothing has changed it for ``QUIET_S``."""
    agenda = world.agenda
    if agenda.open_work or world.now - agenda.worked_s < QUIET_S:
        return False
    cores = [scheduler.core for scheduler in world.schedulers.values()]
    under_way = any(len(core.requests) or len(core.claims) for core in cores)
    return not under_way and not any(node.has_work for node in world.nodes.values())


def refused_for_each_other(asked: SentRequest) -> int:
    """The refusals of servers of one request because of other ones of it: their claims may arrive in any order, and the
    agent reports once that it has more members of a soft group than the decision saw."""
    if len(asked.servers) == 1 or asked.outcome is None:
        return 0
    attempts = asked.outcome.record.attempts
    return sum(attempt.outcome == RefusalCode.GROUP_CHANGED for attempt in attempts)


def refused_for_unseen(asked: SentRequest, unseen: frozenset[str]) -> int:
    """The refusals of Placement for these nodes, which hold allocations that no scheduler can know."""
    if asked.outcome is None:
        return 0
    attempts = asked.outcome.record.attempts
    return sum(attempt.outcome == WriteCode.NO_CAPACITY and attempt.node in unseen for attempt in attempts)


class Rest:
    """The checks after the repair of a world.  Call the methods in their order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._check = world.checkers.check
        self.count_snapshots()

    def count_snapshots(self) -> None:
        """Count the snapshots from now on."""
        self._snapshots = Counter(self._world.checkers.snapshots)
        self._told_to_fit = self._rechecks()

    def _rechecks(self) -> Counter[str]:
        return sum((scheduler.told_to_fit for scheduler in self._world.schedulers.values()), Counter[str]())

    def catch_up(self) -> None:
        """Check that all rows become fresh within the bound."""
        world, heartbeat_s = self._world, self._world.sizes.heartbeat_interval_s
        for _ in range(CAUGHT_UP_HEARTBEATS):
            world.run(heartbeat_s)
            behind = [name for name in self._behind()]
            if not behind:
                break
        self._check("caught_up", not behind, "world", len(behind), "rows, for example", *behind[:1])

    def _behind(self) -> list[str]:
        return [
            f"{scheduler.name}:{node.node}"
            for scheduler in self._world.schedulers.values()
            for node in self._world.nodes.values()
            if node.agent is not None and not self._is_newest(scheduler, node.node)
        ]

    def _is_newest(self, scheduler: SimScheduler, node: str) -> bool:
        table = scheduler.core.table
        newest = table.version(node) == self._world.checkers.newest_of(node)
        return newest and table.freshness(node) is Freshness.FRESH

    def wait(self, show: Callable[[], None] | None = None) -> None:
        """Run until the world is at rest, at most ``REST_MAX_S``.  ``show`` is called after each step."""
        world = self._world
        until_s = world.now + REST_MAX_S
        while not is_at_rest(world) and world.now < until_s:
            world.run(REST_STEP_S)
            if show is not None:
                show()

    def settled(self) -> None:
        """Check that nothing is under way, and that every table equals the state of the nodes and of Placement."""
        world = self._world
        for scheduler in world.schedulers.values():
            core = scheduler.core
            requests, claims = len(core.requests), len(core.claims)
            left = (requests, "requests", claims, "claims")
            self._check("no_request_left", not requests and not claims, scheduler.name, *left)
            world.checkers.balance(scheduler)
            kept = sorted(node for node in world.gone if node in core.table)
            self._check("gone", not kept, scheduler.name, "has rows of", *kept)
            world.disabled_hosts.check_at_rest(scheduler)
            for node in world.nodes.values():
                self._check_converged(scheduler, node)
        self._check_answers()
        self._check_owners()
        self._check_living()
        self._check_moved()
        self._check_snapshots()

    def ask_alone(self) -> None:
        """Check that requests that come one at a time are answered without a refusal."""
        world = self._world
        before, excused = self._endings(), 0
        for _ in range(LONE_REQUESTS if world.schedulers else 0):
            unseen = self._nodes_with_unseen()
            asked = world.ask()
            world.run(LONE_EVERY_S)
            excused += refused_for_each_other(asked) + refused_for_unseen(asked, unseen)
        refused = self._endings() - before
        count = sum(refused[ending.value] for ending in REFUSALS) - excused
        self._check("never_refused", not count, "world", dict(refused))

    def _nodes_with_unseen(self) -> frozenset[str]:
        """The nodes that hold allocations of stopped schedulers which a row lacks (see ``_check_versus_world``)."""
        tables = [scheduler.core.table for scheduler in self._world.schedulers.values()]
        return frozenset(
            node
            for node in self._world.nodes
            for uuid in self._world.placement.consumers_of(node)
            if self._is_lost(uuid) and any(uuid not in table.view(node).consumers for table in tables)
        )

    def be_quiet(self) -> None:
        """Check that only heartbeats and Hellos are sent."""
        self._let_agents_read()
        self._world.run(AFTER_LONE_S)
        self._outlast_second_claims()
        before = self._sent()
        self._world.run(REST_S)
        sent = self._sent() - before
        noise = {name: sent[name] for name in NOISE if sent[name]}
        self._check("quiet", not noise, "network", noise)

    def _let_agents_read(self) -> None:
        """Let the agents read the allocations: they publish the generations that they do not know yet, which any other
        read would show them meanwhile.  The tables were compared before, so it hides nothing."""
        for node in self._world.nodes.values():
            if node.agent is not None:
                node.agent.allocations.ask(node.clock.now)
                node.feed(Tick())

    def _sent(self) -> Counter[str]:
        """The messages that were sent.  A window asks whether an agent is there when the longest time between two
        heartbeats has passed, which is also the time of the next one: this is no noise."""
        sent = Counter(self._world.network.counters)
        sent["sent_resync"] -= window_counters(self._world)["asked_whether_there"]
        return sent

    def _outlast_second_claims(self) -> None:
        """Wait for the agents to end the claims that came after their servers, because each end is an increment."""
        until_s = self._world.now + AUDITED_AFTER_S + AFTER_LONE_S
        while self._world.now < until_s and any(map(self._has_second_claim, self._world.nodes.values())):
            self._world.run(REST_STEP_S)
        self._world.run(REST_STEP_S)

    def _endings(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for scheduler in self._world.schedulers.values():
            total.update(scheduler.core.claims.endings)
        return total

    # -- tables

    def _check_converged(self, scheduler: SimScheduler, node: SimNode) -> None:
        table, name, where = scheduler.core.table, node.node, scheduler.name
        self._check("converged", not table.outstanding(name), where, name, "own claims left")
        self._check_versus_world(scheduler, node)
        freshness = table.freshness(name)
        if node.agent is None:
            provisional = freshness is Freshness.PROVISIONAL
            self._check("converged", provisional, where, name, "has no agent, and is", freshness)
            return
        self._check("converged", freshness is Freshness.FRESH, where, name, "is", freshness)
        published = self._world.checkers.published(name)
        assert published is not None, "its agent has spoken"
        version = table.version(name)
        newest = version == published.version
        self._check("converged", newest, where, name, version, "agent", published.version)
        same = table.digest(name) == published.digest
        self._check("converged", same, where, name, "other content at", version)

    def _check_versus_world(self, scheduler: SimScheduler, node: SimNode) -> None:
        """Check that a row equals Placement and the tracker.

        It may lack allocations that a stopped scheduler wrote while this node's agent did not report: no event
        follows for them, so only the agent's next full read shows them.
        """
        view, name = scheduler.core.table.view(node.node), node.node
        written = self._world.placement.consumers_of(name)
        shown = [held for uuid, held in written.items() if uuid in view.consumers or not self._is_lost(uuid)]
        shown += [held.allocations for uuid, held in view.consumers.items() if self._is_unnoticed(name, uuid)]
        row, used = view.used.get(name, {}), sum_amounts(shown).get(name, {})
        self._check("converged", view.nodename == node.nodename, scheduler.name, name, "is named", view.nodename)
        same = same_allocations({name: row}, {name: used})
        self._check("converged", same, scheduler.name, name, "row", row, "Placement", used)
        lost = {uuid for uuid in view.members if self._is_lost(uuid)}
        extra = view.members - lost ^ node.tracker.instances.keys() - lost
        self._check("converged", not extra, scheduler.name, name, "members", sorted(extra))

    # -- owners

    def _check_answers(self) -> None:
        living = {scheduler.name for scheduler in self._world.schedulers.values()}
        for asked in self._world.users.asked.values():
            if asked.scheduler in living:
                answered = asked.outcome is not None
                request_id = asked.request.request_id
                self._check("no_request_left", answered, asked.scheduler, request_id, "unanswered")

    def _check_owners(self) -> None:
        owners = self._world.owners()
        for consumer, allocations in self._world.placement.consumers.items():
            server = owners.get(consumer)
            owned = server is not None and server.state is ServerState.LIVES and server.node in allocations
            orphaned = server is not None and self._world.lost_with_scheduler(server)
            kept = self._world.scheduled_moves.is_kept(consumer)
            what = (consumer, server and (server.state, "on", server.node or "nothing"))
            self._check("no_orphans", owned or orphaned or kept, ", ".join(allocations), *what)
            recorded = consumer in self._world.placement.records
            self._check("no_lost_records", recorded, ", ".join(allocations), *what)
        for node in self._world.nodes.values():
            if node.agent is not None:
                held = [one for one in node.agent.ledger.pending.values() if not self._is_second(node, one)]
                claims = [one.claim for one in held if not self._is_unnoticed(node.node, one.claim.consumer)]
                left = [claim.claim_id for claim in claims if not self._is_lost(claim.consumer)]
                self._check("no_orphans", not left, node.node, "pending:", left)

    def _check_living(self) -> None:
        """Check that the servers whose answers were heard have what those named."""
        world = self._world
        for server in world.living.values():
            if server.state is not ServerState.LIVES or world.repeats.may_be_taken(server):
                continue
            stands = world.placement.consumers.get(server.uuid, {}).keys()
            stays = server.uuid not in world.scheduled_moves.amounts
            right = stands == {server.node} if stays else server.node in stands
            self._check("heard_stands", right, server.node, server.uuid, "has", sorted(stands))

    def _check_moved(self) -> None:
        """Check the allocations of the servers that schedulers have moved, or tried to move."""
        for consumer, amounts in self._world.scheduled_moves.amounts.items():
            server = self._world.living.get(consumer)
            if server is not None and server.state is ServerState.LIVES:
                part = None if self._is_lost(consumer) else {server.node: amounts}
                self._world.ports.check(consumer, server.node, part)

    def _is_lost(self, consumer: str) -> bool:
        server = self._world.owners().get(consumer)  # None: a migration
        return server is not None and self._world.lost_with_scheduler(server)

    def _is_second(self, node: SimNode, held: PendingClaim) -> bool:
        """Whether this claim came after its server: nova-compute counts the server already.  The agent ends it when no
        resize can wait for it any more (``compute_agent/claim_ledger.py``)."""
        server = self._world.owners()[held.claim.consumer]
        lives_here = server.state is ServerState.LIVES and server.node == node.node
        return lives_here and "instance" in held.known_as

    def _has_second_claim(self, node: SimNode) -> bool:
        """Whether any such claim is pending."""
        pending = node.agent.ledger.pending.values() if node.agent is not None else ()
        return any(self._is_second(node, held) for held in pending)

    def _is_unnoticed(self, node: str, consumer: str) -> bool:
        """Whether a move's allocations on this node were taken back by the conductor, which no event tells."""
        taken = (node, consumer) in self._world.scheduled_moves.unnoticed
        return taken and consumer not in self._world.placement.consumers_of(node)

    def _check_snapshots(self) -> None:
        sent, rechecks = self._world.checkers.snapshots - self._snapshots, self._rechecks() - self._told_to_fit
        for node in self._world.nodes:
            most = SNAPSHOTS_MAX * (1 + len(self._world.schedulers)) + max(0, rechecks[node] - SNAPSHOTS_MAX)
            self._check("few_snapshots", sent[node] <= most, node, sent[node], "of", most)
