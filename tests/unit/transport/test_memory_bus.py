# SPDX-License-Identifier: Apache-2.0
"""The bus in memory: the same contract as the real one, and faults on demand."""

from __future__ import annotations

import logging

import pytest

from shared_scheduler.transport.bus import Bus, Endpoint
from tests.support.memory_bus import Faults, MemoryBus
from tests.unit.transport.mailbox import Mailbox, eventually


def started(endpoint: Endpoint) -> Mailbox:
    return Mailbox(endpoint).start()


def as_bus(bus: MemoryBus) -> Bus:
    """The type checker's proof that it is one."""
    return bus


class World:
    """Two schedulers and two agents."""

    def __init__(self, seed: int = 1, faults: Faults | None = None) -> None:
        self.bus = MemoryBus(seed, faults)
        bus = as_bus(self.bus)
        self.one, self.two = (
            started(bus.scheduler_endpoint("s")),
            started(bus.scheduler_endpoint("s")),
        )
        self.agent, self.other = (
            started(bus.agent_endpoint("c1")),
            started(bus.agent_endpoint("c2")),
        )

    @property
    def boxes(self) -> list[Mailbox]:
        return [self.one, self.two, self.agent, self.other]


def test_subscriptions_select_the_receivers() -> None:
    world = World()
    world.agent.endpoint.broadcast(b"increment")
    world.one.endpoint.broadcast(b"hello")
    world.two.endpoint.cast("ssched.agent.c2", b"claim")
    world.two.endpoint.cast("ssched.agent.c9", b"to nobody")
    assert world.bus.deliver(0.0) == 7
    heard = [box.bodies for box in world.boxes]
    assert heard == [[b"increment"], [b"increment", b"hello"], [b"hello"], [b"hello", b"claim"]]
    assert world.bus.counters.undeliverable == 1


def test_messages_for_schedulers_reach_no_agent() -> None:
    world = World()
    world.one.endpoint.broadcast_to_schedulers(b"still here")
    world.agent.endpoint.broadcast_to_schedulers(b"increment")
    world.bus.deliver(0.0)
    heard = [box.bodies for box in world.boxes]
    assert heard == [[b"increment"], [b"still here", b"increment"], [], []]


def test_nothing_moves_by_itself() -> None:
    world = World()
    world.agent.endpoint.broadcast(b"increment")
    assert world.one.bodies == []
    assert world.bus.next_due_s() == 0.0


def test_every_start_has_an_address_of_its_own_but_an_agents_is_fixed() -> None:
    world = World()
    assert world.one.address != world.two.address
    assert world.agent.address == "ssched.agent.c1"


def test_a_restarted_agent_has_the_address() -> None:
    world = World()
    again = started(world.bus.agent_endpoint("c1"))
    world.agent.endpoint.close()  # the old one, late
    world.one.endpoint.cast("ssched.agent.c1", b"claim")
    world.bus.deliver(0.0)
    assert again.bodies == [b"claim"] and world.agent.bodies == []


def test_delays_keep_the_order_of_each_pair() -> None:
    world = World(faults=Faults(delay_min_s=0.01, delay_max_s=0.5))
    for n in range(200):
        world.agent.endpoint.broadcast(b"%d" % n)
    assert world.bus.deliver(0.0) == 0
    while (due := world.bus.next_due_s()) is not None:
        world.bus.deliver(due)
    assert world.one.bodies == [b"%d" % n for n in range(200)]


def faulty_run(seed: int) -> tuple[list[bytes], MemoryBus]:
    world = World(seed, Faults(loss=0.1, duplication=0.1, reordering=0.2, delay_max_s=0.05))
    for n in range(500):
        world.bus.deliver(n / 100)
        world.agent.endpoint.broadcast(b"%d" % n)
    world.bus.deliver(100.0)
    return world.one.bodies, world.bus


def test_faults_happen_and_are_counted() -> None:
    bodies, bus = faulty_run(seed=4)
    numbers = [int(body) for body in bodies]
    assert len(set(numbers)) < 500  # lost
    assert len(numbers) > len(set(numbers))  # doubled
    assert numbers != sorted(numbers)  # reordered
    counters = bus.counters
    assert counters.delivered == counters.sent - counters.lost + counters.doubled
    assert min(counters.lost, counters.doubled, counters.reordered) > 10


def test_one_seed_decides_everything() -> None:
    assert faulty_run(seed=9)[0] == faulty_run(seed=9)[0]
    assert faulty_run(seed=9)[0] != faulty_run(seed=10)[0]


@pytest.mark.parametrize(
    ("outgoing", "incoming", "heard"),
    [(True, False, [[], [b"to"]]), (False, True, [[b"from"], []]), (True, True, [[], []])],
)
def test_a_link_is_cut_in_either_direction_and_heals(outgoing: bool, incoming: bool, heard: list[list[bytes]]) -> None:
    world = World()
    world.bus.cut(world.agent.address, outgoing, incoming)
    world.agent.endpoint.broadcast(b"from")
    world.one.endpoint.cast(world.agent.address, b"to")
    world.bus.deliver(0.0)
    assert [world.one.bodies, world.agent.bodies] == heard
    world.bus.heal(world.agent.address)
    world.agent.endpoint.broadcast(b"again")
    world.bus.deliver(0.0)
    assert world.one.bodies[-1:] == [b"again"]


def test_an_endpoint_that_loses_the_broker_is_notified_and_misses_messages() -> None:
    world = World()
    world.agent.endpoint.broadcast(b"on its way")
    world.bus.disconnect(world.one.address)
    world.bus.deliver(0.0)
    world.bus.reconnect(world.one.address)
    world.agent.endpoint.broadcast(b"later")
    world.bus.deliver(0.0)
    assert world.one.told == [True, False, True]
    assert world.one.bodies == [b"later"]
    assert world.two.bodies == [b"on its way", b"later"]


def test_answers_are_delivered_in_the_same_turn() -> None:
    world = World()
    chatter = world.bus.agent_endpoint("c3")
    chatter.start(lambda bodies: chatter.broadcast(b"verdict") and None, lambda connected: None)
    world.one.endpoint.cast(chatter.address, b"claim")
    world.bus.deliver(0.0)
    assert world.one.bodies == [b"verdict"]


def test_a_closed_endpoint_receives_nothing_more() -> None:
    world = World()
    world.agent.endpoint.broadcast(b"x")
    world.one.endpoint.close()
    world.one.endpoint.close()
    world.bus.deliver(0.0)
    assert world.one.bodies == [] and world.two.bodies == [b"x"]


def test_by_itself_it_delivers_on_the_clock() -> None:
    world = World(faults=Faults(delay_max_s=0.01))
    world.bus.start_thread()
    with pytest.raises(RuntimeError):
        world.bus.start_thread()
    try:
        for n in range(50):
            world.agent.endpoint.broadcast(b"%d" % n)
        eventually(lambda: len(world.two.bodies) == 50, "all arrive")
        assert world.two.bodies == [b"%d" % n for n in range(50)]
    finally:
        world.bus.stop_thread()
        world.bus.stop_thread()


def test_a_receiver_that_fails_does_not_silence_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    broken = world.bus.agent_endpoint("c3")
    broken.start(lambda bodies: 1 / 0 and None, lambda connected: None)
    world.bus.start_thread()
    try:
        with caplog.at_level(logging.ERROR):
            world.one.endpoint.broadcast(b"first")
            eventually(lambda: "A receiver of the memory bus failed" in caplog.text, "it is logged")
            world.one.endpoint.cast(world.agent.address, b"second")
            world.agent.hears(b"second")
    finally:
        world.bus.stop_thread()
