# SPDX-License-Identifier: Apache-2.0
"""The agent's process without a broker: inbox, state over restarts, fallback, on the in-process bus."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compute_agent import core as core_module
from compute_agent.agent_settings import AgentSettings
from compute_agent.core import AgentCore
from compute_agent.effects import ReadAllocations, ReadTree
from compute_agent.events import AllocationsRead, Member, ReadFailed, TrackerReported, TreeRead
from compute_agent.service import agent as agent_module
from compute_agent.service.agent import Agent
from compute_agent.service.fallback import FAILURES_MAX, Fallback, FallbackTimes, Record
from compute_agent.service.placement_thread import PlacementThread
from compute_agent.service.state_directory import StateDirectory
from compute_agent.tap_wire import ClaimEntered, ClaimFailed, NodeGone, NodeReported, TapHello, TreeWritten
from shared_scheduler.model.providers import Provider
from shared_scheduler.placement.reader import PlacementReader
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
    Hello,
    Leave,
    Message,
    RefusalCode,
    Resync,
    Role,
    Snapshot,
    Verdict,
    Want,
    agent_address,
)
from shared_scheduler.transport.channel import Channel
from tests.support.memory_bus import MemoryBus
from tests.unit.compute_agent.fake_placement import FakePlacement
from tests.unit.compute_agent.node_facts import HOST, NODE, ROOT_LEAVES, SlotFit, claim

WAIT_S = 60.0
#: another node of the same host
SECOND = "4d6ad7b1-6b1c-4f5d-8f5f-000000000002"
CHILD = "4d6ad7b1-6b1c-4f5d-8f5f-0000000000c1"


def mistake(*_: object) -> None:
    raise RuntimeError("a mistake of ours")


def eventually(true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.01)


class Scheduler:
    """Stores all messages, and casts those that a test requests."""

    def __init__(self, bus: MemoryBus) -> None:
        self.heard: list[Message] = []
        self._changed = threading.Condition()
        self.endpoint = bus.scheduler_endpoint("test")
        self.endpoint.start(self._receive, lambda connected: None)

    def _receive(self, bodies: Sequence[bytes]) -> None:
        with self._changed:
            self.heard += [decode(body) for body in bodies]
            self._changed.notify_all()

    def cast(self, asked: Claim) -> None:
        """A claim of ours."""
        asked = replace(asked, scheduler=self.endpoint.address)
        self.endpoint.cast(agent_address(HOST), encode(asked))

    def wait(self, true: Callable[[Message], bool]) -> Any:
        """The first message of which this is true."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(true, self.heard)), WAIT_S), self.heard
            return next(filter(true, self.heard))

    def verdict(self, claim_id: str) -> Verdict:
        found: Verdict = self.wait(lambda one: isinstance(one, Verdict) and one.claim_id == claim_id)
        return found


class World:
    """A running agent between a scheduler, a tap and a Placement."""

    def __init__(self, path: Path) -> None:
        self.bus = MemoryBus()
        self.bus.start_thread()
        self.scheduler = Scheduler(self.bus)
        self.placement = FakePlacement()
        self.path = path
        self.start()

    def start(self) -> None:
        self.state = StateDirectory(str(self.path))
        self.channel = Channel(self.bus.agent_endpoint(HOST))
        self.agent = Agent(
            HOST, self.channel, PlacementReader(self.placement), self.state,
            self.state.next_epoch(time.time), SlotFit(), AgentSettings(), random.Random(1),
        )  # fmt: skip
        self.thread = threading.Thread(target=self.agent.run, daemon=True)
        self.thread.start()

    def tap(self) -> None:
        """nova-compute's tap speaks."""
        self.agent.take_from_tap(TapHello(HOST, 1))
        self.agent.take_from_tap(NodeReported(NODE, ROOT_LEAVES, {}, complete=True, ready=True))

    def ready(self) -> Snapshot:
        found: Snapshot = self.scheduler.wait(
            lambda one: (
                isinstance(one, Snapshot) and one.epoch == self.agent._epoch and one.leaves.get("agent.ready") is True
            )
        )
        return found

    def stop(self) -> None:
        self.agent.stop()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        self.state.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(core_module, "OPEN_AFTER_S", WAIT_S)  # a busy machine shows no node before it is ready
    made = World(tmp_path / "agent")
    yield made
    if made.thread.is_alive():
        made.stop()
    made.bus.stop_thread()


class TestAgent:
    def test_it_serves_claims_between_tap_placement_and_scheduler(self, world: World) -> None:
        world.tap()
        world.ready()

        for index in range(3):
            world.scheduler.cast(claim(f"c{index}"))

        verdicts = [world.scheduler.verdict(f"c{index}").accepted for index in range(3)]
        assert verdicts == [True, True, False]

    def test_a_node_that_is_not_ours_is_refused(self, world: World) -> None:
        world.tap()
        world.ready()

        world.scheduler.cast(claim("c1", node="somebody-else"))

        reason = world.scheduler.verdict("c1").reason
        assert reason is not None and reason.code == RefusalCode.WRONG_NODE

    def test_a_node_that_is_removed_and_added_again_begins_a_new_epoch(self, world: World) -> None:
        """Or schedulers that missed its end would take all that it says afterwards for old."""
        world.tap()
        first = world.ready()
        world.agent.take_from_tap(NodeGone(NODE))
        world.scheduler.wait(lambda one: isinstance(one, Leave))
        told = len(world.scheduler.heard)

        world.tap()

        world.scheduler.wait(lambda _: any(isinstance(one, Snapshot) for one in world.scheduler.heard[told:]))
        epochs = {one.epoch for one in world.scheduler.heard[told:] if isinstance(one, Snapshot | Heartbeat)}
        assert min(epochs) > first.epoch

    def test_invalid_messages_are_counted_without_other_effects(self, world: World) -> None:
        world.tap()
        world.ready()

        world.scheduler.endpoint.cast(agent_address(HOST), b"\xc1rubbish")
        world.scheduler.cast(claim("c1"))

        assert world.scheduler.verdict("c1").accepted
        assert world.channel.counters["messages_rejected"] == 1

    def test_a_lost_tap_makes_it_refuse(self, world: World) -> None:
        world.tap()
        world.ready()

        world.agent.tap_lost("gone")
        world.scheduler.cast(claim("c1"))

        reason = world.scheduler.verdict("c1").reason
        assert reason is not None and reason.detail["why"] == "gone"

    def test_a_lost_tap_is_lost_for_all_nodes_of_the_host(self, world: World) -> None:
        world.tap()
        world.agent.take_from_tap(
            NodeReported(SECOND, ROOT_LEAVES | {"cn.uuid": SECOND}, {}, complete=True, ready=True)
        )
        eventually(lambda: len(world.agent.cores) == 2)

        world.agent.tap_lost("gone")

        for claim_id, node in (("c1", NODE), ("c2", SECOND)):
            world.scheduler.cast(claim(claim_id, node=node))
            reason = world.scheduler.verdict(claim_id).reason
            assert reason is not None and reason.detail["why"] == "gone"

    def test_a_claim_of_one_node_is_not_looked_for_in_placement_by_the_others(self, world: World) -> None:
        # given two nodes of one nova-compute, and a claim that one of them has accepted
        world.tap()
        world.agent.take_from_tap(
            NodeReported(SECOND, ROOT_LEAVES | {"cn.uuid": SECOND}, {}, complete=True, ready=True)
        )
        eventually(lambda: len(world.agent.cores) == 2 and all(one.ready for one in world.agent.cores.values()))
        world.scheduler.cast(claim("c1", "vm-1"))
        assert world.scheduler.verdict("c1").accepted
        del world.placement.asked[:]
        # when nova-compute begins the build, and a read has ended that was asked for after it
        world.agent.take_from_tap(ClaimEntered("vm-1", "instance_claim"))
        world.agent.take_from_tap(TreeWritten(NODE))
        eventually(lambda: any("in_tree" in path for path in world.placement.asked))
        # then nothing else was read
        assert not [path for path in world.placement.asked if path.endswith("/allocations")]

    def test_a_claim_that_nova_compute_refuses_frees_its_resources(self, world: World) -> None:
        world.tap()
        world.ready()
        world.scheduler.cast(claim("c1", "vm-1", vcpus=2))
        assert world.scheduler.verdict("c1").accepted

        world.agent.take_from_tap(ClaimFailed("vm-1", "instance_claim", "NUMA"))
        world.scheduler.wait(lambda one: getattr(one, "claims", {}).get("c1", "") is None)
        world.scheduler.cast(claim("c2", vcpus=2))

        assert world.scheduler.verdict("c2").accepted

    def test_a_restart_keeps_claims_and_begins_a_greater_epoch(self, world: World) -> None:
        world.tap()
        before = world.ready().epoch
        world.scheduler.cast(claim("c1", "vm-1"))
        assert world.scheduler.verdict("c1").accepted

        world.stop()
        world.start()
        world.tap()

        after = world.ready()
        assert after.epoch > before
        assert after.claims == {"c1": "vm-1"}

    def test_a_resync_of_a_later_epoch_starts_a_greater_one_that_survives_a_restart(self, world: World) -> None:
        world.tap()
        followed = world.ready().epoch + 10**9
        world.scheduler.cast(claim("c1", "vm-1"))
        assert world.scheduler.verdict("c1").accepted

        asked = Resync(NODE, world.scheduler.endpoint.address, followed, 0)
        world.scheduler.endpoint.cast(agent_address(HOST), encode(asked))

        told = world.scheduler.wait(lambda one: isinstance(one, Snapshot) and one.epoch > followed)
        assert told.claims == {"c1": "vm-1"}
        world.stop()
        world.start()
        world.tap()
        assert world.ready().epoch > told.epoch

    def test_the_end_of_a_build_that_its_scheduler_cannot_get_is_broadcast(self, world: World) -> None:
        # given a server that was placed by a scheduler that has stopped
        world.tap()
        end = BuildResult(NODE, world.ready().epoch, "vm-1", True, "", "ssched.scheduler.stopped", 1)
        # when the broker returns what was cast to it
        world.agent.returned(end)
        # then the other schedulers get it
        assert world.scheduler.wait(lambda one: isinstance(one, BuildResult)) == end

    def test_a_clean_stop_leaves(self, world: World) -> None:
        world.tap()
        world.ready()

        world.stop()

        world.scheduler.wait(lambda one: isinstance(one, Leave))

    def test_a_node_that_nova_drops_leaves_and_is_forgotten(self, world: World) -> None:
        world.tap()
        world.ready()

        world.agent.take_from_tap(NodeGone(NODE))

        world.scheduler.wait(lambda one: isinstance(one, Leave))
        world.stop()
        assert StateDirectory(str(world.path)).kept() == {}

    def test_a_provider_that_an_operator_deleted_does_not_hide_the_others(self, world: World) -> None:
        # given a provider below the node's, which goes past nova-compute
        world.placement.child = CHILD
        world.tap()
        assert f"rp.{CHILD}" in world.ready().leaves
        world.placement.child = None

        # when the agent reads who holds what, for a claim that found no room
        world.placement.consumers = {"vm-1": {"VCPU": 1}}
        world.scheduler.cast(claim("c1", vcpus=99))

        world.scheduler.wait(lambda one: getattr(one, "leaves", {}).get(f"rp.{CHILD}", "") is None)
        world.scheduler.wait(lambda one: "vm-1" in getattr(one, "consumers", {}))

    def test_a_new_scheduler_that_greets_gets_a_snapshot(self, world: World) -> None:
        world.tap()
        world.ready()
        heard = len([one for one in world.scheduler.heard if isinstance(one, Snapshot)])

        hello = Hello(Role.SCHEDULER, world.scheduler.endpoint.address, 1, want=Want.SNAPSHOT)
        world.scheduler.endpoint.broadcast(encode(hello))

        world.scheduler.wait(lambda _: len([one for one in world.scheduler.heard if isinstance(one, Snapshot)]) > heard)

    def test_a_mistake_at_a_heartbeat_does_not_end_it(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.tap()
        world.ready()
        monkeypatch.setattr(AgentCore, "next_deadline_s", lambda core, now: now)  # always due
        monkeypatch.setattr(AgentCore, "step", mistake)

        eventually(lambda: f"Tick of node {NODE} failed" in caplog.text)

        monkeypatch.undo()
        world.scheduler.cast(claim("c1"))
        assert world.scheduler.verdict("c1").accepted

    def test_dropped_messages_are_logged_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(agent_module, "INBOX_MAX", 0)
        for _ in range(20):
            world.agent.received([Resync(NODE, "ssched.scheduler.a", 0, 0)])

        assert caplog.text.count("messages are dropped") == 1


class TestReadsOfPlacement:
    @pytest.fixture(autouse=True)
    def set_up(self) -> None:
        self.placement = FakePlacement()
        self.answers: list[Any] = []
        self.thread = PlacementThread(PlacementReader(self.placement), lambda _, answer: self.answers.append(answer))

    def tree(self) -> tuple[Provider, ...]:
        answer = self.thread.carry_out(ReadTree(NODE, cause=""))
        assert isinstance(answer, TreeRead)
        return answer.providers

    def test_of_a_tree_with_the_same_generation_only_the_aggregates_are_read_again(self) -> None:
        first = self.tree()
        self.placement.asked.clear()

        assert self.tree() == first
        assert [path.rsplit("/")[-1].partition("?")[0] for path in self.placement.asked] == [
            "resource_providers",
            "aggregates",
        ]
        self.placement.generation, self.placement.vcpus = 2, 8
        assert self.tree()[0].inventories["VCPU"].total == 8

    def test_a_moved_provider_is_detected_although_its_generation_is_the_same(self) -> None:
        self.tree()

        self.placement.parent = "0e7bd5a2-8aab-4a5e-9c5d-8e6fae8b2f4f"

        [provider] = self.tree()
        assert provider.parent == self.placement.parent

    def test_an_aggregate_is_seen_although_the_generation_is_the_same(self) -> None:
        """Placement leaves the generation as it is when aggregates are set with a microversion below 1.19."""
        self.tree()

        self.placement.aggregates = ["0e7bd5a2-8aab-4a5e-9c5d-8e6fae8b2f4f"]

        [provider] = self.tree()
        assert provider.aggregates == set(self.placement.aggregates)

    def test_a_provider_that_is_gone_is_forgotten(self) -> None:
        self.tree()

        self.placement.gone = True

        assert self.tree() == ()
        assert not self.thread._known

    def test_consumers_are_read_with_their_allocations(self) -> None:
        self.placement.consumers = {"vm-1": {"VCPU": 1}}

        answer = self.thread.carry_out(ReadAllocations(NODE, (NODE,), cause=""))

        assert isinstance(answer, AllocationsRead)
        assert answer.consumers == {"vm-1": {NODE: {"VCPU": 1}}}
        assert answer.generations == {"vm-1": 1}

    def test_an_answer_of_a_wrong_shape_is_a_failed_read(self) -> None:
        self.placement.status = 503

        answer = self.thread.carry_out(ReadTree(NODE, cause=""))

        assert isinstance(answer, ReadFailed)
        assert (answer.what, "503 : out of order" in answer.why) == ("tree", True)


class Conductor:
    """The answers of nova-conductor; ``seen_s``: the time of nova-compute's last report, with Nova's defaults: every
    ``REPORT_S`` while it runs, and up for ``DOWN_S``."""

    REPORT_S = 10
    DOWN_S = 60

    def __init__(self, now: float) -> None:
        self.now = self.born_s = now
        self.died_at_s = float("inf")
        self.reads = 0
        self.broken = False

    def seen_up(self) -> float | None:
        if self.broken:
            raise OSError("no answer")
        last_s = min(self.now, self.died_at_s)
        seen_s = last_s - (last_s - self.born_s) % self.REPORT_S
        return seen_s if self.now - seen_s <= self.DOWN_S else None

    def nodes(self) -> list[Record]:
        self.reads += 1
        return [Node()]


class Node:
    node = NODE
    leaves = ROOT_LEAVES
    members = {"vm-1": Member()}  # noqa: RUF012


class Story:
    """A fallback with Nova's defaults; the test advances the time, from the agent's start."""

    def __init__(self, world: World) -> None:
        assert world.agent.tap_lost_at_s is not None
        self.start_s = self.now = world.agent.tap_lost_at_s  # this moment may be seconds later on a busy machine
        self.conductor = Conductor(self.now)
        self.fallback = Fallback(world.agent, self.conductor, FallbackTimes(after_s=30, busy_s=1, idle_s=15))

    def until(self, seconds: float) -> int:
        """Read each half second until so long after the start; the reads of that time."""
        before, end_s = self.conductor.reads, self.start_s + seconds
        while self.now < end_s:
            self.now = self.conductor.now = min(self.now + 0.5, end_s)
            self.fallback.turn(self.now)
        return self.conductor.reads - before


@pytest.fixture
def story(world: World) -> Story:
    return Story(world)


class TestFallback:
    def test_without_a_tap_the_agent_publishes_the_node_as_degraded(self, world: World, story: Story) -> None:
        assert story.until(29) == 0  # the tap has still time to come
        assert story.until(50) >= 1

        told = world.ready()
        assert told.leaves["agent.mode"] == "fallback"
        assert told.consumers["vm-1"].member

    def test_it_polls_quickly_only_while_claims_are_pending(self, world: World, story: Story) -> None:
        story.until(50)
        world.ready()

        assert story.until(80) == 2
        world.scheduler.cast(claim("c1"))
        assert world.scheduler.verdict("c1").accepted
        assert story.until(100) >= 5

    def test_the_tap_is_used_again_when_it_returns(self, world: World, story: Story) -> None:
        story.until(50)
        world.ready()

        world.tap()
        world.scheduler.wait(lambda one: getattr(one, "leaves", {}).get("agent.mode") == "tap")

        assert story.until(200) == 0
        world.agent.fallback_reported(NODE, TrackerReported({"cn.vcpus": 1}, {}, complete=True))
        assert world.agent.cores[NODE].ledger.leaves["cn.vcpus"] == 4

    def test_a_dead_nova_compute_is_published_when_its_record_is_old(self, world: World, story: Story) -> None:
        story.until(50)
        world.ready()

        story.conductor.died_at_s = story.now
        story.until(130)

        world.scheduler.wait(lambda one: getattr(one, "leaves", {}).get("agent.ready") is False)
        assert story.until(300) == 0

    def test_a_nova_compute_that_died_with_its_tap_is_not_spoken_for_while_its_record_is_still_up(
        self, world: World, story: Story
    ) -> None:
        # given a tap that was heard, and is lost because nova-compute died
        world.tap()
        world.ready()
        world.agent.tap_lost("nova-compute closed the tap's socket")
        world.scheduler.cast(claim("c1"))
        assert not world.scheduler.verdict("c1").accepted
        story.conductor.died_at_s = story.now

        # then its record, which is up for half a minute after the fallback began to look, moves nobody
        assert story.until(35) == 0 and story.conductor.seen_up() is not None
        assert story.until(300) == 0 and story.conductor.seen_up() is None

        # and when it is back without a tap, it is spoken for
        story.conductor.born_s, story.conductor.died_at_s = story.now, float("inf")
        assert story.until(330) >= 1

    def test_a_second_loss_of_the_tap_is_judged_anew(self, world: World, story: Story) -> None:
        # given a fallback that reads
        story.until(50)
        world.ready()

        # when the tap came back and died with nova-compute between two checks
        world.tap()
        world.scheduler.wait(lambda one: getattr(one, "leaves", {}).get("agent.mode") == "tap")
        world.agent.tap_lost("nova-compute closed the tap's socket")
        world.scheduler.cast(claim("c1"))
        assert not world.scheduler.verdict("c1").accepted
        story.conductor.died_at_s = story.now
        world.agent.tap_lost_at_s = story.now  # the story's time, not the machine's

        assert story.until(300) == 0

    def test_after_an_outage_of_the_conductor_nova_compute_must_report_again(self, world: World, story: Story) -> None:
        story.until(50)
        world.ready()

        story.conductor.died_at_s, story.conductor.broken = story.now, True
        for _ in range(FAILURES_MAX):
            story.fallback.failed(OSError("no answer"))
        world.scheduler.wait(lambda one: getattr(one, "leaves", {}).get("agent.ready") is False)
        story.conductor.broken = False

        assert story.until(300) == 0
