# SPDX-License-Identifier: Apache-2.0
"""The bus of one process delivers at once, and no sender waits for a slow receiver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from shared_scheduler.transport.bus import agent_address
from tests.support.in_process import InProcessEndpoint
from tests.support.local_bus import LocalBus

WAIT_S = 30.0


def listening(endpoint: InProcessEndpoint, answer: Callable[[bytes], None] = lambda body: None) -> list[bytes]:
    """What this endpoint hears from now on."""
    heard: list[bytes] = []

    def receive(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            heard.append(body)
            answer(body)

    endpoint.start(receive, lambda connected: None)
    return heard


def test_who_hears_what() -> None:
    bus = LocalBus()
    agent, one, other = bus.agent_endpoint("cmp-1"), bus.scheduler_endpoint("a"), bus.scheduler_endpoint("a")
    heard = {each: listening(each) for each in (agent, one, other)}

    agent.broadcast(b"increment")
    one.broadcast(b"hello")
    one.broadcast_to_schedulers(b"slice")
    one.cast(agent_address("cmp-1"), b"claim")
    agent.cast(one.address, b"verdict")
    one.cast("nobody", b"lost")

    assert heard[agent] == [b"hello", b"claim"]
    assert heard[one] == [b"increment", b"verdict"]
    assert heard[other] == [b"increment", b"hello", b"slice"]


def test_an_endpoint_that_left_receives_nothing() -> None:
    bus = LocalBus()
    agent, scheduler = bus.agent_endpoint("cmp-1"), bus.scheduler_endpoint("a")
    heard = listening(scheduler)
    scheduler.close()
    assert agent.broadcast(b"increment")
    assert heard == []


def test_an_immediate_answer_is_processed_after_its_event() -> None:
    bus = LocalBus()
    agent, scheduler = bus.agent_endpoint("cmp-1"), bus.scheduler_endpoint("a")
    heard = listening(scheduler)
    listening(agent, lambda body: [agent.broadcast(b"news"), agent.cast(scheduler.address, body)])  # type: ignore[func-returns-value]
    scheduler.cast(agent_address("cmp-1"), b"claim")
    assert heard == [b"news", b"claim"]


def test_a_receiver_that_fails_does_not_silence_the_others() -> None:
    bus = LocalBus()
    agent, broken, well = bus.agent_endpoint("cmp-1"), bus.scheduler_endpoint("a"), bus.scheduler_endpoint("b")

    def fail(_body: bytes) -> None:
        raise RuntimeError("a bug")

    listening(broken, fail)
    heard = listening(well)
    agent.broadcast(b"increment")
    assert heard == [b"increment"]


def test_two_schedulers_that_send_during_their_decisions_do_not_deadlock() -> None:
    # given two schedulers whose receivers need what they hold while they decide (again, as the engine)
    bus = LocalBus()
    endpoints = [bus.scheduler_endpoint(name) for name in "ab"]
    locks = {each.address: threading.RLock() for each in endpoints}
    meet = threading.Barrier(2)
    heard: list[str] = []

    def take(endpoint: InProcessEndpoint) -> Callable[[Sequence[bytes]], None]:
        def receive(_bodies: Sequence[bytes]) -> None:
            with locks[endpoint.address]:
                heard.append(endpoint.address)

        return receive

    for each in endpoints:
        each.start(take(each), lambda connected: None)

    # when both decide, and each tells the other
    def decide(endpoint: InProcessEndpoint) -> None:
        with locks[endpoint.address]:
            meet.wait(WAIT_S)
            endpoint.broadcast_to_schedulers(b"slice")

    threads = [threading.Thread(target=decide, args=(each,)) for each in endpoints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    # then both are heard
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(heard) == sorted(locks)
