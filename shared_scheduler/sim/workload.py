# SPDX-License-Identifier: Apache-2.0
"""The workload: arrivals of requests, flavors, builds and deletes.

Simulates the conductor: a request goes to one of the running schedulers, the answer returns after a delay, and the
build is cast to the selected host.  A build may fail; the conductor then frees its allocation and tries the alternates
without a request to a scheduler: such an instance has no claim on its host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random

from shared_scheduler.core.effects import Answer, Choice, Fail
from shared_scheduler.decision.request import LABEL_POLICY, Destination, Flavor, Group, PlacementForm, Request
from shared_scheduler.decision.spread_request import LABEL, SPREAD, label_uuid
from shared_scheduler.model.moves import Move
from shared_scheduler.protocol.messages import GroupPolicy, Usage
from shared_scheduler.sim.selections import of_enabled_hosts, selecting
from shared_scheduler.sim.topology import HUGE_PAGE_KB, ask_text, ports_text

#: name, vcpus, memory in MiB, disk in GB
FLAVORS = (
    Flavor("small", 1, 2_048, 20),
    Flavor("medium", 2, 4_096, 40),
    Flavor("large", 4, 8_192, 80),
    Flavor("xlarge", 8, 16_384, 160),
)

#: members of a server group; part of the requests for one that another follows at the same moment, and the delay
GROUP_MAX = 5
RACES = 0.5
RACE_S = 0.003
#: SR-IOV ports of a server with many of them
PORTS = (24, 32, 48)
#: servers with one label, and the part of the requests for a label that goes to a known one or is followed at once
LABEL_MAX = 12
LABEL_GROWS = 0.7
PROJECT = "project"
#: the key over which servers with a label are spread
RACK = "rack"


@dataclass(frozen=True, slots=True)
class Workload:
    """The parameters of the workload.  Rates are per second, parts are from 0 to 1."""

    rate_per_s: float = 20.0
    lifetime_s: float = 60.0
    several: float = 0.05  # requests for more than one instance
    several_max: int = 4
    not_root_only: float = 0.05  # requests whose candidates must come from Placement
    topologies: float = 0.0  # requests for NUMA cells, large pages or devices
    many_ports: float = 0.0  # requests for two NUMA cells and dozens of SR-IOV ports
    build_fails: float = 0.02
    grouped: float = 0.0  # requests for members of a server group
    policies: tuple[GroupPolicy, ...] = (*GroupPolicy,)  # of the server groups
    spread: float = 0.0  # requests for servers of a label that are spread over racks
    selections: float = 0.0  # requests for a trait or an aggregate, which operators change
    disables: bool = False  # operators disable and enable hosts
    phantoms: float = 0.2  # of the builds that fail, those that stay counted until the next audit
    asks_again: float = 0.5  # of the requests that fail, those whose servers are requested again
    migrations_per_s: float = 0.0  # live migrations, which have no claim
    num_alternates: int = 2
    patience_s: float = 20.0  # time that the caller waits for an answer
    flavors: tuple[Flavor, ...] = FLAVORS


@dataclass(slots=True)
class ServerGroup:
    """A server group.  ``members`` joined it, in this order, before they were scheduled.

    ``disturbed``: a member was moved by force or failed to build, or the conductor used an alternate, so its policy
    cannot be kept.
    """

    uuid: str
    policy: str
    max_server_per_host: int
    members: list[str] = field(default_factory=list)
    disturbed: bool = False
    #: the label and ``max_skew`` of servers that are spread over racks; such a group is no server group of Nova
    label: str = ""
    max_skew: int = 0
    #: when a member was deleted last
    left_s: float = float("-inf")


class ServerState(StrEnum):
    """The state of an instance."""

    ASKED = "asked"
    BUILDING = "building"
    LIVES = "lives"
    MOVES = "moves"
    FAILED = "failed"
    DELETED = "deleted"


@dataclass(slots=True)
class Server:
    """One instance that a user requested."""

    uuid: str
    request_id: str
    usage: Usage
    topology: str = ""
    state: ServerState = ServerState.ASKED
    node: str = ""
    #: the number of requests for it
    tries: int = 1
    group: ServerGroup | None = None
    #: the schedulers that have got one request for it, if the broker has delivered it more than once: two, or one twice
    twins: frozenset[str] = frozenset()


@dataclass(slots=True)
class SentRequest:
    """A request that a scheduler has, and its instances."""

    request: Request
    scheduler: str
    asked_s: float
    deadline_s: float
    servers: tuple[Server, ...]
    outcome: Answer | Fail | None = None  # that its caller gets: the first one
    ended_s: float = 0.0
    #: what the broker has delivered besides the request itself: to whom, and until when that one may answer
    copies: list[tuple[str, float]] = field(default_factory=list)
    #: how often each scheduler has ended it
    ended_by: Counter[str] = field(default_factory=Counter)
    #: its caller had stopped waiting when the answer arrived
    unheard: bool = False
    #: of a move: called with the answer that its caller has heard; None: it failed
    moved: Callable[[Answer | None], None] | None = None

    def deadlines_of(self, scheduler: str) -> list[float]:
        """Until when a scheduler may answer, for each time that it has got the request."""
        first = [self.deadline_s] if scheduler == self.scheduler else []
        return first + [deadline_s for name, deadline_s in self.copies if name == scheduler]


def usage_of(flavor: Flavor) -> Usage:
    """The resources of an instance of this flavor."""
    return Usage(flavor.vcpus, flavor.memory_mb, flavor.root_gb, 1, 0)


def draw_topology(flavor: Flavor, rng: Random) -> str:
    """A random request for cells, pages or devices with this flavor."""
    cpus, memory_mb = flavor.vcpus, flavor.memory_mb
    match rng.randrange(4):
        case 0:
            return ask_text([(cpus, memory_mb, 0)])
        case 1:
            return ask_text([(cpus, memory_mb, HUGE_PAGE_KB)])
        case 2 if cpus > 1:
            return ask_text([(cpus // 2, memory_mb // 2, 0)] * 2, devices=1)
        case _:
            return ask_text([], devices=1)


def draw_ports(flavor: Flavor, rng: Random) -> str:
    """A request for two NUMA cells and many SR-IOV ports with this flavor."""
    half = (flavor.vcpus // 2, flavor.memory_mb // 2, 0)
    return ports_text([half, half], rng.choice(PORTS))


def make_request(
    number: int, flavor: Flavor, count: int, root_only: bool, topology: str, num_alternates: int
) -> Request:
    """A request for ``count`` instances, as Nova's edge would make it."""
    amounts = {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.memory_mb, "DISK_GB": flavor.root_gb}
    query = "resources=" + ",".join(f"{rc}:{amount}" for rc, amount in sorted(amounts.items()))
    return Request(
        request_id=f"req-{number}",
        project_id=PROJECT,
        user_id="user",
        flavor=flavor,
        forms=(PlacementForm(amounts),),
        usage=usage_of(flavor),
        instance_uuids=tuple(f"server-{number}-{i}" for i in range(count)),
        root_only=root_only,
        queries=(query,),
        num_alternates=num_alternates,
        has_numa='"numa": {' in topology,
        has_pci='"count"' in topology,
        topology=topology,
    )


@dataclass(slots=True)
class Users:
    """Draws requests from a seeded generator."""

    workload: Workload
    rng: Random
    count: int = 0
    asked: dict[str, SentRequest] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    groups: list[ServerGroup] = field(default_factory=list)
    #: the next request is for a member of this group, and comes at the same moment as the last one
    racing: ServerGroup | None = None

    def next_pause_s(self) -> float:
        """The time until the next request."""
        if self.racing is not None:
            return self.rng.random() * RACE_S
        return self.rng.expovariate(self.workload.rate_per_s)

    def members_of(self, group: str) -> dict[str, bool]:
        """The members of a group, as Nova's API database has them: uuid -> whether the conductor has an answer.

        Those that failed are in cell 0, or have lost their allocations."""
        found = (uuid for one in self.groups if one.uuid == group for uuid in one.members)
        states = {uuid: self.servers[uuid].state for uuid in found}
        return {
            uuid: state != ServerState.ASKED
            for uuid, state in states.items()
            if state not in (ServerState.DELETED, ServerState.FAILED)
        }

    def _draw_group(self) -> ServerGroup | None:
        """The group of the next request; half of the groups grow by a request at the same moment."""
        rng, workload = self.rng, self.workload
        if self.racing is not None:
            group, self.racing = self.racing, None
            return group
        if workload.spread and rng.random() < workload.spread:
            return self._draw_label()
        if not workload.grouped or rng.random() >= workload.grouped:
            return None
        grown = [group for group in self.groups if not group.label and len(group.members) < GROUP_MAX]
        if grown and rng.random() < 0.5:
            group = rng.choice(grown)
        else:
            policy = rng.choice(workload.policies)
            group = ServerGroup(f"group-{len(self.groups) + 1}", policy, rng.choice((1, 1, 2)))
            self.groups.append(group)
        self.racing = group if rng.random() < RACES else None
        return group

    def _draw_label(self) -> ServerGroup:
        """The label of the next request; most labels grow, and by several requests at the same moment."""
        rng = self.rng
        grown = [group for group in self.groups if group.label and len(group.members) < LABEL_MAX]
        if grown and rng.random() < LABEL_GROWS:
            group = rng.choice(grown)
        else:
            label, max_skew = f"label-{len(self.groups) + 1}", rng.choice((1, 1, 2))
            group = ServerGroup(label_uuid(PROJECT, label), LABEL_POLICY, 1, label=label, max_skew=max_skew)
            self.groups.append(group)
        self.racing = group if rng.random() < LABEL_GROWS else None
        return group

    def _joined(
        self, group: ServerGroup, request: Request, servers: tuple[Server, ...], host_of: Callable[[Server], str]
    ) -> Request:
        """What nova-api does before the request: the servers join their group."""
        for server in servers:
            server.group = group
        group.members += request.instance_uuids
        return self._with_group(group, request, host_of)

    def _with_group(self, group: ServerGroup, request: Request, host_of: Callable[[Server], str]) -> Request:
        """The request with the group as the conductor reads it: ``hosts`` are those of built members."""
        if group.label:
            asked = f"key={RACK},max_skew={group.max_skew}"
            return replace(request, hints={SPREAD: (asked,), LABEL: (group.label,)})
        known = [self.servers[uuid] for uuid in group.members if uuid in self.servers]
        hosts = frozenset(host_of(server) for server in known if server.state in (ServerState.LIVES, ServerState.MOVES))
        found = Group(group.uuid, group.policy, frozenset(group.members), hosts, group.max_server_per_host)
        return replace(request, group=found)

    def ask(self, scheduler: str, now: float, host_of: Callable[[Server], str]) -> SentRequest:
        """The next request, for ``scheduler``.  ``host_of`` returns the service host of a server that was built."""
        self.count += 1
        rng, workload = self.rng, self.workload
        group = self._draw_group() if workload.grouped or workload.spread else None
        several = rng.random() < workload.several
        count = rng.randint(2, workload.several_max) if several else 1
        root_only = rng.random() >= workload.not_root_only
        flavor = rng.choice(workload.flavors)
        special = rng.random() < workload.topologies
        topology = draw_topology(flavor, rng) if special else ""
        if workload.many_ports and rng.random() < workload.many_ports:
            topology = draw_ports(flavor, rng)
        request = make_request(self.count, flavor, count, root_only, topology, workload.num_alternates)
        if (
            group is None and workload.selections and rng.random() < workload.selections
        ):  # groups are judged on all nodes
            request = selecting(request, rng)
        if group is None and workload.disables:
            request = of_enabled_hosts(request)
        servers = tuple(Server(uuid, request.request_id, request.usage, topology) for uuid in request.instance_uuids)
        if group is not None:
            request = self._joined(group, request, servers, host_of)
        self.servers.update({server.uuid: server for server in servers})
        return self._asked(request, servers, scheduler, now)

    def ask_again(
        self, failed: SentRequest, scheduler: str, now: float, host_of: Callable[[Server], str]
    ) -> SentRequest:
        """A request for the same servers again, as after a failed unshelve or evacuation."""
        tries = failed.servers[0].tries + 1
        first_id = failed.request.request_id.partition("/")[0]
        request, group = replace(failed.request, request_id=f"{first_id}/{tries}"), failed.servers[0].group
        if group is not None:
            request = self._with_group(group, request, host_of)
        for server in failed.servers:
            server.request_id, server.state, server.node = request.request_id, ServerState.ASKED, ""
            server.tries = tries
        return self._asked(request, failed.servers, scheduler, now)

    def ask_to_move(
        self,
        server: Server,
        host: str,
        cell: str,
        scheduler: str,
        now: float,
        moved: Callable[[Answer | None], None],
        host_of: Callable[[Server], str],
        evacuates: bool = False,
    ) -> SentRequest:
        """A request for another host of this cell than the one where the server is.

        ``evacuates``: the server keeps its allocations there."""
        server.tries += 1
        request = replace(
            self.asked[server.request_id].request,
            request_id=f"move-{server.uuid}/{server.tries}",
            instance_uuids=(server.uuid,),
            num_alternates=0,
            ignore_hosts=frozenset({host}),
            destination=Destination(cell=cell),
            merge_with_existing=evacuates,
            move=Move.EVACUATION if evacuates else Move.RESIZE,
        )
        if server.group is not None:
            request = self._with_group(server.group, request, host_of)
        asked = self._asked(request, (server,), scheduler, now)
        asked.moved = moved
        return asked

    def _asked(self, request: Request, servers: tuple[Server, ...], scheduler: str, now: float) -> SentRequest:
        asked = SentRequest(request, scheduler, now, now + self.workload.patience_s, servers)
        self.asked[request.request_id] = asked
        return asked


def placed(answer: Answer) -> tuple[Choice, ...]:
    """The claimed choice of each instance."""
    return tuple(inner[0] for inner in answer.choices)


def disturb_group(server: Server) -> None:
    """The server goes to a host that no scheduler has selected: the policy of its group does not hold any more."""
    if server.group is not None:
        server.group.disturbed = True
