# SPDX-License-Identifier: Apache-2.0
"""Simulated agents read a real Placement: the answers come later, and the polls are spread like those of old agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

from compute_agent import events as ev
from compute_agent.agent_settings import AgentSettings
from compute_agent.effects import ReadAllocations, ReadTree
from compute_agent.service.placement_thread import Answer, Read
from shared_scheduler.model.providers import Provider
from shared_scheduler.placement.connection import Reply, Transport, reply_from
from shared_scheduler.protocol.messages import Claim, Message, Snapshot, Usage, Verdict
from tests.unit.compute_agent.fake_placement import FakePlacement, served
from tools.laboratory.bench.meters import Used, kind_of
from tools.laboratory.cloud.access_log import Request, parse
from tools.laboratory.fleet.builds import Builds
from tools.laboratory.fleet.hosts import Host, hosts, provider
from tools.laboratory.fleet.node import Outgoing, SimulatedNode
from tools.laboratory.fleet.orders import USER_AGENT
from tools.laboratory.fleet.reads import AtOnce, FirstSimulated, InThreads, transport_of

HOST = Host(1)
SCHEDULER = "ssched.scheduler.one"
SOON_S = 10.0
POLL_S = AgentSettings().placement_poll_s


class Waiting:
    """Reads whose answers come when the test gives them."""

    def __init__(self) -> None:
        self.begun: list[Read] = []

    def begin(self, read: Read, now: float) -> Answer | None:
        self.begun.append(read)
        return None


class EmptyPlacement:
    """Each node has its one provider, and no consumer."""

    def __init__(self, fleet: Sequence[Host]) -> None:
        self._providers = {host.node: provider(host) for host in fleet}

    def tree(self, node: str) -> tuple[Provider, ...]:
        return (self._providers[node],)

    def consumers_of(self, node: str) -> dict[str, Any]:
        return {}


class Node:
    """One node and its messages so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reads = Waiting()
        self.node = SimulatedNode(HOST, 1, AgentSettings(), 0.0, self.reads, self.counts, Builds(1.0))
        self.said: list[Message] = []
        self.keep(self.node.appear(0.0))
        self.give(ev.ChannelChanged(True))

    def keep(self, outgoing: Iterable[Outgoing]) -> None:
        self.said.extend(one.message for one in outgoing)

    def give(self, event: ev.Event, now: float = 0.0) -> None:
        self.keep(self.node.step(event, now))

    def live_until(self, end_s: float, begin_s: float) -> None:
        """The node gets its ticks when it wants them."""
        now = begin_s
        while (now := max(now, self.node.deadline_s(now))) <= end_s:
            self.keep(self.node.tick(now))

    def verdicts(self) -> list[bool]:
        return [message.accepted for message in self.said if isinstance(message, Verdict)]


def claim() -> Claim:
    allocations = {HOST.node: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}}
    return Claim("claim-1", HOST.node, SCHEDULER, "consumer-1", allocations, Usage(vcpus=1, memory_mb=512, disk_gb=1))


def test_a_core_that_reads_does_not_wait_and_is_ready_after_both_answers() -> None:
    # given an agent whose Placement has not answered yet
    node = Node()
    assert [type(read) for read in node.reads.begun] == [ReadTree]
    assert not any(isinstance(message, Snapshot) and message.leaves["agent.ready"] for message in node.said)
    # when the tree comes, then the agent wants the allocations of it
    node.give(ev.TreeRead((provider(HOST),), 0.0), 1.0)
    assert node.reads.begun[-1] == ReadAllocations(HOST.node, (HOST.node,), cause="provider tree read")
    assert (node.counts["first_reads"], node.counts["reads"]) == (1, 2)
    # and when these come, it accepts claims
    node.give(ev.AllocationsRead({}, 1.0), 2.0)
    assert (node.counts["first_reads"], node.counts["reads"]) == (2, 2)
    node.give(ev.MessagesArrived((claim(),), 3.0), 3.0)
    assert node.verdicts() == [True]


def test_an_agent_whose_read_failed_is_ready_when_a_later_one_has_succeeded() -> None:
    node = Node()
    node.give(ev.TreeRead((provider(HOST),), 0.0), 1.0)

    node.give(ev.ReadFailed("allocations", "out of order"), 2.0)
    assert (node.counts["first_reads"], node.counts["failed_reads"]) == (1, 1)
    node.keep(node.node.tick(2.0 + SOON_S))
    node.give(ev.AllocationsRead({}, 2.0 + SOON_S), 3.0 + SOON_S)

    assert (node.counts["first_reads"], node.counts["failed_reads"]) == (2, 1)


def test_a_server_that_is_built_costs_no_read() -> None:
    # given an agent that knows Placement
    node = Node()
    node.give(ev.TreeRead((provider(HOST),), 0.0), 1.0)
    node.give(ev.AllocationsRead({}, 1.0), 2.0)
    known = len(node.reads.begun)
    # when it accepts a claim, and its server is built
    node.give(ev.MessagesArrived((claim(),), 10.0), 10.0)
    node.live_until(POLL_S / 2, begin_s=10.0)
    # then it has read nothing before its poll
    assert len(node.reads.begun) == known


def polls(spread_polls: bool, end_s: float) -> int:
    """The reads of 200 agents from their first reads on until then."""
    counts: Counter[str] = Counter()
    settings = AgentSettings(heartbeat_interval_s=POLL_S)  # few ticks
    fleet = hosts(200)
    reads = AtOnce(EmptyPlacement(fleet))
    nodes = [SimulatedNode(host, 1, settings, 0.0, reads, counts, spread_polls=spread_polls) for host in fleet]
    for node in nodes:
        list(node.appear(0.0))
    first = counts["reads"]
    for node in nodes:
        now = 0.0
        while (now := max(now, node.deadline_s(now))) <= end_s:
            list(node.tick(now))
    return counts["reads"] - first


def test_agents_that_have_run_for_long_poll_in_every_part_of_the_interval() -> None:
    # 200 agents, each of which reads its tree and its allocations once in an interval
    tenth = polls(spread_polls=True, end_s=POLL_S / 10)
    assert 38 <= tenth <= 42
    assert 300 < polls(spread_polls=True, end_s=POLL_S) < 500


def test_agents_that_have_just_started_do_not_poll_for_most_of_the_interval() -> None:
    assert polls(spread_polls=False, end_s=POLL_S / 2) == 0


# -- the threads


class WithOneServer:
    """Answers as Placement with the row of a server; counts its calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def call(self, _method: str, path: str, *_: Any) -> Reply:
        self.asked.append(path)
        return reply_from(200, {"allocations": {"consumer-1": {"resources": {"VCPU": 1}, "consumer_generation": 1}}})


def test_first_reads_have_no_call_and_later_ones_show_what_placement_has() -> None:
    # given an agent that starts
    answers: SimpleQueue[tuple[str, Answer]] = SimpleQueue()
    placement = WithOneServer()
    reads = InThreads(FirstSimulated(placement, [HOST]), lambda node, answer: answers.put((node, answer)))
    # when it reads its tree and its allocations, then it gets those of an empty host, and Placement is not called
    reads.begin(ReadTree(HOST.node, cause=""), 0.0)
    reads.begin(ReadAllocations(HOST.node, (HOST.node,), cause=""), 0.0)
    (node, tree), (_, none) = answers.get(timeout=SOON_S), answers.get(timeout=SOON_S)
    assert isinstance(tree, ev.TreeRead) and (node, tree.providers) == (HOST.node, (provider(HOST),))
    assert isinstance(none, ev.AllocationsRead) and (none.consumers, placement.asked) == ({}, [])
    # and when it reads again, then Placement answers
    reads.begin(ReadAllocations(HOST.node, (HOST.node,), cause=""), 0.0)
    _, one = answers.get(timeout=SOON_S)
    assert isinstance(one, ev.AllocationsRead)
    assert one.consumers == {"consumer-1": {HOST.node: {"VCPU": 1}}}
    assert placement.asked == [f"/resource_providers/{HOST.node}/allocations"]


def test_a_poll_of_an_unchanged_tree_costs_two_calls() -> None:
    # given an agent that has read its tree, in a Placement with the rows of the benchmark
    answers: SimpleQueue[Answer] = SimpleQueue()
    rows, asked = FirstSimulated(WithOneServer(), [HOST]), list[str]()

    def call(method: str, path: str, *_: Any) -> Reply:
        asked.append(path.partition("?")[0].rpartition("/")[2])
        return rows.call(method, path)

    reads = InThreads(
        FirstSimulated(cast(Transport, SimpleNamespace(call=call)), [HOST]), lambda _, answer: answers.put(answer)
    )
    reads.begin(ReadTree(HOST.node, cause=""), 0.0)
    first = answers.get(timeout=SOON_S)
    # when it polls
    reads.begin(ReadTree(HOST.node, cause=""), 0.0)
    second = answers.get(timeout=SOON_S)
    # then inventories and traits are not read again
    assert asked == ["resource_providers", "aggregates"]
    assert isinstance(first, ev.TreeRead) and isinstance(second, ev.TreeRead) and first.providers == second.providers


def test_placement_is_found_in_the_file_of_the_scheduler(tmp_path: Path) -> None:
    with served(FakePlacement()) as address:
        nova_conf = tmp_path / "nova.conf"
        section = f"[placement]\nauth_type = admin_token\nendpoint = {address}\ntoken = admin\n"
        nova_conf.write_text(f"[DEFAULT]\nhost = bench\n{section}")

        reply = transport_of(str(nova_conf)).call("GET", "/resource_providers?in_tree=1")

    assert reply.status == 200


# -- the figures


def requests() -> list[Request]:
    """One call of the scheduler and three of agents."""
    lines = [
        "1763708000001 17 GET /resource_providers/1/allocations 200 3000 90 - shared-scheduler keystoneauth1/5.9",
        *(f"1763708000002 17 GET /resource_providers/{number}/allocations 200 3000 90 - {USER_AGENT} keystoneauth1/5.9"
          for number in range(3)),
    ]  # fmt: skip
    return [request for line in lines if (request := parse(line))]


def test_the_reads_of_agents_are_told_from_the_calls_of_the_scheduler() -> None:
    assert [kind_of(request) for request in requests()] == ["other", *["agents_reads"] * 3]


def test_the_calls_of_seconds_without_requests_do_not_count() -> None:
    used = Used(30.0, {"agents": 3.0}, {}, requests())

    counted = used.without_idle({"agents": 0.1}, {"agents_reads": 0.2}, 10.0)

    assert counted.calls() == {"other": 1, "agents_reads": 1, "conflicts": 0}
    assert counted.cpu_s == {"agents": 2.0}
