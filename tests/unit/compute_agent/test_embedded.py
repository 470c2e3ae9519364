# SPDX-License-Identifier: Apache-2.0
"""The agent inside nova-compute, on Nova's own ResourceTracker class, beside a scheduler on the local bus."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import nova.conf
import pytest
from nova.compute import vm_states
from nova.compute.resource_tracker import ResourceTracker
from nova.exception import ComputeResourcesUnavailable

from compute_agent.agent_settings import AgentSettings
from compute_agent.conf import register_opts
from compute_agent.service import agent as agent_module
from compute_agent.service.agent import Agent, Do
from compute_agent.tap import embedded as embedded_module
from compute_agent.tap.hooks import METHODS
from compute_agent.tap.monitor import ResourceTrackerTap
from shared_scheduler.placement.reader import PlacementReader
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.messages import Increment, Leave, Message, Snapshot, Verdict, agent_address
from shared_scheduler.sim.topology import is_pool
from shared_scheduler.transport.channel import Channel
from tests.support.local_bus import LocalBus
from tests.support.one_process import EmbeddedAgents, NothingKept, SettlingAgent
from tests.unit.compute_agent.fake_placement import FakePlacement
from tests.unit.compute_agent.node_facts import HOST, NODE, SlotFit, claim
from tests.unit.compute_agent.real_tracker import CONTEXT, Devices, Tracker, guest, record

WAIT_S = 60.0
GUEST = "0f7d1b9e-3c53-4ad5-a5a0-4d6c8a3c1f11"
#: another node of the same host
SECOND = "4d6ad7b1-6b1c-4f5d-8f5f-000000000002"
LIMITS: dict[str, Any] = {}


def eventually(true: Callable[[], object]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.01)


class Scheduler:
    """Stores all messages, in order."""

    def __init__(self, bus: LocalBus) -> None:
        self.heard: list[Message] = []
        self.endpoint = bus.scheduler_endpoint("test")
        self.endpoint.start(self._receive, lambda connected: None)

    def _receive(self, bodies: Sequence[bytes]) -> None:
        self.heard += [decode(body) for body in bodies]

    def leaf(self, name: str) -> Any:
        """What this scheduler believes of the node."""
        told = [one.leaves[name] for one in self.heard
                if isinstance(one, Snapshot | Increment) and name in one.leaves]  # fmt: skip
        return told[-1] if told else None

    def names(self) -> set[str]:
        """Of all leaves."""
        return {name for one in self.heard if isinstance(one, Snapshot | Increment) for name in one.leaves}

    def consumers(self) -> set[str]:
        """Whom this scheduler believes on the node."""
        found: dict[str, Any] = {}
        for one in self.heard:
            if isinstance(one, Snapshot | Increment):
                found |= one.consumers
        return {uuid for uuid, consumer in found.items() if consumer is not None}


class Compute:
    """The nova-computes of one process: trackers of a class that has embedded agents."""

    def __init__(self, bus: LocalBus, wait_s: float = WAIT_S) -> None:
        self.bus = bus
        self.placement = FakePlacement(vcpus=4)
        self.epochs = itertools.count(1)
        self.agents = EmbeddedAgents(self._agent, wait_s)
        self.trackers = type("Trackers", (Tracker,), {})
        for name, hooked in self.agents.hooks(self.trackers):
            setattr(self.trackers, name, hooked)

    def _agent(self, tracker: Any) -> SettlingAgent:
        return SettlingAgent(
            tracker.host, Channel(self.bus.agent_endpoint(tracker.host)),
            PlacementReader(self.placement), NothingKept(), next(self.epochs), SlotFit(), AgentSettings(),
            random.Random(1), mode="embedded",
        )  # fmt: skip

    def start(self) -> Any:
        """nova-compute starts and has audited its node."""
        tracker = self.trackers()
        tracker.update_available_resource(CONTEXT, HOST, startup=True)
        return tracker


@pytest.fixture
def bus() -> LocalBus:
    return LocalBus()


@pytest.fixture
def scheduler(bus: LocalBus) -> Scheduler:
    return Scheduler(bus)


@pytest.fixture
def compute(bus: LocalBus) -> Iterator[Compute]:
    made = Compute(bus)
    yield made
    made.agents.stop()


def test_schedulers_are_informed_before_nova_compute_continues(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.start()
    assert scheduler.leaf("agent.ready") is True

    for count in (1, 2, 3):
        uuid = f"{count}{GUEST[1:]}"
        tracker.instance_claim(CONTEXT, guest(tracker, uuid), HOST, {}, LIMITS)
        assert scheduler.leaf("cn.vcpus_used") == count


def test_a_node_without_an_audit_since_nova_computes_start_accepts_no_claim(
    bus: LocalBus, scheduler: Scheduler
) -> None:
    # given a first audit that ends before its time, because nova-conductor does not answer yet
    compute = Compute(bus, wait_s=0)
    tracker = compute.trackers()
    tracker.compute_nodes[HOST] = record()

    # when a build comes before the next one: the tracker knows of no other server
    tracker.instance_claim(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS)
    eventually(lambda: scheduler.leaf("cn.vcpus_used") == 1)
    assert scheduler.leaf("agent.ready") is False

    tracker.update_available_resource(CONTEXT, HOST)
    eventually(lambda: scheduler.leaf("agent.ready") is True)
    compute.agents.stop()


def test_an_instance_that_moved_away_is_removed_when_the_move_is_confirmed(
    compute: Compute, scheduler: Scheduler
) -> None:
    tracker = compute.start()
    moved = guest(tracker, GUEST)
    tracker.instance_claim(CONTEXT, moved, HOST, {}, LIMITS)
    assert scheduler.consumers() == {GUEST}

    tracker._drop_move_claim(CONTEXT, moved, HOST, moved.flavor, prefix="old_")

    assert scheduler.consumers() == set()


def test_devices_that_are_attached_to_a_running_server_are_taken(compute: Compute, scheduler: Scheduler) -> None:
    # given Nova's tracker of devices, which a nova-compute has from its first audit on
    tracker = compute.start()
    tracker.pci_tracker = Devices({"vendor_id": "8086", "product_id": "1515", "numa_node": 0, "count": 2})
    tracker._update(CONTEXT, tracker.compute_nodes[HOST])
    [pool] = [name for name in scheduler.names() if is_pool(name)]
    assert scheduler.leaf(pool) == 2

    # when one is taken without a claim, past everything else that nova-compute does
    tracker.pci_tracker.stats.pools[0]["count"] = 1
    tracker.pci_tracker.save(CONTEXT)

    assert scheduler.leaf(pool) == 1


def test_devices_are_reported_by_the_running_agent(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.start()
    tracker.pci_tracker = Devices({"vendor_id": "8086", "product_id": "1515", "numa_node": 0, "count": 2})
    for _ in range(2):
        tracker.driver.cleanup_host(host=HOST)
        tracker.update_available_resource(CONTEXT, HOST, startup=True)
    [pool] = [name for name in scheduler.names() if is_pool(name)]

    tracker.pci_tracker.stats.pools[0]["count"] = 1
    tracker.pci_tracker.save(CONTEXT)

    assert scheduler.leaf(pool) == 1


def test_changes_are_reported_although_placement_was_not_reached(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.start()
    tracker.fail_update = True

    with pytest.raises(RuntimeError, match="Placement is away"):
        tracker.instance_claim(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS)

    assert scheduler.leaf("cn.vcpus_used") == 1


def test_the_images_of_its_instances_are_counted(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.start()
    for uuid in (GUEST, f"1{GUEST[1:]}"):
        booted = guest(tracker, uuid)
        booted.image_ref = None
        booted.system_metadata = {"image_hw_architecture": "x86_64"}
        tracker.instance_claim(CONTEXT, booted, HOST, {}, LIMITS)
    assert scheduler.leaf("image.hw_architecture=x86_64") == 2

    booted.vm_state = vm_states.DELETED
    tracker.update_usage(CONTEXT, booted, HOST)

    assert scheduler.leaf("image.hw_architecture=x86_64") == 1


def test_a_claim_is_judged_and_taken_over(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.start()
    asked = replace(claim("first", consumer=GUEST), scheduler=scheduler.endpoint.address)

    scheduler.endpoint.cast(agent_address(HOST), encode(asked))
    tracker.instance_claim(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS)

    [verdict] = [one for one in scheduler.heard if isinstance(one, Verdict)]
    assert (verdict.claim_id, verdict.accepted) == ("first", True)


def test_a_claim_that_nova_compute_refuses_holds_nothing_any_more(
    compute: Compute, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server whose claim was accepted
    tracker = compute.start()
    asked = replace(claim("first", consumer=GUEST), scheduler=scheduler.endpoint.address)
    scheduler.endpoint.cast(agent_address(HOST), encode(asked))
    eventually(lambda: GUEST in scheduler.consumers())

    # when nova-compute cannot take it
    def refuse(*_: object, **__: object) -> None:
        raise ComputeResourcesUnavailable(reason="a device that nobody told of")

    monkeypatch.setattr("nova.compute.claims.Claim", refuse)
    with pytest.raises(ComputeResourcesUnavailable):
        tracker.instance_claim(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS)

    # then schedulers know before the conductor looks for another host
    assert GUEST not in scheduler.consumers()


@pytest.mark.parametrize("how", ["remove_node", "clean_compute_node_cache"])
def test_a_node_that_the_tracker_drops_leaves(compute: Compute, scheduler: Scheduler, how: str) -> None:
    tracker = compute.start()
    tracker.reportclient = type("ReportClient", (), {"invalidate_resource_provider": lambda *_: None})()

    if how == "remove_node":
        tracker.remove_node(HOST)
    else:
        tracker.clean_compute_node_cache([])

    assert isinstance(scheduler.heard[-1], Leave)


def test_a_nova_compute_that_begins_anew_has_a_new_agent(compute: Compute, scheduler: Scheduler) -> None:
    compute.start()
    compute.start()

    told = [(type(one), one.epoch) for one in scheduler.heard if isinstance(one, Leave | Snapshot)]
    assert told == [(Snapshot, 1), (Leave, 1), (Snapshot, 2)]


def test_a_nova_compute_that_ends_leaves(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.start()
    assert scheduler.leaf("agent.mode") == "embedded"

    tracker.driver.cleanup_host(host=HOST)  # the last thing that its manager does

    assert isinstance(scheduler.heard[-1], Leave)


def test_its_last_increment_publishes_that_the_node_is_not_ready(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.start()
    assert scheduler.leaf("agent.ready") is True

    tracker.driver.cleanup_host(host=HOST)

    assert scheduler.leaf("agent.ready") is False


def test_a_service_that_is_started_again_is_heard_of_again(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.start()
    for _ in range(2):
        tracker.driver.cleanup_host(host=HOST)
        tracker.update_available_resource(CONTEXT, HOST, startup=True)

    told = [(type(one), one.epoch) for one in scheduler.heard if isinstance(one, Leave | Snapshot)]
    assert told == [
        (Snapshot, 1), (Leave, 1), (Snapshot, 2), (Leave, 2), (Snapshot, 3),
    ]  # fmt: skip


def test_a_driver_that_fails_to_clean_up_is_heard_all_the_same(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.trackers()

    def fails(host: str) -> None:
        raise RuntimeError("libvirt is away")

    tracker.driver.cleanup_host = fails
    tracker.update_available_resource(CONTEXT, HOST, startup=True)

    with pytest.raises(RuntimeError, match="libvirt is away"):
        tracker.driver.cleanup_host(host=HOST)

    assert isinstance(scheduler.heard[-1], Leave)


def test_a_scheduler_that_starts_later_gets_a_snapshot(compute: Compute, bus: LocalBus) -> None:
    tracker = compute.start()
    late = Scheduler(bus)
    tracker.instance_claim(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS)
    assert late.leaf("cn.vcpus_used") == 1


def test_a_record_that_still_belongs_to_another_host_is_left_alone(compute: Compute, scheduler: Scheduler) -> None:
    tracker = compute.trackers()
    tracker._update(CONTEXT, record())
    assert scheduler.heard == [] or not any(isinstance(one, Snapshot) for one in scheduler.heard)


def no_agent_can_be_made(compute: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_tracker: Any) -> Agent:
        raise ValueError("no transport_url")

    monkeypatch.setattr(compute.agents, "make", broken)


def test_an_agent_that_cannot_be_made_costs_nova_compute_nothing(
    compute: Compute, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_agent_can_be_made(compute, monkeypatch)
    tracker = compute.start()
    assert tracker.compute_nodes[HOST].uuid == NODE
    assert "no transport_url" in caplog.text


@pytest.fixture
def held_up(bus: LocalBus) -> Iterator[tuple[Compute, Any, threading.Event]]:
    """A nova-compute that waits for nobody, and its agent, which waits: for its disk, say."""
    made, free = Compute(bus, wait_s=0), threading.Event()
    tracker = made.start()
    [sink] = made.agents.sinks.values()
    assert sink.agent is not None
    sink.agent.put(Do(lambda: free.wait(2 * WAIT_S) and None))
    yield made, tracker, free
    free.set()
    made.agents.stop()


def test_an_agent_that_is_held_up_does_not_hold_up_nova_compute(
    held_up: tuple[Compute, Any, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an agent that has more to do than it takes from anybody
    _, tracker, free = held_up
    monkeypatch.setattr(agent_module, "INBOX_MAX", 0)

    # when nova-compute goes on, under its own lock
    claims = threading.Thread(
        target=tracker.instance_claim, args=(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS), daemon=True
    )
    claims.start()
    claims.join(WAIT_S)

    assert not claims.is_alive() and not free.is_set()


def test_a_report_that_did_not_fit_is_sent_when_there_is_room(
    held_up: tuple[Compute, Any, threading.Event], scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    _, tracker, free = held_up
    monkeypatch.setattr(agent_module, "INBOX_MAX", 0)
    monkeypatch.setattr(agent_module, "RESERVE_MAX", 1)
    for count in (1, 2):
        uuid = f"{count}{GUEST[1:]}"
        tracker.instance_claim(CONTEXT, guest(tracker, uuid), HOST, {}, LIMITS)
    assert "the inbox is full" in caplog.text

    free.set()

    def is_told_at_an_audit() -> bool:
        tracker._update(CONTEXT, tracker.compute_nodes[HOST])
        return bool(scheduler.leaf("cn.vcpus_used") == 2)

    eventually(is_told_at_an_audit)


def test_a_report_that_did_not_fit_is_sent_although_an_audit_has_failed(
    held_up: tuple[Compute, Any, threading.Event], scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an agent that has missed a claim
    _, tracker, free = held_up
    with monkeypatch.context() as full:
        full.setattr(agent_module, "INBOX_MAX", 0)
        full.setattr(agent_module, "RESERVE_MAX", 0)
        tracker.instance_claim(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS)
    # when the next audit fails after it has emptied the numbers of the node, and nova-compute goes on
    node = tracker.compute_nodes[HOST]
    tracker._copy_resources(node, tracker.driver.get_available_resource(HOST))
    free.set()

    def is_told() -> bool:
        tracker._update(CONTEXT, node)
        return bool(scheduler.leaf("cn.vcpus_used") == 1)

    # then the agent gets the numbers of before
    eventually(is_told)


def test_a_removed_node_leaves_although_that_did_not_fit(
    held_up: tuple[Compute, Any, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a nova-compute with two nodes
    compute, tracker, free = held_up
    tracker.compute_nodes["second"] = record(SECOND, "second")
    tracker._update(CONTEXT, tracker.compute_nodes["second"])
    # when one of them goes to another nova-compute, while the inbox of the agent is full
    with monkeypatch.context() as full:
        full.setattr(agent_module, "INBOX_MAX", 0)
        full.setattr(agent_module, "RESERVE_MAX", 0)
        tracker.remove_node("second")
    free.set()
    # then the agent hears of it with the next audit of the other one
    [sink] = compute.agents.sinks.values()
    assert sink.agent is not None
    cores = sink.agent.cores
    eventually(lambda: SECOND in cores)
    tracker._update(CONTEXT, tracker.compute_nodes[HOST])
    eventually(lambda: list(cores) == [NODE])


def test_a_mistake_that_is_made_at_each_update_is_logged_once_within_a_while(
    compute: Compute, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_agent_can_be_made(compute, monkeypatch)
    tracker = compute.start()
    for _ in range(5):
        tracker.update_available_resource(CONTEXT, HOST)
    assert caplog.text.count("ValueError: no transport_url") == 1


# -- how it gets into nova-compute


@pytest.fixture
def conf() -> Iterator[Any]:
    register_opts(nova.conf.CONF)
    yield nova.conf.CONF
    nova.conf.CONF.clear_override("embedded", group="compute_agent")


def test_nova_compute_embeds_the_agent_if_configured(
    conf: Any, compute: Compute, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given nova-compute's own start: its tracker is handed to the entry point before anything is served
    made = []

    def agent_from(tracker: Any, _conf: Any) -> Agent:
        made.append(compute._agent(tracker))
        return made[-1]

    monkeypatch.setattr(embedded_module, "agent_from", agent_from)
    tracker = Tracker()
    conf.set_override("embedded", True, group="compute_agent")
    ResourceTrackerTap(tracker)
    # then there is no agent before the first report, which the process that serves makes
    assert made == []
    tracker.update_available_resource(CONTEXT, HOST, startup=True)
    [agent] = made
    # and what the tracker says afterwards is told, with nobody waiting for it
    tracker.instance_claim(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS)
    settled = threading.Event()
    agent.when_settled(settled.set)
    assert settled.wait(WAIT_S)
    assert scheduler.leaf("cn.vcpus_used") == 1
    agent.stop()


def test_the_class_is_left_as_it_is(conf: Any) -> None:
    before = {name: getattr(ResourceTracker, name) for name in METHODS}
    conf.set_override("embedded", True, group="compute_agent")
    ResourceTrackerTap(Tracker())
    assert {name: getattr(ResourceTracker, name) for name in METHODS} == before
