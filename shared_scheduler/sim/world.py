# SPDX-License-Identifier: Apache-2.0
"""The deterministic world: real scheduler and agent cores, everything around them simulated.

The seed determines everything: each part draws from its own generator, which is created from the seed and the part's
name, so that a change in one part does not change the random choices of the others.  The cells use one message queue.
Virtual time is in seconds from the beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from random import Random

from compute_agent import agent_settings
from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decision
from shared_scheduler.decision.request import Request
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.limits import HEARTBEAT_INTERVAL_S, SILENT_AFTER_S
from shared_scheduler.protocol.messages import Allocations, Claim, Leaf, Message, Release
from shared_scheduler.sim.agenda import Agenda, Trace
from shared_scheduler.sim.attached_ports import AttachedPorts
from shared_scheduler.sim.checkers import Checkers
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.disabled_hosts import DisabledHosts
from shared_scheduler.sim.evacuations import Evacuations
from shared_scheduler.sim.found_changes import FoundChanges
from shared_scheduler.sim.lies import LyingNode
from shared_scheduler.sim.live_migrations import Moves
from shared_scheduler.sim.network import Network, NetworkFaults
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.placement import SimPlacement, Write
from shared_scheduler.sim.repeated_requests import RPC_S, RepeatedRequests
from shared_scheduler.sim.scheduled_moves import ScheduledMoves
from shared_scheduler.sim.schedulers import DECISIONS, SimScheduler, cell_name
from shared_scheduler.sim.selections import Operators
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.workload import RACK, SentRequest, Server, ServerState, Users, Workload, disturb_group, placed
from shared_scheduler.table.row import Version

#: a caller waits this much longer than its scheduler may take
CALLER_GRACE_S = 1.0
#: who writes the allocations of alternates
CONDUCTOR = "conductor"
#: mean time after which a user requests a server again that got no host
AGAIN_S = 3.0
#: a delete waits this long for a live migration, possibly several times
AFTER_MOVE_S = 1.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the world, and its parameters without faults."""

    nodes: int = 50
    cells: int = 1  # each has every so many-th node
    schedulers: int = 3
    agentless: float = 0.0  # part of the nodes without an agent
    newer: float = 0.0  # part of the agents and schedulers that are of a later release
    size: Size = field(default_factory=Size)
    placement_s: float = 0.005  # mean time of one call to Placement
    heartbeat_interval_s: float = 5.0
    build_queue_s: float = 0.5  # mean time between the cast of a build and its claim
    poll_s: float = 5.0  # interval of the reads of nodes without an agent
    racks: int = 3  # only servers with a label are spread over them
    merged_moves: tuple[str, ...] = ()  # as the product's option
    decisions: DecisionSettings = DECISIONS


def settings_for(sizes: Sizes) -> SchedulerSettings:
    """The product's own, for agents with this heartbeat interval."""
    return SchedulerSettings(silent_after_s=SILENT_AFTER_S * sizes.heartbeat_interval_s / HEARTBEAT_INTERVAL_S)


class World:
    """The simulated cloud.  ``faults.py`` injects faults, ``checkers.py`` and ``report.py`` read it."""

    def __init__(
        self,
        seed: int,
        sizes: Sizes,
        workload: Workload,
        network_faults: NetworkFaults,
        settings: SchedulerSettings | None = None,
        stopwatch: Callable[[], float] | None = None,
        detailed_lines: int = 0,
        decode_each: bool = False,
    ) -> None:
        self.seed = seed
        self.sizes = sizes
        self.agenda = Agenda()
        self.trace = Trace(self.agenda, detailed_lines)
        channel_rng = self.rng("network")
        self.network = Network(self.agenda, channel_rng, network_faults, self.trace, decode_each, self._encoded)
        self.placement = SimPlacement(dropped=self._record_dropped, stored=self._stored)
        self.settings = settings if settings is not None else settings_for(sizes)
        self.users = Users(workload, self.rng("users"))
        self.counters: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        #: endings of the claims of schedulers that were stopped
        self.dead_endings: Counter[str] = Counter()
        #: consumers of claims that had not ended when their scheduler was stopped
        self.unfinished: set[str] = set()
        self._dead_step_s: list[float] = []
        self.checkers = Checkers(self)
        #: instances that are built and stay where they are, by uuid
        self.living: dict[str, Server] = {}
        self.liars: list[LyingNode] = []
        #: service hosts that are disabled because their nodes will go, and the nodes that have gone
        self.leaving: set[str] = set()
        self.gone: set[str] = set()
        self.is_open = True
        self.repeats = RepeatedRequests(self)
        self.ports = AttachedPorts(self)
        self.scheduled_moves = ScheduledMoves(self)
        self.evacuations = Evacuations(self)
        self.found_changes = FoundChanges(self)
        #: nodes whose newest version some scheduler did not have when the faults ended
        self.behind_at_healing = 0
        self._stopwatch = stopwatch
        self._edge_rng = self.rng("edge")
        self._again_rng = self.rng("again")
        self._around = Surroundings(self.agenda, self.network, self.placement, self.trace, self.placement_delay_s)
        self._placement_down_s = float("-inf")
        self.nodes = {node.node: node for node in map(self._make_node, range(sizes.nodes))}
        self.schedulers: dict[int, SimScheduler] = {}
        self._lives: Counter[int] = Counter()
        self._start()

    def rng(self, name: str) -> Random:
        """The generator of one part of this world."""
        return Random(f"{self.seed}/{name}")

    @property
    def now(self) -> float:
        """The virtual time, in seconds since the beginning."""
        return self.agenda.now

    # -- beginning

    def _make_node(self, number: int) -> SimNode:
        heartbeats = agent_settings.AgentSettings(heartbeat_interval_s=self.sizes.heartbeat_interval_s)
        return SimNode(
            number,
            self._around,
            self.rng(f"node-{number}"),
            heartbeats,
            self.sizes.size,
            self._edge_rng.random() < self.sizes.newer,
            self.checkers.agent_sent,
            cell_name(number % self.sizes.cells),
        )

    def _start(self) -> None:
        without = int(self.sizes.nodes * self.sizes.agentless)
        for i, node in enumerate(self.nodes.values()):
            if i >= without:
                self.agenda.after(self._edge_rng.random(), node.start_agent)
        for number in range(self.sizes.schedulers):
            self.start_scheduler(number)
        self.agenda.after(1.0 + self.users.next_pause_s(), self._arrive)
        self.operators = Operators(self, self.rng("operators"))
        self.disabled_hosts = DisabledHosts(self, self.rng("disabled_hosts"), self.checkers.check)
        Moves(self, self.rng("moves"), self.users.workload.migrations_per_s)

    def start_scheduler(self, number: int) -> SimScheduler:
        """Start scheduler ``number``, with the bulk read that the service does at start."""
        assert number not in self.schedulers, "one life at a time"
        self._lives[number] += 1
        self.schedulers[number] = scheduler = SimScheduler(
            number,
            self._lives[number],
            self._around,
            self.rng(f"scheduler-{number}.{self._lives[number]}"),
            self.settings,
            self,
            self._stopwatch,
            self._edge_rng.random() < self.sizes.newer,
            self.sizes.decisions,
            tuple(map(cell_name, range(self.sizes.cells))),
        )
        for cell in scheduler.cells:
            nodes = (node for node in self.nodes.values() if node.cell == cell)
            services = tuple(ServiceFacts(node.host, disabled=node.host in self.leaving) for node in nodes)
            scheduler.feed(ev.ServicesRead(cell, services, True))
        if self.users.workload.spread:
            scheduler.feed(ev.AggregatesRead(self._racks(), complete=True))
        for node in self.nodes.values():
            scheduler.feed(self._node_read(scheduler, node))
        scheduler.start()
        self.agenda.after(self.sizes.poll_s, self._poll, scheduler)
        return scheduler

    def rack_of(self, node: str) -> str:
        """The rack of a node."""
        return f"rack-{[*self.nodes].index(node) % self.sizes.racks}"

    def _racks(self) -> tuple[AggregateFacts, ...]:
        hosts: dict[str, set[str]] = {}
        for name, node in self.nodes.items():
            hosts.setdefault(self.rack_of(name), set()).add(node.host)
        return tuple(
            AggregateFacts(number, rack, rack, frozenset(its), {RACK: rack})
            for number, (rack, its) in enumerate(sorted(hosts.items()), 1)
        )

    def kill_scheduler(self, number: int) -> None:
        """End a scheduler, with all its requests."""
        scheduler = self.schedulers.pop(number)
        self._dead_step_s.extend(scheduler.step_s)
        self.dead_endings.update(scheduler.core.claims.endings)
        self.unfinished.update(claim.intent.consumer for claim in scheduler.core.claims.open())
        scheduler.kill()
        for asked in self.users.asked.values():
            if asked.scheduler == scheduler.name and asked.outcome is None:
                self.counters["requests_lost_with_scheduler"] += 1

    def crash(self, scheduler: SimScheduler) -> None:
        """End a scheduler in the middle of a step."""
        self.kill_scheduler(scheduler.number)

    def placement_delay_s(self) -> float:
        """The time of one call to Placement, from request to answer."""
        return self.sizes.placement_s * (0.5 + self._edge_rng.random())

    # -- the edges of schedulers

    def _node_read(self, scheduler: SimScheduler, node: SimNode) -> ev.NodeRead:
        report = node.tracker.report()
        leaves = dict(report.leaves)
        for facts in self.placement.tree(node.node):
            leaves[f"rp.{facts.uuid}"] = {
                "name": facts.name,
                "parent": None,
                "generation": facts.generation,
                "inventories": {rc: [*row.to_leaf()] for rc, row in facts.inventories.items()},
                "traits": list[Leaf](sorted(facts.traits)),
                "aggregates": list[Leaf](sorted(facts.aggregates)),
            }
        left = (move.server for move in self.scheduled_moves.evacuated_from(node))
        gone = {server.uuid for server in left if server.node != node.node}
        members = frozenset(node.tracker.instances.keys() - gone)
        consumers = self.placement.consumers_of(node.node)
        generations, now = self.placement.generations(consumers), scheduler.clock.now
        return ev.NodeRead(node.cell, node.node, node.host, node.nodename, leaves, consumers, members, now, generations)

    def refresh(self, scheduler: SimScheduler, node: str, in_s: float) -> None:
        """Read a node again for one scheduler."""
        self.agenda.after(in_s + self.placement_delay_s(), self._refreshed, scheduler, node)

    def _refreshed(self, scheduler: SimScheduler, node: str) -> None:
        if not (self.placement.answers and scheduler.up):
            return
        if (found := self.nodes.get(node)) is not None:
            scheduler.feed(self._node_read(scheduler, found))
        else:
            scheduler.feed(ev.NodeNotFound(node, scheduler.clock.now))

    def _poll(self, scheduler: SimScheduler) -> None:
        """Read rows without an agent again, as the service's poll does."""
        if not scheduler.up:
            return
        for node in self.nodes:
            if not scheduler.core.nodes.agent_speaks_for(node):
                self._refreshed(scheduler, node)
        self.agenda.after(self.sizes.poll_s, self._poll, scheduler)

    def stepped(self, scheduler: SimScheduler, event: ev.Event) -> None:
        """A scheduler took a step."""
        self.checkers.scheduler_stepped(scheduler, event)

    def sent(self, scheduler: SimScheduler, message: Message) -> None:
        """A scheduler sends a message to an agent."""
        if isinstance(message, Claim):
            self.checkers.cast(scheduler, message)
            for liar in self.liars:
                liar.overhear(scheduler.name, message)
        elif isinstance(message, Release):
            self.checkers.released(message)

    def is_needed(self, consumer: str, allocations: Allocations) -> bool | None:
        """What Nova's databases say of a server.  No cell has one that is asked for the first time."""
        server = self.owners()[consumer]
        match server.state:
            case ServerState.LIVES:
                return server.node in allocations
            case ServerState.ASKED:
                awaited = server.tries > 1 and self._is_awaited(self.users.asked[server.request_id])
                return None if awaited else False
            case ServerState.BUILDING | ServerState.MOVES:
                return None
        return False

    def is_merged_move(self, consumer: str) -> bool:
        """Whether an operation of this server is under way whose allocations are merged."""
        return self.scheduled_moves.type_of(consumer) in self.sizes.merged_moves

    def is_in_cell(self, consumer: str) -> bool:
        """Whether the conductor has created a server in a cell, which it does after an answer."""
        return self.owners()[consumer].state in (ServerState.BUILDING, ServerState.LIVES, ServerState.MOVES)

    def _is_awaited(self, asked: SentRequest) -> bool:
        """Whether the conductor waits for an answer, or has got one with hosts."""
        return asked.outcome is not None or self.now <= asked.deadline_s + CALLER_GRACE_S

    def taken_back(self, scheduler: SimScheduler, consumer: str, allocations: Allocations) -> None:
        """A scheduler deletes an allocation that it wrote."""
        self.checkers.taken_back(scheduler, self.owners()[consumer], allocations)

    def change_found(self, scheduler: SimScheduler, effect: ef.ExamineChange) -> None:
        """A scheduler asks what a foreign change was."""
        self.found_changes.told(scheduler.name, effect)

    def members_of(self, group: str) -> dict[str, bool]:
        """The members of a server group or label, as Nova's API database has them now."""
        return self.users.members_of(group)

    def hosts_in(self, cell: str) -> dict[str, str]:
        """The service host of each server in a cell that is built, as Nova's database has it now."""
        built = ((server, self.nodes.get(server.node)) for server in self.living.values())
        return {server.uuid: node.host for server, node in built if node is not None and node.cell == cell}

    def undecided_hosts(self) -> dict[str, str]:
        """The same of all cells, without servers that move to a host that Nova's record of the move names."""
        cells = {node.cell for node in self.nodes.values()}
        every = {uuid: host for cell in cells for uuid, host in self.hosts_in(cell).items()}
        return {uuid: host for uuid, host in every.items() if not self._has_target(self.living[uuid])}

    def _has_target(self, server: Server) -> bool:
        return server.state is ServerState.MOVES and not self.scheduled_moves.is_undecided(server.uuid)

    def applied(self, scheduler: SimScheduler, node: str, before: Version, now: Version) -> None:
        """An increment changes a row."""
        self.checkers.applied(scheduler, node, before, now)

    def decided(self, scheduler: SimScheduler, request: Request, index: int, decision: Decision) -> None:
        """A scheduler has weighed hosts."""
        self.checkers.groups.decided(scheduler, request, index, decision)
        self.checkers.soft_choices.decided(scheduler, request, index, decision)
        self.checkers.left_out_hosts.decided(scheduler, request, index, decision)

    def assumed(self, scheduler: SimScheduler, node: str, claim_id: str, consumer: str) -> None:
        """A claim of a scheduler begins."""
        self.checkers.claimed_again(node, claim_id, consumer)
        self.checkers.over_commits.assumed(scheduler, node, claim_id, consumer)
        self.checkers.groups.assumed(scheduler, node, claim_id, consumer)
        self.checkers.soft_choices.assumed(scheduler, node, claim_id, consumer)
        self.checkers.left_out_hosts.assumed(scheduler, node, consumer)

    # -- requests

    def close(self) -> None:
        """No further requests, deletes, moves and builds that fail."""
        self.is_open = False

    def _arrive(self) -> None:
        if not self.is_open:
            return
        if self.schedulers:
            self.ask()
        self.agenda.after(self.users.next_pause_s(), self._arrive)

    def ask(self) -> SentRequest:
        """Send one request to one of the running schedulers."""
        scheduler = self.schedulers[self._edge_rng.choice(sorted(self.schedulers))]
        asked = self.users.ask(scheduler.name, self.now, self.host_of)
        self.trace.note("users", f"{asked.request.request_id} to {scheduler.name}")
        self.counters["requests"] += 1
        delay_s = RPC_S * self._edge_rng.random()
        self.agenda.work(delay_s, scheduler.ask, asked.request, asked.deadline_s)
        self.repeats.sent(asked)
        return asked

    def answered(self, scheduler: SimScheduler, effect: ef.Answer | ef.Fail) -> None:
        """A scheduler answers: the conductor receives the answer after a while."""
        asked = self.users.asked[effect.request.request_id]
        self.checkers.answered(scheduler, asked, effect)
        asked.ended_by[scheduler.name] += 1
        self.repeats.ended(asked)
        unfit_s = self.repeats.taken_back_after_s(asked) if isinstance(effect, ef.Answer) else None
        if unfit_s is not None:
            self.trace.note(scheduler.name, f"cannot send the answer to {asked.request.request_id}")
            self.agenda.work(unfit_s, self._take_answer_back, scheduler, asked, effect)
            return
        if asked.outcome is not None:
            self._answered_again(scheduler, asked, effect)
            return
        is_awaited = self._is_awaited(asked)
        asked.outcome, asked.ended_s = effect, self.now
        self.latencies_s.append(self.now - asked.asked_s)
        if isinstance(effect, ef.Fail):
            self.counters[f"failed_{effect.code.value}"] += 1
            self.trace.note(scheduler.name, f"fails {asked.request.request_id}: {effect.text}")
            self._failed(asked)
            return
        if not is_awaited:
            self.trace.note(scheduler.name, f"the answer to {asked.request.request_id} has no receiver")
            self.agenda.work(0.0, scheduler.feed, ev.AnswerUnheard(effect.claim_ids, cause=effect.cause))
            self._unheard(asked)
            return
        self.counters["answered"] += 1
        where = " ".join(choice.node for choice in placed(effect))
        self.trace.note(scheduler.name, f"answers {asked.request.request_id}: {where}")
        delay_s = RPC_S * self._edge_rng.random() + self.repeats.conductor_s(asked)
        self.agenda.work(delay_s, self._build_all, asked, effect)

    def _unheard(self, asked: SentRequest) -> None:
        """Nobody hears the first answer to a request."""
        self.counters["unheard"] += 1
        asked.unheard = True
        for server in asked.servers:
            disturb_group(server)
        self._failed(asked)

    def _take_answer_back(self, scheduler: SimScheduler, asked: SentRequest, answer: ef.Answer) -> None:
        """A scheduler cannot send an answer: it takes it back, and its caller hears a failure, unless it has heard
        another reply."""
        if not scheduler.up:
            return
        scheduler.feed(ev.AnswerUnheard(answer.claim_ids, cause=answer.cause))
        if asked.outcome is None:
            asked.outcome, asked.ended_s = answer, self.now
            self._unheard(asked)

    def _answered_again(self, scheduler: SimScheduler, asked: SentRequest, effect: ef.Answer | ef.Fail) -> None:
        """A request is ended a second time.  Its caller does not hear that; what it wrote beside a failure is
        deleted at once, which is the task of ``sync/orphan_sweeper.py``."""
        heard = isinstance(asked.outcome, ef.Answer) and not asked.unheard
        over = (ServerState.FAILED, ServerState.DELETED)
        self.counters["ended_twice"] += 1
        self.trace.note(scheduler.name, f"ends {asked.request.request_id} as the second one")
        if isinstance(effect, ef.Answer) and not (heard and all(one.state not in over for one in asked.servers)):
            unheard = ev.AnswerUnheard(effect.claim_ids, cause=effect.cause)
            self.agenda.work(self.repeats.swept_after_s(asked), scheduler.feed, unheard)

    def _failed(self, asked: SentRequest) -> None:
        """The servers get no host; some users ask for them again."""
        if asked.moved is not None:
            asked.moved(None)
            return
        for server in asked.servers:
            server.state = ServerState.FAILED
        if self._again_rng.random() < self.users.workload.asks_again:
            self.agenda.after(self._again_rng.expovariate(1 / AGAIN_S), self._ask_again, asked)

    def host_of(self, server: Server) -> str:
        """The service host of a server that was built."""
        return self.nodes[server.node].host

    def _ask_again(self, asked: SentRequest) -> None:
        if not (self.is_open and self.schedulers):
            return
        scheduler = self.schedulers[self._again_rng.choice(sorted(self.schedulers))]
        again = self.users.ask_again(asked, scheduler.name, self.now, self.host_of)
        self.trace.note("users", f"{again.request.request_id} to {scheduler.name}")
        self.counters["requests"] += 1
        self.agenda.work(RPC_S, scheduler.ask, again.request, again.deadline_s)

    # -- builds

    def _build_all(self, asked: SentRequest, answer: ef.Answer) -> None:
        if asked.moved is not None:
            asked.moved(answer)
            return
        for server, inner in zip(asked.servers, answer.choices, strict=True):
            server.state, server.node = ServerState.BUILDING, inner[0].node
            self.counters["instances"] += 1
            self._cast_build(server, inner[1:])

    def _cast_build(self, server: Server, alternates: tuple[ef.Choice, ...]) -> None:
        delay_s = self._edge_rng.expovariate(1 / self.sizes.build_queue_s)
        self.agenda.work(delay_s, self._build, server, alternates)

    def _build(self, server: Server, alternates: tuple[ef.Choice, ...]) -> None:
        node, workload, rng = self.nodes[server.node], self.users.workload, self._edge_rng
        fails = self.is_open and rng.random() < workload.build_fails and not server.twins
        phantom = fails and rng.random() < workload.phantoms

        def done(built: bool) -> None:
            self._built(server, alternates, built)

        if fails and not phantom:
            node.refuse(server.uuid)
            done(False)
        else:
            node.build(server.uuid, server.usage, server.topology, phantom, done)

    def _built(self, server: Server, alternates: tuple[ef.Choice, ...], built: bool) -> None:
        if not built:
            self.counters["builds_failed"] += 1
            if server.group is not None and server.group.label:
                disturb_group(server)
            self.placement.delete(server.uuid)
            self.checkers.drop_claims_of(server.node, server.uuid)
            self._try_alternate(server, alternates)
            return
        server.state = ServerState.LIVES
        self.living[server.uuid] = server
        lifetime_s = self._edge_rng.expovariate(1 / self.users.workload.lifetime_s)
        self.agenda.after(lifetime_s, self.delete, server)

    def _try_alternate(self, server: Server, alternates: tuple[ef.Choice, ...]) -> None:
        """The conductor claims the next alternate in Placement itself."""
        for i, choice in enumerate(alternates):
            assert choice.candidate is not None
            if self.placement.up and self._claim_alternate(server, choice.candidate.allocations):
                self.counters["alternates_used"] += 1
                disturb_group(server)
                self.checkers.drop_claims_of(choice.node, server.uuid)
                server.node = choice.node
                self._cast_build(server, alternates[i + 1 :])
                return
        server.state = ServerState.FAILED
        self.counters["builds_given_up"] += 1

    def _claim_alternate(self, server: Server, allocations: Allocations) -> bool:
        write = self.placement.begin_write(server.uuid, allocations, writer=CONDUCTOR)
        return self.placement.end_write(write)[0] == ev.WriteCode.WRITTEN

    def delete(self, server: Server) -> None:
        """A user deletes a server, unless it was deleted already."""
        if not self.is_open or server.uuid not in self.living:
            return  # the last ones stay, so that there is a state to compare
        if server.state is ServerState.MOVES:
            self.agenda.after(AFTER_MOVE_S, self.delete, server)
            return
        self.remove(server)
        self.nodes[server.node].delete(server.uuid)

    def remove(self, server: Server) -> None:
        """Note that a server is deleted."""
        server.state = ServerState.DELETED
        del self.living[server.uuid]
        self.counters["deleted"] += 1
        if server.group is not None:
            server.group.left_s = self.now

    def owners(self) -> Mapping[str, Server]:
        """Every instance that was ever requested, by uuid."""
        return self.users.servers

    def lost_with_scheduler(self, server: Server) -> bool:
        """Its scheduler stopped before it answered, or before it deleted what it wrote: such allocations have no owner
        until a scheduler finds the server in cell 0 (``sync/orphan_sweeper.py``).  If the server was asked for again,
        or its request was delivered again, and it was deleted, the next audit of its host finds them (nova-compute's
        ``_remove_deleted_instances_allocations``).
        """
        asked = self.users.asked[server.request_id]
        alive = {scheduler.name for scheduler in self.schedulers.values()}
        unanswered = asked.outcome is None and asked.scheduler not in alive
        failed = asked.unheard or isinstance(asked.outcome, ef.Fail)
        unheard = asked.unheard and asked.scheduler not in alive
        is_over = failed or server.state is ServerState.DELETED or self.scheduled_moves.is_evacuation(server.uuid)
        again = bool(server.twins) and server.state is ServerState.DELETED
        lost = again or server.uuid in self.unfinished or not server.twins <= alive
        return unanswered or unheard or (is_over and lost)

    def set_placement(self, up: bool) -> None:
        """Stop Placement, or start it again."""
        self.trace.note("placement", "is up" if up else "is down")
        self.placement.up = up
        self._placement_down_s = self.now

    def mute_placement(self, mute: bool) -> None:
        """Let no scheduler get answers of Placement, or again."""
        self.trace.note("placement", "is not heard" if mute else "is heard")
        self.placement.mute = mute
        self._placement_down_s = self.now

    def let_placement_lose(self, for_s: float) -> None:
        """Let each write that begins now fail after this time with a conflict; 0: well again."""
        self.trace.note("placement", f"loses races for {for_s:.3f} s")
        self.placement.loses_s = for_s
        self._placement_down_s = self.now

    def _encoded(self, sender: str, message: Message, problem: str) -> None:
        self.checkers.check("sendable", not problem, sender, type(message).__name__, problem)

    def _record_dropped(self, writer: str, consumer: str, is_lost: bool) -> None:
        self.checkers.check("no_lost_records", not is_lost, writer, consumer, "had allocations when its record went")

    def _stored(self, consumer: str, grown: AbstractSet[str], write: Write | None) -> None:
        self.checkers.over_commits.stored(consumer, grown, write)
        if write is not None:
            self.checkers.replaced(write)

    def slow_placement(self, consumer_s: float, call_s: float = 0.0) -> None:
        """Let Placement take this much longer for each server that is written, and for each call; 0: well again."""
        self.trace.note("placement", f"takes {consumer_s:.3f} s a server, {call_s:.3f} s a call")
        self.placement.consumer_s, self.placement.call_s = consumer_s, call_s
        self._placement_down_s = self.now

    def is_placement_well(self, since_s: float) -> bool:
        """Whether Placement answers, and has done so, as fast as usual, since this time."""
        return self.placement_ill_s <= since_s

    @property
    def placement_ill_s(self) -> float:
        """When Placement last did not answer, or not as fast as usual."""
        placement = self.placement
        as_usual = placement.answers and not placement.takes_s(1) and not placement.loses_s
        return self._placement_down_s if as_usual else self.now

    def was_down_since(self, since_s: float) -> bool:
        """Whether Placement was stopped or started after ``since_s``."""
        return self._placement_down_s >= since_s

    def lags(self) -> dict[str, int]:
        """For each node: sequences that exist and that the schedulers together have not applied."""
        lags = dict.fromkeys(self.nodes, 0)
        for scheduler in self.schedulers.values():
            for known in scheduler.core.nodes:
                newest = self.checkers.newest_of(known.node)
                if newest is not None:
                    same_life = known.window.epoch == newest.epoch
                    applied = known.window.sequence if same_life else 0
                    lags[known.node] = lags.get(known.node, 0) + max(0, newest.sequence - (applied or 0))
        return lags

    # -- time

    def all_step_s(self) -> list[float]:
        """Wall times of every decision, if a clock was given."""
        found = list(self._dead_step_s)
        for scheduler in self.schedulers.values():
            found.extend(scheduler.step_s)
        return found

    def run(self, for_s: float) -> None:
        """Advance virtual time."""
        self.agenda.run_until(self.now + for_s)
