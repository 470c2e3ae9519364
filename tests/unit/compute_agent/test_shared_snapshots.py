# SPDX-License-Identifier: Apache-2.0
"""Schedulers that start one after the other, and many agents: what these send, how often, and when."""

from __future__ import annotations

from random import Random

import pytest

from compute_agent.effects import Broadcast, Cast, Effect
from compute_agent.publisher import SNAPSHOT_PAUSE_S, Publisher
from shared_scheduler.protocol.messages import Heartbeat, Hello, Resync, Role, Snapshot, Want
from tests.unit.compute_agent.core_node import EPOCH
from tests.unit.compute_agent.node_facts import NODE

AGENTS, SCHEDULERS, SPREAD_S, STEP_S = 200, 8, 20.0, 0.25
#: the Hellos arrive during half of the spread
HELLOS_S = [number * SPREAD_S / 2 / (SCHEDULERS - 1) for number in range(SCHEDULERS)]


def hello(number: int, spread_s: float = SPREAD_S) -> Hello:
    return Hello(Role.SCHEDULER, f"s{number}", 1, want=Want.SNAPSHOT, spread_ms=int(spread_s * 1000))


def agent(seed: int) -> Publisher:
    made = Publisher(NODE, "host-1", "ssched.agent.host-1", EPOCH, 15.0, Random(seed))
    made.sync({"cn.vcpus_used": 0}, {}, {}, "")
    made.begin(-100.0)
    return made


def answers(
    publisher: Publisher, hellos: dict[float, Hello], until_s: float = 2 * SPREAD_S
) -> list[tuple[float, Effect]]:
    """When each snapshot is sent."""
    sent, asked = [], sorted(hellos.items())
    for step in range(int(until_s / STEP_S) + 1):
        now = step * STEP_S
        while asked and asked[0][0] <= now:
            publisher.plan_answer(asked.pop(0)[1], now)
        sent += [(now, one) for one in publisher.due(now) if isinstance(getattr(one, "message", None), Snapshot)]
    return sent


def test_most_agents_answer_all_hellos_with_one_broadcast() -> None:
    hellos = {at_s: hello(number) for number, at_s in enumerate(HELLOS_S)}
    found = [answers(agent(seed), hellos) for seed in range(AGENTS)]

    alone = [sent for sent in found if len(sent) == 1 and isinstance(sent[0][1], Broadcast)]

    assert len(alone) > 0.8 * AGENTS
    assert all(at_s <= SPREAD_S + STEP_S for ((at_s, _),) in alone)  # the spread of the first is kept
    assert sum(map(len, found)) < 1.3 * AGENTS


def test_the_answers_are_spread_over_the_time_that_is_left() -> None:
    hellos = {at_s: hello(number) for number, at_s in enumerate(HELLOS_S)}
    times = [answers(agent(seed), hellos)[-1][0] for seed in range(AGENTS)]

    quarters = [sum(start <= at_s - SPREAD_S / 2 < start + 2.5 for at_s in times) for start in (0.0, 2.5, 5.0, 7.5)]

    assert min(quarters) > AGENTS / 10


def test_endless_hellos_of_one_delay_no_answer_beyond_its_spread() -> None:
    hellos = {0.0: hello(0)} | {at_s / 2: hello(1) for at_s in range(1, 80)}

    for seed in range(AGENTS // 10):
        first = answers(agent(seed), hellos)[0]
        assert first[0] <= SPREAD_S + STEP_S


def test_a_snapshot_that_is_about_to_be_sent_serves_a_new_scheduler_too() -> None:
    publisher = agent(1)
    publisher.plan_answer(hello(0, spread_s=0), 0.0)
    publisher.plan_answer(hello(1), 0.0)

    (sent,) = [one for one in publisher.due(0.0) if isinstance(one, Broadcast)]

    assert isinstance(sent.message, Snapshot)


def test_a_longer_spread_of_another_scheduler_delays_no_answer() -> None:
    long_s = 5 * SPREAD_S
    hellos = {0.0: hello(0, long_s), 1.0: hello(1), 2.0: hello(0, long_s)}

    for seed in range(AGENTS // 10):
        first = answers(agent(seed), hellos, 2 * long_s)[0]
        assert first[0] <= 1.0 + SPREAD_S + STEP_S


def test_another_hello_delays_no_scheduler_that_has_waited_for_its_pause() -> None:
    hellos = {0.0: hello(0, 0.0), 1.0: hello(0, 0.0), SNAPSHOT_PAUSE_S - STEP_S: hello(1)}

    for seed in range(AGENTS // 10):
        sent = answers(agent(seed), hellos)
        to_first = [at_s for at_s, one in sent if getattr(one, "address", "s0") == "s0"]
        assert to_first == [0.0, SNAPSHOT_PAUSE_S]


def test_a_hello_delays_no_snapshot_that_is_due_to_its_sender() -> None:
    publisher = agent(1)
    publisher.plan_answer(hello(0, 0.0), 0.0)
    publisher.due(0.0)
    publisher.resync(Resync(NODE, "s0", EPOCH - 1, 0), 1.0)
    publisher.plan_answer(hello(0), 1.0)

    (sent,) = [one for one in publisher.due(1.0) if isinstance(one, Cast)]

    assert sent.address == "s0" and isinstance(sent.message, Snapshot)


def test_a_broadcast_serves_those_whose_turn_would_be_later() -> None:
    # given schedulers that have just started and let the answers be spread, so that a later part of them waits
    publisher = agent(1)
    for number in range(SCHEDULERS - 2):
        publisher.plan_answer(hello(number), 0.0)
    # when two others miss the row
    for number in range(SCHEDULERS - 2, SCHEDULERS):
        publisher.resync(Resync(NODE, f"s{number}", 0, 0), 0.0)
    # then all get one broadcast
    [(_, sent)] = answers(publisher, {})
    assert isinstance(sent, Broadcast)


def late_agent() -> Publisher:
    """One that has not had its turn on a busy machine since its heartbeat was due, so that schedulers ask for it."""
    publisher = agent(1)
    publisher.due(-100.0)
    return publisher


def whether_there(number: int) -> Resync:
    """What a scheduler asks that has the newest state and misses a heartbeat."""
    return Resync(NODE, f"s{number}", EPOCH, 1)


def test_an_overdue_heartbeat_answers_all_who_ask_whether_the_agent_is_there() -> None:
    # given schedulers that miss the heartbeat of an agent
    publisher = late_agent()
    early = [effect for number in range(SCHEDULERS) for effect in publisher.resync(whether_there(number), 0.0)]
    # when it has its turn
    sent = early + publisher.due(0.0)
    # then one broadcast tells all
    assert [(type(one), type(one.message)) for one in sent if isinstance(one, Broadcast | Cast)] == [
        (Broadcast, Heartbeat)
    ]


def test_one_heartbeat_answers_all_who_ask_together_and_takes_the_place_of_the_next() -> None:
    # given an agent that has just sent its heartbeat, which was lost
    publisher = late_agent()
    publisher.due(0.0)
    # when schedulers ask together
    early = [effect for number in range(SCHEDULERS) for effect in publisher.resync(whether_there(number), 10.0)]
    sent = early + publisher.due(10.0)
    # then one broadcast tells all, and the next one is due as long after it as any
    assert [type(one) for one in sent] == [Broadcast]
    assert publisher.next_deadline_s(10.0) == pytest.approx(10.0 + 0.95 * 48.0, abs=0.05 * 48.0)


def test_one_who_asks_alone_whether_the_agent_is_there_is_answered_alone() -> None:
    publisher = late_agent()
    publisher.due(0.0)

    [sent] = [*publisher.resync(whether_there(3), 10.0), *publisher.due(10.0)]

    assert isinstance(sent, Cast) and sent.address == "s3" and isinstance(sent.message, Heartbeat)


def test_heartbeats_to_all_because_somebody_asks_are_few() -> None:
    publisher = late_agent()
    publisher.due(0.0)
    sent = []
    for tick in range(1, 301):
        for number in range(2):
            publisher.resync(whether_there(number), tick / 10)
        sent += [one for one in publisher.due(tick / 10) if isinstance(one, Broadcast)]

    assert 29 <= len(sent) <= 31
