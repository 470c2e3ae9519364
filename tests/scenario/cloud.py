# SPDX-License-Identifier: Apache-2.0
"""The second tiny language: stories about a whole cloud, with the real cores of both sides.

Calls to Placement and to the databases lie on the same wire as messages: as ``s1 to placement: write
r1``, and then their answers as ``placement to s1: answer write r1``.  A call or an answer that is
lost is one that failed, for whoever made it.  ``deliver`` shows each thing that arrives, ``flow``
only what comes of it.

====================================  ========================================================
``cloud node-1 node-2 VCPU=2``        compute hosts with agents; also ``pins=4`` (CPUs to pin),
                                      ``nics=1`` (devices), ``agents=0``
``schedulers s1 s2``                  they start, with the databases read
``request r1 s1 [vcpus=2] ...``       somebody asks s1 for an instance r1; ``count=2`` for r1.1 and
                                      r1.2, ``pin=2``, ``nic=1``, ``within=20``, ``alternates=1``,
                                      ``root_only=0`` (Placement must name candidates), ``apart r2``
                                      (in a group with r2 that must not be on one host), or ``together``,
                                      ``rather-apart``, ``rather-together``; ``apart in web`` for a group
                                      of any size, ``most=2`` for more of it on one host
``build r1 [node-2] [overhead=64]``   nova-compute claims it, on the node of the answer or here, and
                                      finds that it takes so many MiB more
``abort r1``                          nova-compute refuses to build it; its allocation goes
``delete r1``                         gone from the tracker, and from Placement
``intrude x1 node-1 [vcpus=2]``       somebody else writes an allocation there
``agent node-1 dies``                 or ``starts``, or ``forgets`` (its disk, while it is dead; with
                                      ``all`` its epochs, too, and its clock is set back)
``compute node-1 dies``               or ``starts``, or ``audits``
``stubborn node-1``                   its fit of cells and devices refuses whatever is asked
``scheduler s1 dies``                 or ``starts``
``placement down``                    or ``up``
``shrink node-1 VCPU=1``              its inventory in Placement becomes smaller
``left node-9 VCPU=2``                a provider in Placement that a deleted compute has left
``service node-1 disabled``           or ``enabled``
``broker dies``                       or ``returns``
``cut node-1``, ``cut s1 node-1``     from everybody, or these two from one another (``heal``)
``poll s1``                           databases are read for nodes without a speaking agent
``show``                              what each scheduler has, what each agent counts
``traffic``                           messages that were sent since this was asked last
``check``                             does everybody hold the truth, is no node over-committed, and are
                                      groups as they must be?
====================================  ========================================================
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from compute_agent import events as agent_ev
from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.request import Flavor, Group, PlacementForm, Request
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.messages import (
    Claim,
    Heartbeat,
    Increment,
    Leave,
    Message,
    Release,
    Snapshot,
    Usage,
    Verdict,
    is_for_agents,
)
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.placement import SimPlacement
from shared_scheduler.table.row import Freshness
from tests.scenario.cloud_nodes import Compute
from tests.scenario.cloud_schedulers import CELL, ScriptedScheduler
from tests.scenario.stage import Flight, Stage

MEMORY_MB, DISK_GB = 16_384, 1_000
POLICIES = {
    "apart": "anti-affinity",
    "together": "affinity",
    "rather-apart": "soft-anti-affinity",
    "rather-together": "soft-affinity",
}


class Cloud(Stage):
    """Compute hosts, schedulers, a Placement, and the messages between them."""

    def __init__(self) -> None:
        super().__init__()
        self.placement = SimPlacement()
        self.computes: dict[str, Compute] = {}
        self.schedulers: dict[str, ScriptedScheduler] = {}
        self.lives: dict[str, int] = {}
        self.requests: dict[str, Request] = {}
        self.homes: dict[str, str] = {}  # consumer -> node of its answer
        self.groups: dict[str, Group] = {}  # by uuid, with the members that were asked for so far
        self.claimants: dict[str, str] = {}  # claim id -> consumer
        self.cuts: list[frozenset[str]] = []
        self.disabled: set[str] = set()
        self.broker_up = True
        self.sent: Counter[str] = Counter()

    def validate(self) -> None:
        for scheduler in self.schedulers.values():
            for node in scheduler.core.nodes:
                node.window.validate()

    def note(self, text: str) -> None:
        self.out.append(text)

    # --- the wire --------------------------------------------------------------------------------

    def post(self, sender: str, receiver: str, message: Message) -> None:
        if isinstance(message, Claim):
            self.claimants[message.claim_id] = message.consumer
        self.sent[type(message).__name__.lower()] += 1
        self.wire.append(Flight(sender, receiver, self.wording(message), encode(message)))

    def call(
        self,
        sender: str,
        receiver: str,
        text: str,
        answer: Callable[[], Any],
        lost: Callable[[], None],
    ) -> None:
        def carried_out() -> None:
            event = answer()
            self.wire.append(Flight(receiver, sender, f"answer {text}", event, lost))

        self.wire.append(Flight(sender, receiver, text, carried_out, lost))

    def arrive(self, flight: Flight) -> None:
        if isinstance(flight.cargo, bytes):
            self.hear(flight)
        elif callable(flight.cargo):
            flight.cargo()
        elif (party := self.party(flight.receiver)) is not None:
            party.feed(flight.cargo)

    def hear(self, flight: Flight) -> None:
        ends = {flight.sender, flight.receiver}
        party = self.party(flight.receiver)
        if party is not None and self.broker_up and not any(cut <= ends for cut in self.cuts):
            party.hear(decode(flight.cargo))

    def party(self, name: str) -> Compute | ScriptedScheduler | None:
        return self.schedulers.get(name) or self.computes.get(name)

    def do_deliver(self, *words: str) -> None:
        for flight in self.chosen(words):
            self.wire.remove(flight)
            self.note(flight.label)
            self.arrive(flight)

    def wording(self, message: Message) -> str:
        match message:
            case Claim() | Release():
                return f"{type(message).__name__.lower()} {message.consumer}"
            case Verdict():
                consumer = self.claimants.get(message.claim_id, "?")
                return f"{'accepts' if message.accepted else 'refuses'} {consumer}"
            case Increment() | Snapshot() | Heartbeat() | Leave():
                return f"{type(message).__name__.lower()} {message.epoch}.{message.sequence}"
            case _:
                return type(message).__name__.lower()

    def node_at(self, address: str) -> str:
        return next((c.node for c in self.computes.values() if c.address == address), "nobody")

    def hearers_of(self, scheduler: str, message: Message) -> Iterator[str]:
        """Of what a scheduler broadcasts: agents hear only what asks something of them."""
        alive = [node for node, compute in self.computes.items() if compute.agent is not None]
        agents = alive if is_for_agents(message) else []
        yield from (other for other in (*agents, *self.schedulers) if other != scheduler)

    # --- time ------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        moments = [s.core.next_deadline_s() for s in self.schedulers.values()]
        moments += [
            compute.agent.next_deadline_s(self.now) for compute in self.computes.values() if compute.agent is not None
        ]
        return min((moment for moment in moments if moment is not None), default=float("inf"))

    def tick(self) -> None:
        for compute in self.computes.values():
            compute.feed(agent_ev.Tick())
        for scheduler in list(self.schedulers.values()):
            scheduler.feed(ev.Tick())

    # --- who there is ----------------------------------------------------------------------------

    def do_cloud(self, *words: str) -> None:
        nodes, facts = split(words)
        size = size_of(facts)
        for number, node in enumerate(nodes):
            pins, nics = facts.get("pins", 0), facts.get("nics", 0)
            self.computes[node] = compute = Compute(self, node, number, size, pins, nics)
            self.placement.add_provider(node, compute.nodename, size.inventories())
            if facts.get("agents", 1):
                compute.start_agent()

    def do_left(self, *words: str) -> None:
        nodes, facts = split(words)
        for node in nodes:
            self.placement.add_provider(node, node, size_of(facts).inventories())

    def do_schedulers(self, *names: str) -> None:
        for name in names:
            self.do_scheduler(name, "starts")

    def do_scheduler(self, name: str, what: str) -> None:
        if what == "dies":
            del self.schedulers[name]
            return
        self.lives[name] = self.lives.get(name, 0) + 1
        self.schedulers[name] = scheduler = ScriptedScheduler(self, name, self.lives[name])
        scheduler.feed(self.services())
        for node in self.computes:
            scheduler.feed(self.read_of(node))
        scheduler.feed(ev.ChannelChanged(CELL, self.broker_up))

    def services(self) -> ev.ServicesRead:
        facts = (ServiceFacts(compute.host, disabled=node in self.disabled) for node, compute in self.computes.items())
        return ev.ServicesRead(CELL, tuple(facts), True)

    def read_of(self, node: str) -> ev.NodeRead:
        """What databases and Placement say of a node."""
        compute = self.computes[node]
        leaves = dict(compute.with_cells(compute.tracker.audit()).leaves)
        (facts,) = self.placement.tree(node)
        leaves[f"rp.{node}"] = {
            "name": facts.name,
            "parent": None,
            "generation": facts.generation,
            "inventories": {rc: [*one.to_leaf()] for rc, one in facts.inventories.items()},
            "traits": [],
            "aggregates": [],
        }
        held = self.placement.consumers_of(node) if self.placement.up else {}
        members = frozenset(compute.tracker.instances)
        return ev.NodeRead(CELL, node, compute.host, compute.nodename, leaves, held, members, self.now)

    def search_for(self, node: str) -> ev.NodeRead | ev.NodeNotFound:
        return self.read_of(node) if node in self.computes else ev.NodeNotFound(node, self.now)

    def do_poll(self, name: str) -> None:
        scheduler = self.schedulers[name]
        for node in self.computes:
            if not scheduler.core.nodes.agent_speaks_for(node):
                scheduler.feed(self.read_of(node))

    def do_agent(self, node: str, what: str, how_much: str = "") -> None:
        compute = self.computes[node]
        match what:
            case "starts":
                compute.start_agent()
            case "dies":
                compute.agent = None
            case "forgets":
                compute.kept, compute.kept_groups = (), {}
                compute.epoch *= how_much != "all"

    def do_compute(self, node: str, what: str) -> None:
        compute = self.computes[node]
        {"dies": compute.die, "starts": compute.rise, "audits": compute.audit}[what]()

    def do_stubborn(self, node: str) -> None:
        self.computes[node].stubborn = True

    def do_service(self, node: str, what: str) -> None:
        self.disabled = self.disabled - {node} if what == "enabled" else self.disabled | {node}
        for scheduler in self.schedulers.values():
            scheduler.feed(self.services())

    # --- what breaks -----------------------------------------------------------------------------

    def do_placement(self, what: str) -> None:
        self.placement.up = what == "up"

    def do_broker(self, what: str) -> None:
        self.broker_up = what == "returns"
        self.wire = [flight for flight in self.wire if not isinstance(flight.cargo, bytes)]
        for compute in self.computes.values():
            compute.feed(agent_ev.ChannelChanged(self.broker_up))
        for scheduler in self.schedulers.values():
            scheduler.feed(ev.ChannelChanged(CELL, self.broker_up))

    def do_cut(self, *names: str) -> None:
        self.cuts.append(frozenset(names))

    def do_heal(self, *names: str) -> None:
        self.cuts.remove(frozenset(names))

    def do_shrink(self, node: str, *amounts: str) -> None:
        facts = self.placement.providers[node]
        _, totals = split(amounts)
        smaller = {rc: replace(facts.inventories[rc], total=total) for rc, total in totals.items()}
        self.placement.providers[node] = replace(facts, inventories={**facts.inventories, **smaller})

    # --- what people and nova-compute do ---------------------------------------------------------

    def do_request(self, name: str, scheduler: str, *words: str) -> None:
        names, facts = split(words)
        request = made(name, facts)
        if names:
            request = replace(request, group=self.joined(request, names, facts.get("most", 1)))
        self.requests |= dict.fromkeys(request.instance_uuids, request)
        deadline_s = self.now + facts.get("within", 60)
        self.schedulers[scheduler].feed(ev.RequestArrived(request, deadline_s))

    def joined(self, request: Request, words: list[str], most: int) -> Group:
        """The group as the conductor reads it: all who have joined it, and the hosts of those that are built."""
        policy = POLICIES.get(words[0], "anti-affinity")
        friends = [] if "in" in words else words[-1:]
        uuid = words[-1] if "in" in words else "+".join(sorted({*friends, *request.instance_uuids}))
        known = self.groups.get(uuid, Group(uuid, policy, frozenset(), frozenset(), most))
        members = known.members | {*friends, *request.instance_uuids}
        built = [c for c in self.computes.values() if c.tracker.instances.keys() & members]
        self.groups[uuid] = replace(known, members=members)
        return replace(known, members=members, hosts=frozenset(compute.host for compute in built))

    def standing(self, members: frozenset[str]) -> dict[str, frozenset[str]]:
        """Which of these hold something in Placement, and where."""
        held = {uuid: frozenset(self.placement.consumers.get(uuid, ())) for uuid in members}
        return {uuid: nodes for uuid, nodes in held.items() if nodes}

    def answered(self, scheduler: str, answer: ef.Answer) -> None:
        chosen = [inner[0].node for inner in answer.choices]
        others = [choice.node for choice in answer.choices[0][1:]]
        self.homes |= dict(zip(answer.request.instance_uuids, chosen, strict=True))
        text = f"{scheduler} answers {answer.request.request_id}: {' '.join(chosen)}"
        self.note(text + (f", else {' '.join(others)}" if others else ""))

    def do_build(self, consumer: str, *words: str) -> None:
        names, facts = split(words)
        request = self.requests[consumer]
        usage = replace(request.usage, memory_mb=request.usage.memory_mb + facts.get("overhead", 0))
        self.homes[consumer] = names[0] if names else self.homes[consumer]
        self.computes[self.homes[consumer]].build(consumer, usage, request.topology)

    def do_abort(self, consumer: str) -> None:
        home = self.computes[self.homes[consumer]]
        home.feed(agent_ev.ClaimRefused(consumer, "instance_claim", "no"))
        self.placement.delete(consumer)

    def do_delete(self, consumer: str) -> None:
        self.computes[self.homes[consumer]].drop(consumer)
        self.placement.delete(consumer)

    def do_intrude(self, consumer: str, node: str, *words: str) -> None:
        request = made(consumer, split(words)[1])
        self.requests[consumer], self.homes[consumer] = request, node
        write = self.placement.begin_write(consumer, {node: request.forms[0].resources})
        self.note(f"placement says {self.placement.end_write(write)[0].value}")

    # --- what can be seen ------------------------------------------------------------------------

    def do_show(self) -> None:
        for scheduler in self.schedulers.values():
            for node in scheduler.table.nodes():
                self.note(f"{scheduler.name}: {node} {scheduler.describe(node)}")
            for line in scheduler.claims():
                self.note(f"{scheduler.name}: claims {line}")
        for node, compute in self.computes.items():
            self.show(node, compute)

    def show(self, node: str, compute: Compute) -> None:
        held = self.placement.used(node).get("VCPU", 0)
        told = "no agent"
        if (agent := compute.agent) is not None:
            used = agent.ledger.used().get(node, {}).get("VCPU", 0)
            pending = [one.claim.consumer for one in agent.ledger.pending.values()]
            told = f"{'ready' if agent.ready else 'not ready'}, VCPU used {used}"
            told += f", pending {' '.join(pending)}" if pending else ""
        self.note(f"{node}: {told}; Placement holds {held}")

    def do_traffic(self) -> None:
        self.note(", ".join(f"{kind} {n}" for kind, n in sorted(self.sent.items())) or "nothing")
        self.sent.clear()

    def do_check(self) -> None:
        wrong = [*self.wrong_rows(), *self.wrong_agents(), *self.over_committed(), *self.broken_groups()]
        self.out += wrong or ["all hold the truth"]

    def wrong_rows(self) -> Iterator[str]:
        for scheduler in self.schedulers.values():
            for node, compute in self.computes.items():
                freshness = scheduler.table.freshness(node)
                agent = compute.agent
                if agent is None or freshness is Freshness.PROVISIONAL:
                    continue
                if freshness is not Freshness.FRESH:
                    yield f"{scheduler.name} knows that {node} is {freshness.value}"
                elif scheduler.table.digest(node) != agent.publisher.pipe.digest:
                    yield f"{scheduler.name} is wrong about {node}"

    def wrong_agents(self) -> Iterator[str]:
        for node, compute in self.computes.items():
            if compute.agent is not None and compute.agent.ready:
                counted = compute.agent.ledger.used().get(node, {})
                if counted != self.placement.used(node):
                    yield f"{node} counts what Placement does not hold, or not what it holds"

    def broken_groups(self) -> Iterator[str]:
        for group in self.groups.values():
            held = [self.placement.consumers.get(uuid, {}) for uuid in group.members]
            homes = Counter(node for allocations in held for node in allocations)
            crowded = [node for node, count in sorted(homes.items()) if count > group.max_server_per_host]
            if group.policy == "anti-affinity" and crowded:
                yield f"group {group.uuid} has too many on {' '.join(crowded)}"
            if group.policy == "affinity" and len(homes) > 1:
                yield f"group {group.uuid} is apart: {' '.join(sorted(homes))}"

    def over_committed(self) -> Iterator[str]:
        for node in self.computes:
            if over := self.placement.over_commit(node):
                yield f"{node} is over-committed: {over}"


def size_of(facts: dict[str, int]) -> Size:
    """Of each compute host of a ``cloud``."""
    return Size(facts.get("VCPU", 2), MEMORY_MB, DISK_GB, cpu_ratio=1.0)


def split(words: tuple[str, ...]) -> tuple[list[str], dict[str, int]]:
    """Names, and ``a=1`` as numbers by name."""
    facts = {name: int(value) for name, _, value in (w.partition("=") for w in words if "=" in w)}
    return [word for word in words if "=" not in word], facts


def made(name: str, facts: dict[str, int]) -> Request:
    """A request for instances that are called after it."""
    vcpus, count = facts.get("vcpus", 1), facts.get("count", 1)
    amounts = {"VCPU": vcpus, "MEMORY_MB": 1024, "DISK_GB": 10}
    wanted = {key: facts[key] for key in ("pin", "nic") if key in facts}
    query = "resources=" + ",".join(f"{rc}:{amount}" for rc, amount in sorted(amounts.items()))
    return Request(
        request_id=name,
        project_id="project",
        user_id="user",
        flavor=Flavor("flavor", vcpus, 1024, 10),
        forms=(PlacementForm(amounts),),
        usage=Usage(vcpus, 1024, 10, 1, 0),
        instance_uuids=(name,) if count == 1 else tuple(f"{name}.{i + 1}" for i in range(count)),
        root_only=bool(facts.get("root_only", 1)),
        queries=(query,),
        num_alternates=facts.get("alternates", 0),
        topology=json.dumps(wanted) if wanted else "",
    )
