# SPDX-License-Identifier: Apache-2.0
"""The faults of a world, drawn from the seed: their kinds, times and victims, and their repair.

Swarm testing: each seed draws which kinds of faults occur, so that rare combinations are tested
and no kind of fault hides another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log
from random import Random

from shared_scheduler.sim.evacuations import Outage
from shared_scheduler.sim.floods import FLOOD_HOST, Flood
from shared_scheduler.sim.label_bursts import BURST, LabelBurst
from shared_scheduler.sim.left_providers import LeftProvider
from shared_scheduler.sim.lies import LyingNode
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.placement import PROXY_TIMEOUT_S
from shared_scheduler.sim.retirement import Retirement
from shared_scheduler.sim.scheduled_moves import EVACUATION
from shared_scheduler.sim.schedulers import SimScheduler
from shared_scheduler.sim.world import World

#: faults last from 0.1 to 15 seconds; the logarithm of the duration is distributed evenly
FAULT_LOG_S = (log(0.1), log(15.0))
#: a process that dies midway has carried out at most this many effects
EFFECTS_MAX = 6
#: maximum time by which the wall clock of an agent that lost its state is set back
SET_BACK_MAX_S = 1_000
#: maximum time by which the clock of a scheduler jumps ahead, in all: otherwise it would not wait for a write that is
#: carried out late (``CARRIED_OUT_WITHIN_S`` minus ``PROXY_TIMEOUT_S`` of the simulated Placement)
JUMP_MAX_S = 30
#: The maximum for the clock of an agent is less.  The agent counts an accepted claim for at least
#: ``claim_check_after_s``, and the scheduler writes within ``write_timeout_s``.  If clocks differed by more than the
#: time between them, the agent would release resources that are about to be written.
AGENT_JUMP_MAX_S = 4
#: mean time between two moves with ports
PORT_MOVES_S = 1.0
#: part of the worlds with faults in which each rare kind occurs
RARE = 0.25
#: a slow Placement takes so long for each server that it writes
SLOW_S = 12.0
#: a Placement that crawls takes so long for each server, and its proxy waits so long; both less than
#: ``CARRIED_OUT_WITHIN_S``
CRAWLS_S, CRAWL_PROXY_TIMEOUT_S = (30.0, 57.0), 58.0
#: clocks that jump would not wait for it
CLOCKS_JUMP = ("agent_clock_jumps", "scheduler_clock_jumps")
#: schedulers get no answers of Placement for so long, and the mean time in between
MUTE_S, HEARD_S = (0.5, 4.0), 2.0
#: a write that loses races fails after so long; longer than a writer waits, and less than ``PROXY_TIMEOUT_S``
LOSES_S = (5.0, 28.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins at ``at_s`` and is repaired ``for_s`` later."""

    kind: str
    at_s: float
    for_s: float
    what: str


class Faults:
    """Plans faults for a world and adds them to its agenda.  ``planned`` lists them."""

    def __init__(self, world: World, rng: Random) -> None:
        self.planned: list[Fault] = []
        self._world = world
        self._rng = rng
        self._jumped: set[str] = set()
        self._ahead_s = Counter[int]()  # number of a scheduler -> the time by which its clock jumps, in all
        self._kinds: dict[str, Callable[[float, float], str]] = {
            "cut_nodes": self._cut_nodes,
            "cut_half": self._cut_half,
            "deaf_node": self._deaf_node,
            "dumb_node": self._dumb_node,
            "cut_scheduler": self._cut_scheduler,
            "storm": self._storm,
            "agent_dies": self._agent_dies,
            "compute_dies": self._compute_dies,
            "scheduler_dies": self._scheduler_dies,
            "placement_down": self._placement_down,
            "placement_slow": self._placement_slow,
            "agent_dies_midway": self._agent_dies_midway,
            "agent_forgets": self._agent_forgets,
            "agent_freezes": self._agent_freezes,
            "agent_clock_jumps": self._agent_clock_jumps,
            "scheduler_dies_midway": self._scheduler_dies_midway,
            "scheduler_freezes": self._scheduler_freezes,
            "scheduler_clock_jumps": self._scheduler_clock_jumps,
            "broker_restarts": self._broker_restarts,
        }
        #: drawn by generators of their own, after the others: a new kind does not change the other faults of a world
        self._rare: dict[str, Callable[[float, float], str]] = {
            "node_lies": self._node_lies,
            "node_goes": self._node_goes,
            "placement_loses": self._placement_loses,
            "ports_in_moves": self._ports_in_moves,
            "requests_twice": self._requests_twice,
            "requests_again": self._requests_again,
            "placement_crawls": self._placement_crawls,
            "host_floods": self._host_floods,
            "provider_stays": self._provider_stays,
            "host_evacuated": self._host_evacuated,
            "host_reboots": self._host_reboots,
            "label_bursts": self._label_bursts,
        }

    def draw(
        self, from_s: float, until_s: float, every_s: float, kinds: Sequence[str] = (), rare: bool = False
    ) -> None:
        """Plan faults between two times, about one per ``every_s``; all are repaired by the second.  ``rare``: also
        the rare kinds."""
        names = sorted(self._kinds)
        chosen = kinds or [name for name in names if self._rng.random() < 0.5] or [self._rng.choice(names)]
        at_s = from_s + self._rng.expovariate(1 / every_s)
        while at_s < until_s:
            for_s = min(exp(self._rng.uniform(*FAULT_LOG_S)), until_s - at_s)
            self.plan(self._rng.choice(chosen), at_s, for_s)
            at_s += self._rng.expovariate(1 / every_s)
        for kind in sorted(self._rare) if rare else ():
            self._draw_rare(kind, from_s, until_s)

    def _draw_rare(self, kind: str, from_s: float, until_s: float) -> None:
        rng = self._world.rng(f"faults/{kind}")
        if rng.random() < RARE:
            at_s = rng.uniform(from_s, until_s)
            self.plan(kind, at_s, min(exp(rng.uniform(*FAULT_LOG_S)), until_s - at_s))

    def plan(self, kind: str, at_s: float, for_s: float) -> Fault:
        """Plan one fault of a kind.

        :raises KeyError: when the kind does not exist
        """
        what = (self._kinds | self._rare)[kind](at_s, for_s)
        fault = Fault(kind, at_s, for_s, what)
        self.planned.append(fault)
        self._world.counters[f"fault_{kind}"] += 1
        agenda, trace = self._world.agenda, self._world.trace
        agenda.at(at_s, trace.note, "faults", f"{kind} {what} for {for_s:.3f} s")
        return fault

    def kinds(self) -> tuple[str, ...]:
        """The names of all kinds of faults that are drawn."""
        return tuple(sorted(self._kinds | self._rare))

    # -- kinds: each puts its begin and end on the agenda, and returns its victim

    def _span(self, at_s: float, for_s: float, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._world.agenda.at(at_s, begin)
        self._world.agenda.at(at_s + for_s, end)

    def _some_nodes(self) -> list[SimNode]:
        nodes = list(self._world.nodes.values())
        return self._rng.sample(nodes, min(len(nodes), self._rng.randint(1, 5)))

    def _cut(self, addresses: list[str], at_s: float, for_s: float, out: bool, into: bool) -> str:
        network = self._world.network
        for address in addresses:
            self._span(
                at_s,
                for_s,
                lambda a=address: network.cut(a, out, into),  # type: ignore[misc]
                lambda a=address: network.heal(a, out, into),  # type: ignore[misc]
            )
        return " ".join(addresses) if len(addresses) < 6 else f"{len(addresses)} nodes"

    def _cut_nodes(self, at_s: float, for_s: float) -> str:
        return self._cut([n.address for n in self._some_nodes()], at_s, for_s, True, True)

    def _cut_half(self, at_s: float, for_s: float) -> str:
        nodes = list(self._world.nodes.values())
        half = self._rng.sample(nodes, len(nodes) // 2)
        return self._cut([node.address for node in half], at_s, for_s, True, True)

    def _deaf_node(self, at_s: float, for_s: float) -> str:
        return self._cut([self._some_nodes()[0].address], at_s, for_s, False, True)

    def _dumb_node(self, at_s: float, for_s: float) -> str:
        return self._cut([self._some_nodes()[0].address], at_s, for_s, True, False)

    def _cut_scheduler(self, at_s: float, for_s: float) -> str:
        number = self._rng.randrange(self._world.sizes.schedulers)
        network, hit = self._world.network, []

        def begin() -> None:
            scheduler = self._world.schedulers.get(number)
            if scheduler is not None:
                hit.append(scheduler.name)
                network.cut(scheduler.name)

        def end() -> None:
            for name in hit:
                network.heal(name)

        self._span(at_s, for_s, begin, end)
        return f"scheduler-{number}"

    def _storm(self, at_s: float, for_s: float) -> str:
        network, rng = self._world.network, self._rng
        before = network.network_faults
        during = NetworkFaults(
            loss=rng.choice((0.0, 0.01, 0.1, 0.3)),
            duplicates=rng.choice((0.0, 0.1, 0.5)),
            garbled=rng.choice((0.0, 0.0, 0.1)),
            late=rng.choice((0.0, 0.2, 1.0)),
            late_max_s=rng.choice((0.05, 1.0, 5.0)),
            delay_s=before.delay_s,
            jitter_s=before.jitter_s,
        )

        def begin() -> None:
            network.network_faults = during

        def end() -> None:
            if network.network_faults is during:
                network.network_faults = replace(before)

        self._span(at_s, for_s, begin, end)
        return f"loss {during.loss} duplicates {during.duplicates} late {during.late}"

    def _agent_dies(self, at_s: float, for_s: float) -> str:
        return self._agents_die(at_s, for_s, lambda node: node.kill_agent())

    def _agent_dies_midway(self, at_s: float, for_s: float) -> str:
        """In the middle of a step: messages and state that were not sent or stored by then are lost."""
        left = self._rng.randint(0, EFFECTS_MAX)

        def arm(node: SimNode) -> None:
            node.dies_after = left

        return self._agents_die(at_s, for_s, arm)

    def _agent_forgets(self, at_s: float, for_s: float) -> str:
        """It stops, its stored state is lost, and it starts again in an older epoch."""
        back_s = self._rng.randint(1, SET_BACK_MAX_S)

        def lose(node: SimNode) -> None:
            node.kill_agent()
            node.forget(back_s)
            self._world.checkers.agent_forgot(node)

        return self._agents_die(at_s, for_s, lose)

    def _agents_die(self, at_s: float, for_s: float, die: Callable[[SimNode], None]) -> str:
        victims = self._some_nodes()
        for node in victims:
            self._one_agent_dies(node, at_s, for_s, die)
        return " ".join(node.node for node in victims)

    def _one_agent_dies(self, node: SimNode, at_s: float, for_s: float, die: Callable[[SimNode], None]) -> None:
        struck: list[bool] = []

        def strike() -> None:
            if node.agent is not None:
                struck.append(True)
                die(node)

        def rise() -> None:
            node.dies_after = None
            if struck and node.agent is None:
                node.start_agent()

        self._span(at_s, for_s, strike, rise)

    def _agent_freezes(self, at_s: float, for_s: float) -> str:
        node = self._some_nodes()[0]
        self._span(at_s, for_s, node.freeze, node.thaw)
        return node.node

    def _agent_clock_jumps(self, at_s: float, _for_s: float) -> str:
        node, by_s = self._some_nodes()[0], self._rng.randint(1, AGENT_JUMP_MAX_S)
        if node.node in self._jumped:
            return "nobody, once is enough"
        self._jumped.add(node.node)
        self._world.agenda.at(at_s, node.jump, by_s)
        return f"{node.node} by {by_s} s"

    def _compute_dies(self, at_s: float, for_s: float) -> str:
        node = self._some_nodes()[0]
        died: list[bool] = []

        def die() -> None:
            if node.compute_up:
                node.kill_compute()
                died.append(True)

        def rise() -> None:
            if died:
                node.start_compute()

        self._span(at_s, for_s, die, rise)
        return node.node

    def _host_reboots(self, at_s: float, for_s: float) -> str:
        """Its agent is back at once, and nova-compute, which names the node, is not."""
        world = self._world
        node = world.rng(f"reboots at {at_s}").choice([*world.nodes.values()])
        struck: list[bool] = []

        def begin() -> None:
            if node.agent is not None and node.compute_up:
                struck.append(True)
                node.kill_compute()
                node.kill_agent()
                node.start_agent()

        def end() -> None:
            if struck:
                node.start_compute()

        self._span(at_s, for_s, begin, end)
        return node.node

    def _node_goes(self, at_s: float, _for_s: float) -> str:
        """An operator removes a node."""
        world = self._world
        if world.users.workload.spread:
            return "nobody, a rack without nodes would change the skew"
        node = world.rng(f"goes at {at_s}").choice([*world.nodes.values()])
        world.agenda.at(at_s, Retirement(world, node).begin)
        return node.node

    def _node_lies(self, at_s: float, for_s: float) -> str:
        """A node answers and releases the claims of others, and accepts claims that were not accepted."""
        world = self._world
        rng = world.rng(f"lies at {at_s}")
        node = rng.choice([*world.nodes.values()])
        liar = LyingNode(world, node, rng, world.rng(f"increments that lie at {at_s}"))
        self._span(at_s, for_s, lambda: world.liars.append(liar), lambda: world.liars.remove(liar))
        return node.node

    def _host_floods(self, at_s: float, for_s: float) -> str:
        """Schedulers hear of hundreds of nodes of a host whose agent does not answer."""
        flood = Flood(self._world)
        self._span(at_s, for_s, flood.begin, flood.end)
        return FLOOD_HOST

    def _provider_stays(self, at_s: float, for_s: float) -> str:
        """Placement has a provider that a compute has left, until somebody deletes it."""
        left = LeftProvider(self._world, f"left-{at_s:.6f}")
        self._span(at_s, for_s, left.begin, left.end)
        return "of a compute that was deleted"

    def _ports_in_moves(self, at_s: float, for_s: float) -> str:
        """Schedulers are asked to move servers, and somebody else attaches ports to these meanwhile."""
        world = self._world
        rng = world.rng(f"ports at {at_s}")

        def begin() -> None:
            world.scheduled_moves.begin(rng)
            pause_s = rng.expovariate(1 / PORT_MOVES_S)
            if world.now + pause_s < at_s + for_s:
                world.agenda.after(pause_s, begin)

        world.agenda.at(at_s, begin)
        return f"of servers, merged: {' '.join(world.sizes.merged_moves) or 'none'}"

    def _host_evacuated(self, at_s: float, for_s: float) -> str:
        """A nova-compute stops, and servers are evacuated from its host until it returns."""
        world = self._world
        rng = world.rng(f"evacuations at {at_s}")
        node = rng.choice([*world.nodes.values()])
        world.placement.tells_generations = True
        outage = Outage(world, node, rng, at_s + for_s)
        self._span(at_s, for_s, outage.begin, outage.end)
        merged = "merged" if EVACUATION in world.sizes.merged_moves else "not merged"
        return f"{node.node}, {merged}"

    def _requests_twice(self, at_s: float, for_s: float) -> str:
        """The broker delivers each request to two schedulers."""
        world = self._world
        rng = world.rng(f"twice at {at_s}")

        def begin() -> None:
            world.repeats.twice = rng

        def end() -> None:
            world.repeats.twice = None

        self._span(at_s, for_s, begin, end)
        return "to each pair"

    def _requests_again(self, at_s: float, for_s: float) -> str:
        """The broker delivers each request again, most of them to the same scheduler.

        Half of the time the proxy before Placement fails too: all is carried out, and no answer comes back."""
        world = self._world
        rng = world.rng(f"again at {at_s}")
        mutes = self._mute_placement(rng, at_s, at_s + for_s) if rng.random() < 0.5 else 0

        def begin() -> None:
            world.repeats.again = rng

        def end() -> None:
            world.repeats.again = None

        self._span(at_s, for_s, begin, end)
        return f"to the same scheduler or another, Placement is not heard {mutes} times"

    def _mute_placement(self, rng: Random, at_s: float, until_s: float) -> int:
        """Let schedulers get no answers for some seconds, again and again; returns how often."""
        mutes, at_s = 0, at_s + rng.expovariate(1 / HEARD_S)
        while at_s < until_s:
            for_s = min(rng.uniform(*MUTE_S), until_s - at_s)
            self._span(
                at_s, for_s, partial(self._world.mute_placement, True), partial(self._world.mute_placement, False)
            )
            mutes, at_s = mutes + 1, at_s + for_s + rng.expovariate(1 / HEARD_S)
        return mutes

    def _label_bursts(self, at_s: float, _for_s: float) -> str:
        """Many requests for servers of one label come at the same moment."""
        world = self._world
        if not world.users.workload.spread:
            return "nobody, there are no racks"
        rng = world.rng(f"burst at {at_s}")
        requests = rng.randint(*BURST)
        LabelBurst(world, rng, rng.choice((1, 1, 2))).plan(at_s, requests)
        return f"{requests} requests"

    # -- schedulers

    def _scheduler_dies(self, at_s: float, for_s: float) -> str:
        return self._one_scheduler_dies(at_s, for_s, lambda one: self._world.kill_scheduler(one.number))

    def _scheduler_dies_midway(self, at_s: float, for_s: float) -> str:
        """In the middle of a step: messages that were not sent by then are lost."""
        left = self._rng.randint(0, EFFECTS_MAX)

        def arm(scheduler: SimScheduler) -> None:
            scheduler.dies_after = left

        return self._one_scheduler_dies(at_s, for_s, arm)

    def _one_scheduler_dies(self, at_s: float, for_s: float, die: Callable[[SimScheduler], None]) -> str:
        number, world = self._rng.randrange(self._world.sizes.schedulers), self._world
        struck: list[SimScheduler] = []

        def strike() -> None:
            if number in world.schedulers:
                struck.append(world.schedulers[number])
                die(struck[0])

        def rise() -> None:
            for scheduler in struck:
                scheduler.dies_after = None
            if struck and number not in world.schedulers:
                world.start_scheduler(number)

        self._span(at_s, for_s, strike, rise)
        return f"scheduler-{number}"

    def _scheduler_freezes(self, at_s: float, for_s: float) -> str:
        number, schedulers = self._rng.randrange(self._world.sizes.schedulers), self._world.schedulers
        struck: list[SimScheduler] = []

        def freeze() -> None:
            if number in schedulers:
                struck.append(schedulers[number])
                struck[0].freeze()

        def thaw() -> None:
            for scheduler in struck:
                scheduler.thaw()

        self._span(at_s, for_s, freeze, thaw)
        return f"scheduler-{number}"

    def _scheduler_clock_jumps(self, at_s: float, _for_s: float) -> str:
        number, schedulers = self._rng.randrange(self._world.sizes.schedulers), self._world.schedulers
        by_s = min(self._rng.randint(1, JUMP_MAX_S), JUMP_MAX_S - self._ahead_s[number])
        if by_s == 0:
            return "nobody, it is far enough ahead"
        self._ahead_s[number] += by_s

        def jump() -> None:
            if number in schedulers:
                schedulers[number].jump(by_s)

        self._world.agenda.at(at_s, jump)
        return f"scheduler-{number} by {by_s} s"

    # -- services

    def _broker_restarts(self, at_s: float, for_s: float) -> str:
        world = self._world

        def change(up: bool) -> None:
            world.network.up = up
            for scheduler in list(world.schedulers.values()):
                scheduler.channel_changed(up)
            for node in world.nodes.values():
                node.channel_changed(up)

        self._span(at_s, for_s, lambda: change(False), lambda: change(True))
        return "for everybody"

    def _placement_slow(self, at_s: float, for_s: float) -> str:
        world = self._world
        self._span(at_s, for_s, lambda: world.slow_placement(SLOW_S), lambda: world.slow_placement(0.0))
        return f"{SLOW_S:g} s a server"

    def _placement_crawls(self, at_s: float, for_s: float) -> str:
        """It carries writes out as late as any scheduler has to expect."""
        world = self._world
        if any(fault.kind in CLOCKS_JUMP for fault in self.planned):
            return "nobody, a clock jumps"
        crawls_s = world.rng(f"crawls at {at_s}").uniform(*CRAWLS_S)

        def begin() -> None:
            world.placement.proxy_timeout_s = CRAWL_PROXY_TIMEOUT_S
            world.slow_placement(crawls_s)

        def end() -> None:
            world.placement.proxy_timeout_s = PROXY_TIMEOUT_S
            world.slow_placement(0.0)

        self._span(at_s, for_s, begin, end)
        return f"{crawls_s:.3f} s a server"

    def _placement_loses(self, at_s: float, for_s: float) -> str:
        """It repeats the writes that begin now for a long time, and answers then that they lost a race."""
        world = self._world
        loses_s = world.rng(f"loses at {at_s}").uniform(*LOSES_S)
        self._span(at_s, for_s, lambda: world.let_placement_lose(loses_s), lambda: world.let_placement_lose(0.0))
        return f"races for {loses_s:.3f} s"

    def _placement_down(self, at_s: float, for_s: float) -> str:
        world = self._world
        self._span(at_s, for_s, lambda: world.set_placement(False), lambda: world.set_placement(True))
        return f"for {for_s:.3f} s"
