# SPDX-License-Identifier: Apache-2.0
"""A simulated node behaves like a real one: it judges claims, takes them over, and frees resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from compute_agent import ends_of_builds
from compute_agent.agent_settings import AgentSettings
from compute_agent.events import ChannelChanged, MessagesArrived
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
    Increment,
    Message,
    Release,
    Snapshot,
    Usage,
    Verdict,
)
from shared_scheduler.sim.placement import SimPlacement
from tools.laboratory.fleet.builds import Builds
from tools.laboratory.fleet.hosts import Host, inventories
from tools.laboratory.fleet.node import Outgoing, SimulatedNode
from tools.laboratory.fleet.reads import AtOnce

HOST = Host(1)  # 256 GB
SCHEDULER = "ssched.scheduler.one"
TAKES_OVER_AFTER_S = 1.0
SPAWN_S = 4.0


def claim(number: int, memory_mb: int = 512) -> Claim:
    allocations = {HOST.node: {"VCPU": 1, "MEMORY_MB": memory_mb, "DISK_GB": 1}}
    usage = Usage(vcpus=1, memory_mb=memory_mb, disk_gb=1, instances=1, io_ops=1)
    return Claim(f"claim-{number}", HOST.node, SCHEDULER, f"consumer-{number}", allocations, usage)


class World:
    """One node and its messages so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.placement = SimPlacement()
        self.placement.add_provider(HOST.node, HOST.name, inventories(HOST))
        builds = Builds(TAKES_OVER_AFTER_S)
        self.node = SimulatedNode(HOST, 1, AgentSettings(), 0.0, AtOnce(self.placement), self.counts, builds, SPAWN_S)
        self.said: list[Message] = []
        self.cast_to: list[str] = []
        self.keep(self.node.appear(0.0))
        self.keep(self.node.step(ChannelChanged(True), 0.0))

    def keep(self, outgoing: Iterable[Outgoing]) -> None:
        for one in outgoing:
            self.said.append(one.message)
            self.cast_to.append(one.address)

    def tell(self, message: Message, now: float) -> None:
        """A message of the scheduler, which has written the allocations of its claim, or deleted them."""
        if isinstance(message, Claim):
            self.placement.end_write(self.placement.begin_write(message.consumer, message.allocations))
        elif isinstance(message, Release):
            self.placement.delete(message.consumer)
        self.keep(self.node.step(MessagesArrived((message,), now), now))

    def leaves(self) -> dict[str, object]:
        """The node as a scheduler knows it."""
        known: dict[str, object] = {}
        for message in self.said:
            if isinstance(message, Snapshot):
                known = dict(message.leaves)
            elif isinstance(message, Increment):
                known |= message.leaves
        return known

    def live_until(self, end_s: float, begin_s: float = 10.0) -> None:
        """The node gets its ticks when it wants them."""
        now = begin_s
        while (now := max(now, self.node.deadline_s(now))) <= end_s:
            self.keep(self.node.tick(now))

    def ends(self) -> list[tuple[str, BuildResult]]:
        """The ends of builds and their receivers, empty for all."""
        return [(to, said) for to, said in zip(self.cast_to, self.said, strict=True) if isinstance(said, BuildResult)]

    def verdicts(self) -> list[bool]:
        return [message.accepted for message in self.said if isinstance(message, Verdict)]


def test_a_node_introduces_itself_by_one_snapshot_of_all_it_has() -> None:
    world = World()
    leaves = world.leaves()
    assert sum(isinstance(message, Snapshot) for message in world.said) == 1
    assert (leaves["agent.ready"], leaves["cn.vcpus"], leaves["cn.free_ram_mb"]) == (True, 64, HOST.memory_mb - 512)
    provider = leaves[f"rp.{HOST.node}"]
    assert isinstance(provider, dict) and provider["inventories"]["VCPU"] == [64, 0, 1, 64, 1, 4.0]


def test_an_accepted_claim_is_counted_once_before_and_after_nova_compute_takes_it_over() -> None:
    world = World()
    world.tell(claim(1), 10.0)
    before = world.leaves()
    assert world.verdicts() == [True] and before["cn.memory_mb_used"] == 512 + 512

    world.keep(world.node.tick(10.0 + TAKES_OVER_AFTER_S))
    world.keep(world.node.tick(20.0))

    after = world.leaves()
    assert (after["cn.memory_mb_used"], after["cn.vcpus_used"], after["stats.num_instances"]) == (512 + 512, 1, 1)
    ended = [message.claims for message in world.said if isinstance(message, Increment) and message.claims]
    assert ended == [{"claim-1": "consumer-1"}, {"claim-1": None}]


def test_a_released_claim_is_never_built() -> None:
    world = World()
    world.tell(claim(1), 10.0)
    world.tell(Release("claim-1", HOST.node, SCHEDULER, "consumer-1"), 10.5)
    world.keep(world.node.tick(20.0))
    assert world.leaves()["cn.memory_mb_used"] == 512
    assert (world.counts["accepted"], world.counts["released"]) == (1, 1)


def test_a_full_node_refuses() -> None:
    world = World()
    world.tell(claim(1, memory_mb=HOST.memory_mb - 512), 10.0)
    world.tell(claim(2), 10.0)
    world.keep(world.node.tick(12.0))
    world.tell(claim(3), 13.0)
    assert world.verdicts() == [True, False, False]
    assert (world.counts["claims"], world.counts["refused"]) == (3, 2)


def test_the_next_deadline_is_the_take_over_while_one_is_near() -> None:
    world = World()
    world.keep(world.node.tick(5.0))
    world.tell(claim(1), 5.0)
    world.keep(world.node.tick(5.2))
    assert world.node.deadline_s(5.2) == 5.0 + TAKES_OVER_AFTER_S


def test_the_scheduler_that_placed_a_server_gets_the_end_of_its_build_and_a_heartbeat_says_it_again() -> None:
    # given a server that nova-compute counts after a second
    world = World()
    world.tell(claim(1), 10.0)
    # when it builds for some seconds
    world.live_until(10.0 + TAKES_OVER_AFTER_S + SPAWN_S - 0.1)
    assert world.ends() == []
    world.live_until(10.0 + TAKES_OVER_AFTER_S + SPAWN_S)
    # then the agent casts the end to the scheduler of the claim
    end = BuildResult(HOST.node, 1, "consumer-1", True, "", SCHEDULER, 1)
    assert world.ends() == [(SCHEDULER, end)]
    # and a heartbeat says it again, as with every agent
    world.live_until(10.0 + 2 * ends_of_builds.AGAIN_AFTER_S)
    assert [said.ends for said in world.said if isinstance(said, Heartbeat) and said.ends] == [(end,)]
    assert [said for _, said in world.ends()] == [end]
    assert world.counts["built"] == 1


def test_a_server_that_is_deleted_while_it_is_built_has_no_end() -> None:
    world = World()
    world.tell(claim(1), 10.0)
    world.live_until(10.0 + TAKES_OVER_AFTER_S)

    world.keep(world.node.delete("consumer-1", 12.0))
    world.live_until(60.0, begin_s=12.0)

    assert world.ends() == []
