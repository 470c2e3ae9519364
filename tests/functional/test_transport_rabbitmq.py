# SPDX-License-Identifier: Apache-2.0
"""The state channel on the machine's own RabbitMQ, with and without faults.

``test_rabbitmq_4.py`` has what RabbitMQ 4 may refuse, ``tests/longer/test_transport_rabbitmq_4.py`` all of this on it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Heartbeat, Increment, Leaf, Snapshot
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import MessageWindow, WindowFreshness
from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.transport.mailbox import PATIENCE_S, Mailbox, eventually
from tools.laboratory.cloud.rabbitmq import PrivateRabbit
from tools.laboratory.fire.proxy import Mode, Proxy

ONE_AGENT = """
import sys, threading
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
url, cell, host = sys.argv[1:]
KombuBus(parse_transport_url(url), cell).agent_endpoint(host).start(lambda bodies: None, lambda connected: None)
threading.Event().wait()
"""
ROOT = Path(__file__).resolve().parents[2]
#: One of so many silences has to be without a pause of the machine.
SILENCES_MAX = 5
SNAPSHOT = b"snapshot" * 40


@pytest.fixture(scope="module")
def rabbit() -> Iterator[PrivateRabbit]:
    with PrivateRabbit() as broker:
        yield broker


class Post:
    """Mailboxes on one cell of the broker, all closed at the end."""

    def __init__(self, rabbit: PrivateRabbit, cell: str) -> None:
        self.url = parse_transport_url(rabbit.url)
        self.cell = cell
        self.bus = KombuBus(self.url, cell)
        self.boxes: list[Mailbox] = []

    def scheduler(self, name: str = "controller") -> Mailbox:
        return self.box(self.bus.scheduler_endpoint(name)).started()

    def agent(self, host: str) -> Mailbox:
        return self.box(self.bus.agent_endpoint(host)).started()

    def box(self, endpoint: object) -> Mailbox:
        self.boxes.append(Mailbox(endpoint))  # type: ignore[arg-type]
        return self.boxes[-1]


@pytest.fixture
def post(rabbit: PrivateRabbit, request: pytest.FixtureRequest) -> Iterator[Post]:
    post = Post(rabbit, request.node.name[:60])
    yield post
    for box in post.boxes:
        box.awake.set()
        box.endpoint.close()


# --- who hears whom ----------------------------------------------------------------------------


def test_an_agents_broadcast_reaches_every_scheduler_and_no_agent(post: Post) -> None:
    one, two = post.scheduler(), post.scheduler()
    agent, other = post.agent("compute-1"), post.agent("compute-2")
    assert agent.endpoint.broadcast(b"increment")
    one.hears(b"increment")
    two.hears(b"increment")
    agent.endpoint.cast(other.address, b"end")
    other.hears(b"end")
    assert agent.bodies == [] and other.bodies == [b"end"]


def test_a_schedulers_broadcast_reaches_agents_and_the_other_schedulers(post: Post) -> None:
    one, two = post.scheduler(), post.scheduler()
    agent = post.agent("compute-1")
    one.endpoint.broadcast(b"hello")
    two.hears(b"hello")
    agent.hears(b"hello")
    two.endpoint.cast(one.address, b"end")
    one.hears(b"end")
    assert one.bodies == [b"end"]  # not its own echo


def test_a_cast_reaches_one_endpoint_and_a_cast_to_an_unknown_address_is_harmless(post: Post) -> None:
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    scheduler.endpoint.cast("ssched.agent.nobody", b"claim")
    scheduler.endpoint.cast(agent.address, b"claim")
    agent.hears(b"claim")
    agent.endpoint.cast(scheduler.address, b"verdict")
    scheduler.hears(b"verdict")
    assert agent.bodies == [b"claim"]


def test_a_cast_to_an_endpoint_that_is_not_connected_comes_back(post: Post) -> None:
    # given one agent that is connected, and one that has gone
    scheduler, agent, gone = post.scheduler(), post.agent("compute-1"), post.agent("compute-2")
    gone.endpoint.close()
    came_back = list[str]()
    # when messages are cast to both, among others that nobody needs to know about
    for number in range(3 * transport_settings.PUBLISH_MAX_MESSAGES):
        body = b"claim %d" % number
        scheduler.endpoint.cast(agent.address, body, lambda: came_back.append("compute-1"))
        scheduler.endpoint.cast(gone.address, body)
    scheduler.endpoint.cast(gone.address, b"claim", lambda: came_back.append("compute-2"))
    # then what was sent to the second one comes back, and nothing else
    agent.hears(b"claim 0")
    eventually(lambda: bool(came_back), "the claim comes back")
    scheduler.endpoint.cast(agent.address, b"end")
    agent.hears(b"end")
    assert came_back == ["compute-2"]
    assert scheduler.told == [True]  # a message that comes back breaks no connection


def test_a_killed_agent_is_known_to_be_gone_as_soon_as_its_connection_ends(post: Post, rabbit: PrivateRabbit) -> None:
    # given an agent in a process of its own, which is killed
    agent = subprocess.Popen([sys.executable, "-c", ONE_AGENT, rabbit.url, post.cell, "compute-3"], cwd=ROOT)
    scheduler, came_back = post.scheduler(), list[bool]()
    eventually(lambda: "ssched.agent.compute-3" in rabbit.queues(), "the agent connects")
    agent.kill()
    agent.wait()

    # then a claim comes back after the broker has noticed that
    def claims_come_back() -> bool:
        scheduler.endpoint.cast("ssched.agent.compute-3", b"claim", lambda: came_back.append(True))
        return bool(came_back)

    eventually(claims_come_back, "the claim comes back")


def test_cells_on_one_broker_are_separated(post: Post, rabbit: PrivateRabbit) -> None:
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    elsewhere = Mailbox(KombuBus(post.url, post.cell + "-2").agent_endpoint("compute-9")).started()
    post.boxes.append(elsewhere)
    elsewhere.endpoint.broadcast(b"from another cell")
    agent.endpoint.broadcast(b"from this cell")
    scheduler.hears(b"from this cell")
    assert scheduler.bodies == [b"from this cell"]


def test_messages_are_received_in_order_and_in_batches(post: Post) -> None:
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    sent = [b"%d" % n for n in range(3000)]
    scheduler.awake.clear()  # so that a backlog builds up
    for body in sent:
        assert agent.endpoint.broadcast(body)
    eventually(lambda: len(agent.endpoint._link.outbox) == 0, "all sent")  # type: ignore[attr-defined]
    scheduler.awake.set()
    eventually(lambda: len(scheduler.bodies) == len(sent), "all received")
    assert scheduler.bodies == sent
    assert 1 < max(scheduler.batches) <= transport_settings.BATCH_MAX_MESSAGES


def test_every_queue_is_exclusive_and_bounded(post: Post, rabbit: PrivateRabbit) -> None:
    post.scheduler()
    post.agent("compute-1")

    def ours() -> list[str]:
        return [name for name in rabbit.queues() if name.startswith("ssched.")]

    eventually(lambda: len(ours()) == 2, "only ours are left of all tests")
    exclusive, arguments = rabbit.queues("exclusive"), rabbit.queues("arguments")
    for name in ours():
        assert exclusive[name] == "true"
        assert "x-max-length" in arguments[name] and "drop-head" in arguments[name]


def test_queues_go_with_their_owners(post: Post, rabbit: PrivateRabbit) -> None:
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    scheduler.endpoint.close()
    agent.endpoint.close()
    eventually(lambda: not rabbit.queues(), "the queues are gone")
    scheduler.endpoint.close()  # twice is harmless


def test_messages_sent_before_a_close_are_flushed(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_settings, "CLOSE_FLUSH_S", PATIENCE_S)  # a machine may stand still for a while
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    for n in range(100):
        agent.endpoint.broadcast(b"%d" % n)
    agent.endpoint.broadcast(b"leave")
    agent.endpoint.close()
    scheduler.hears(b"leave")
    assert len(scheduler.bodies) == 101


# --- too much ----------------------------------------------------------------------------------


def test_a_scheduler_that_does_not_read_loses_the_oldest_and_the_broker_keeps_its_bound(
    post: Post, rabbit: PrivateRabbit
) -> None:
    # given: a scheduler that froze, with room for 50 messages at the broker
    bus = KombuBus(post.url, post.cell, queue_messages_max=50)
    scheduler = post.box(bus.scheduler_endpoint("frozen")).started()
    scheduler.awake.clear()
    agent = post.agent("compute-1")
    # when: more arrives than it, the network's buffers and the queue can hold, before the broker misses its heartbeats
    sent = 600
    for n in range(sent):
        assert agent.endpoint.broadcast(b"%06d" % n + b"x" * 50_000)
    eventually(lambda: len(agent.endpoint._link.outbox) == 0, "all sent")  # type: ignore[attr-defined]
    assert int(rabbit.queues()[scheduler.address]) <= 50
    # then: awake again it gets the newest, in order, with a gap that the window will see
    scheduler.awake.set()
    agent.endpoint.broadcast(b"last")
    scheduler.hears(b"last")
    numbers = [int(body[:6]) for body in scheduler.bodies if body != b"last"]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == sent - 1 and len(numbers) < sent


def test_a_full_outbox_drops_messages_and_reports_that(post: Post, rabbit: PrivateRabbit) -> None:
    agent = post.agent("compute-1")
    rabbit.ctl("stop_app")
    try:
        eventually(lambda: not agent.is_connected(), "it notices")
        taken = [agent.endpoint.broadcast(b"x") for _ in range(transport_settings.OUTBOX_MAX_MESSAGES + 100)]
    finally:
        rabbit.ctl("start_app")
    assert taken.count(False) >= 100 - transport_settings.PUBLISH_MAX_MESSAGES  # those are the sender's already
    assert agent.endpoint.counters.dropped == taken.count(False)  # type: ignore[attr-defined]
    eventually(agent.is_connected, "it returns")


# --- the broker goes away ----------------------------------------------------------------------

Trouble = Callable[[PrivateRabbit], None]


def restart(rabbit: PrivateRabbit) -> None:
    rabbit.ctl("stop_app")
    rabbit.ctl("start_app")


def close_connections(rabbit: PrivateRabbit) -> None:
    rabbit.close_connections()


@pytest.mark.parametrize("trouble", [restart, close_connections])
def test_both_sides_reconnect_and_are_notified(post: Post, rabbit: PrivateRabbit, trouble: Trouble) -> None:
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    trouble(rabbit)
    eventually(lambda: scheduler.told == [True, False, True], "the scheduler is told")
    eventually(lambda: agent.told == [True, False, True], "the agent is told")
    agent.endpoint.broadcast(b"increment")
    scheduler.hears(b"increment")
    scheduler.endpoint.cast(agent.address, b"claim")
    agent.hears(b"claim")


def test_messages_sent_while_the_broker_is_down_are_delivered_later(post: Post, rabbit: PrivateRabbit) -> None:
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    rabbit.ctl("stop_app")
    try:
        eventually(lambda: not scheduler.is_connected() and not agent.is_connected(), "both notice")
        scheduler.endpoint.cast(agent.address, b"claim")
    finally:
        rabbit.ctl("start_app")
    eventually(lambda: scheduler.is_connected() and agent.is_connected(), "both return")
    scheduler.endpoint.cast(agent.address, b"release")
    agent.hears(b"release")
    # the claim was sent on the first connection that came, perhaps before the agent's queue was back
    assert agent.bodies in ([b"claim", b"release"], [b"release"])


def test_a_broker_that_is_not_there_yet_is_one_clear_line_and_then_used(
    post: Post, rabbit: PrivateRabbit, caplog: pytest.LogCaptureFixture
) -> None:
    rabbit.ctl("stop_app")
    try:
        with caplog.at_level(logging.INFO, "shared_scheduler.transport"):
            box = post.box(post.bus.agent_endpoint("compute-1")).start()
            eventually(lambda: len(caplog.records) >= 2, "both sides complain")
            box.endpoint.broadcast(b"kept")
    finally:
        rabbit.ctl("start_app")
    eventually(box.is_connected, "it connects")
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 2  # one for each direction, however many attempts
    for line in errors:
        assert "cannot reach the message queue at rabbit://127.0.0.1:" in line
        assert "Check transport_url" in line and "guest@" not in line


def test_a_wrong_password_is_one_clear_line(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    url = parse_transport_url(f"rabbit://guest:wrong@{post.url.hosts[0]}/")
    box = post.box(KombuBus(url, post.cell).agent_endpoint("compute-1"))
    with caplog.at_level(logging.INFO, "shared_scheduler.transport"):
        box.start()
        eventually(lambda: len(caplog.records) >= 2, "both sides complain")
    assert all("ACCESS_REFUSED" in r.getMessage() for r in caplog.records)
    assert "wrong" not in caplog.text
    assert box.told == []


def test_the_next_host_is_tried(post: Post) -> None:
    alive = post.url.hosts[0]
    url = parse_transport_url(f"rabbit://guest:guest@127.0.0.1:1,guest:guest@{alive}/")
    scheduler = post.box(KombuBus(url, post.cell).scheduler_endpoint("controller")).started()
    agent = post.agent("compute-1")
    agent.endpoint.broadcast(b"increment")
    scheduler.hears(b"increment")


def test_a_connection_on_which_nothing_is_sent_is_kept(
    post: Post, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # given a sender and a receiver that agreed with the broker on heartbeats every 4 seconds
    monkeypatch.setattr(transport_settings, "AMQP_HEARTBEAT_S", 4)
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    agent.endpoint.broadcast(b"before")
    scheduler.hears(b"before")

    # when nobody says anything for longer than the broker may be silent, then neither end gives its connections up,
    # unless the machine itself stands still for so long
    def are_kept() -> bool:
        eventually(lambda: scheduler.is_connected() and agent.is_connected(), "both are connected")
        before = caplog.text.count("lost the message queue")
        time.sleep(3 * transport_settings.AMQP_HEARTBEAT_S)
        return caplog.text.count("lost the message queue") == before

    assert any(are_kept() for _ in range(SILENCES_MAX))
    agent.endpoint.broadcast(b"after")
    scheduler.hears(b"after")


class TheOrderOfTheUrl(Random):
    """Tries the first broker first."""

    def sample(self, population: Sequence[Any], k: int, **_counts: Any) -> list[Any]:
        return list(population)[:k]


@contextmanager
def two_ways(post: Post, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Mailbox, list[Proxy]]]:
    """A scheduler whose broker is reached by two ways, with connections on the first that notice a hang soon."""
    ways = [Proxy(post.url.hosts[0].port) for _ in range(2)]
    try:
        url = parse_transport_url(f"rabbit://{','.join(f'guest:guest@127.0.0.1:{way.port}' for way in ways)}/")
        with monkeypatch.context() as short:
            # of these connections only: on a busy machine each second one is missed at times
            short.setattr(transport_settings, "AMQP_HEARTBEAT_S", 2)
            bus = KombuBus(url, post.cell, rng=TheOrderOfTheUrl())
            scheduler = post.box(bus.scheduler_endpoint("controller")).started()
            agent = post.agent("compute-1")
            scheduler.endpoint.cast(agent.address, b"hello")
            agent.hears(b"hello")
        yield scheduler, ways
    finally:
        for way in ways:
            way.close()


def hung_way(scheduler: Mailbox, agent: Mailbox, ways: list[Proxy]) -> Proxy:
    """The way on which the scheduler listens; it carries nothing any more, not even a farewell.

    It is the first one, unless the machine stood still for so long that the scheduler has left that.
    """
    for _ in range(SILENCES_MAX):
        eventually(scheduler.is_connected, "it is connected")
        set_all(ways, Mode.DROP)
        while_sent(agent, lambda: any(map(holds_a_message, ways)) or not scheduler.is_connected())
        for way, other in (ways, reversed(ways)):
            if holds_a_message(way):
                other.set(Mode.PASS)
                return way
        set_all(ways, Mode.PASS)
    raise AssertionError("the scheduler was never connected for long enough")


def set_all(ways: list[Proxy], mode: Mode) -> None:
    for way in ways:
        way.set(mode)


def while_sent(agent: Mailbox, check: Callable[[], bool]) -> None:
    """Wait until this holds while the agent sends more at once than goes into one small piece."""

    def holds() -> bool:
        for _ in range(transport_settings.PUBLISH_MAX_MESSAGES):
            agent.endpoint.broadcast(SNAPSHOT)
        return check()

    eventually(holds, "messages are held")


def holds_a_message(way: Proxy) -> bool:
    """Whether more is held than heartbeats."""
    return way.counters["held_bytes"] >= len(SNAPSHOT)


@pytest.mark.parametrize("fault", [Mode.DROP, Mode.HALVE], ids=["between messages", "within a message"])
def test_a_broker_that_hangs_is_left_for_the_next_one(post: Post, monkeypatch: pytest.MonkeyPatch, fault: Mode) -> None:
    with two_ways(post, monkeypatch) as (scheduler, ways):
        agent = post.agent("compute-2")
        before = len(scheduler.told)  # the machine may have stood still for so long that it was told before

        # when the way to the broker is open and carries nothing any more
        way = hung_way(scheduler, agent, ways)
        way.set(fault)
        while_sent(agent, lambda: way.mode is Mode.DROP or len(scheduler.told) > before)
        # then whoever listened there is told, and hears by the other one
        eventually(lambda: len(scheduler.told) > before and scheduler.is_connected(), "it goes on by the other way")
        agent.endpoint.broadcast(b"increment")
        scheduler.hears(b"increment")
        scheduler.endpoint.cast(agent.address, b"claim")
        agent.hears(b"claim")


# --- administrators ----------------------------------------------------------------------------


def test_a_deleted_queue_is_declared_again(post: Post, rabbit: PrivateRabbit) -> None:
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    name = f'rabbit_misc:r(<<"/">>, queue, <<"{scheduler.address}">>)'
    delete = 'rabbit_amqqueue:delete(Q, false, false, <<"admin">>)'
    rabbit.ctl("eval", f"{{ok, Q}} = rabbit_amqqueue:lookup({name}), {delete}.")
    eventually(lambda: scheduler.told == [True, False, True], "it is told and comes back")
    agent.endpoint.broadcast(b"increment")
    scheduler.hears(b"increment")


@pytest.mark.parametrize("side", ["state", "agents"])
def test_a_deleted_exchange_is_declared_again(
    post: Post, rabbit: PrivateRabbit, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    for name in ("SCHEDULER_REBIND_S", "AGENT_REBIND_S"):
        monkeypatch.setattr(transport_settings, name, 0.5)
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    speaker, listener = (agent, scheduler) if side == "state" else (scheduler, agent)
    name = f'rabbit_misc:r(<<"/">>, exchange, <<"ssched.{side}.{post.cell}">>)'
    rabbit.ctl("eval", f'rabbit_exchange:delete({name}, false, <<"admin">>).')
    sent: list[bytes] = []

    def heard() -> bool:
        sent.append(b"%d" % len(sent))
        speaker.endpoint.broadcast(sent[-1])
        return bool(listener.bodies)

    eventually(heard, f"the {side} exchange exists again, and its listener hears")


def test_a_second_agent_for_a_host_waits_for_the_first(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    first = post.agent("compute-1")
    second = post.box(KombuBus(post.url, post.cell).agent_endpoint("compute-1"))
    with caplog.at_level(logging.ERROR, "shared_scheduler.transport"):
        second.start()
        eventually(lambda: bool(caplog.records), "it complains")
    assert "ssched.agent.compute-1 is held by another connection" in caplog.text
    assert second.told == []
    first.endpoint.close()
    eventually(second.is_connected, "it takes over")
    post.scheduler().endpoint.cast("ssched.agent.compute-1", b"claim")
    second.hears(b"claim")
    assert len(caplog.records) == 1


# --- processes ---------------------------------------------------------------------------------

CHILD = """
import sys, time
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
endpoint = KombuBus(parse_transport_url(sys.argv[1]), sys.argv[2]).agent_endpoint("compute-1")
endpoint.start(lambda bodies: print("got", *bodies, flush=True), lambda c: print("told", c, flush=True))
time.sleep(600)
"""


def test_an_agent_that_was_killed_makes_room_at_once(post: Post) -> None:
    command = [sys.executable, "-c", CHILD, f"rabbit://guest:guest@{post.url.hosts[0]}/", post.cell]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert child.stdout is not None and child.stdout.readline() == "told True\n"
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    agent = post.agent("compute-1")
    post.scheduler().endpoint.cast(agent.address, b"claim")
    agent.hears(b"claim")


def connections(rabbit: PrivateRabbit) -> set[str]:
    """The broker's names of them."""
    return set(rabbit.ctl("list_connections", "pid", "--no-table-headers").splitlines())


def test_a_fleet_of_simulated_agents_shares_one_link(post: Post, rabbit: PrivateRabbit) -> None:
    scheduler = post.scheduler()
    before = connections(rabbit)
    fleet = KombuBus(post.url, post.cell, shared=True)
    agents = [post.box(fleet.agent_endpoint(f"compute-{n}")).start() for n in range(120)]
    eventually(lambda: all(agent.is_connected() for agent in agents), "all are connected")
    assert len(connections(rabbit) - before) == 2
    scheduler.endpoint.broadcast(b"hello")
    for agent in agents:
        agent.hears(b"hello")
        agent.endpoint.broadcast(agent.address.encode())
    eventually(lambda: len(scheduler.bodies) == 120, "all answer")
    # one leaves and comes back: its address works, the others never noticed
    agents[7].endpoint.close()
    again = post.box(fleet.agent_endpoint("compute-7")).started()
    scheduler.endpoint.cast(again.address, b"claim")
    again.hears(b"claim")
    assert agents[8].told == [True]


# --- what it is for ----------------------------------------------------------------------------


def test_a_window_stays_true_through_everything_an_administrator_does(post: Post, rabbit: PrivateRabbit) -> None:
    """A node reports while connections are closed and the broker restarts; afterwards the scheduler's
    copy is the node's state, and nothing was applied out of order."""
    scheduler, agent = post.scheduler(), post.agent("compute-1")
    pipe = MessagePipe("node-1", "compute-1", 1, Random(1), heartbeat_interval_s=0.5)
    window = MessageWindow("node-1", Random(2), ResyncTurns(str))
    copy: dict[str, Leaf] = {}
    taken = [0]
    clock = [0.0]

    def turn() -> None:
        """Time passes, both sides look at their mail."""
        clock[0] += 0.05
        for message in pipe.poll(clock[0]):
            agent.endpoint.broadcast(encode(message))
        for body in scheduler.bodies[taken[0] :]:
            taken[0] += 1
            message = decode(body)
            assert isinstance(message, Increment | Snapshot | Heartbeat)
            apply(window.receive(message, clock[0], lambda: digest_of(copy, {}, {})))
        apply(window.on_tick(clock[0]))

    def apply(outcome: object) -> None:
        window.validate()
        for message in outcome.apply:  # type: ignore[attr-defined]
            copy.update(message.leaves)
        if outcome.resync is not None:  # type: ignore[attr-defined]
            _, snapshot = pipe.take_snapshot(clock[0])
            agent.endpoint.cast(scheduler.address, encode(snapshot))

    def is_true() -> bool:
        turn()
        whole = window.sequence == pipe.sequence and not pipe.has_changes
        return window.freshness is WindowFreshness.FRESH and whole

    eventually(is_true, "the window is fresh")
    for trouble in (close_connections, restart, close_connections):
        trouble(rabbit)
        for used in range(40):
            pipe.set_leaf("cn.vcpus_used", used)
            turn()
        eventually(is_true, f"the window is fresh again after {trouble.__name__}")
        assert copy == {"cn.vcpus_used": 39}
