# SPDX-License-Identifier: Apache-2.0
"""The kombu adapter on kombu's own in-process broker: threads, subscriptions, echo, closing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import accumulate

import pytest

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.bus import Bus
from shared_scheduler.transport.gathering import Gathering
from shared_scheduler.transport.kombu_bus import NAME_MAX_CHARS, KombuBus, KombuEndpoint, exchange_of
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.transport.mailbox import PATIENCE_S, Mailbox, eventually


class Post:
    """Endpoints of one cell, closed at the end."""

    def __init__(self, cell: str, shared: bool) -> None:
        self.bus: Bus = KombuBus(parse_transport_url("memory://"), cell, shared)
        self.boxes: list[Mailbox] = []

    def scheduler(self) -> Mailbox:
        return self._box(Mailbox(self.bus.scheduler_endpoint("controller")))

    def agent(self, host: str) -> Mailbox:
        return self._box(Mailbox(self.bus.agent_endpoint(host)))

    def _box(self, box: Mailbox) -> Mailbox:
        self.boxes.append(box)
        return box.started()


@pytest.fixture(params=[False, True], ids=["own link", "shared link"])
def post(request: pytest.FixtureRequest) -> Iterator[Post]:
    post = Post(request.node.name, request.param)
    yield post
    for box in post.boxes:
        box.endpoint.close()


def test_subscriptions_select_the_receivers(post: Post) -> None:
    one, two, agent = post.scheduler(), post.scheduler(), post.agent("memory-1")
    agent.endpoint.broadcast(b"increment")
    one.hears(b"increment")
    two.hears(b"increment")
    one.endpoint.broadcast(b"hello")
    agent.hears(b"hello")
    two.hears(b"increment", b"hello")
    one.endpoint.cast(agent.address, b"claim")
    agent.hears(b"hello", b"claim")
    agent.endpoint.cast(one.address, b"verdict")
    one.hears(b"increment", b"verdict")
    assert one.bodies == [b"increment", b"verdict"]  # no echo of its hello
    assert agent.bodies == [b"hello", b"claim"]


def test_messages_for_schedulers_reach_no_agent(post: Post) -> None:
    one, two, agent = post.scheduler(), post.scheduler(), post.agent("memory-7")
    one.endpoint.broadcast_to_schedulers(b"still here")
    two.hears(b"still here")
    agent.endpoint.broadcast_to_schedulers(b"increment")
    one.hears(b"increment")
    one.endpoint.cast(agent.address, b"claim")
    agent.hears(b"claim")
    assert agent.bodies == [b"claim"]
    assert one.bodies == [b"increment"]  # no echo of its own


def test_a_reader_knows_whether_further_messages_wait(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a scheduler that is stuck with its first message while a batch and a half arrive
    monkeypatch.setattr(transport_settings, "BATCH_MAX_MESSAGES", 20)
    monkeypatch.setattr(transport_settings, "BATCH_MAX_S", PATIENCE_S)
    scheduler, agent = post.scheduler(), post.agent("memory-8")
    scheduler.awake.clear()
    broadcast_50(agent)
    # when it reads on
    scheduler.awake.set()
    eventually(lambda: len(scheduler.bodies) == 50, "all received")
    # then it knows after each full batch that more may wait, and after the last one that it has read all
    assert [more for size, more in zip(scheduler.batches, scheduler.more, strict=True) if size == 20].count(True) >= 1
    assert scheduler.batches[-1] < 20 and scheduler.more[-1] is False


def broadcast_50(sender: Mailbox) -> None:
    """Send 50 messages; afterwards all of them are with the broker."""
    for number in range(50):
        sender.endpoint.broadcast(b"%d" % number)
    assert isinstance(sender.endpoint, KombuEndpoint) and sender.endpoint._link is not None
    outbox = sender.endpoint._link.outbox
    eventually(lambda: len(outbox) == 0, "all are sent")


def test_what_waits_already_is_read_without_letting_more_gather(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a scheduler without requests, which is stuck with its first message while a batch and a half arrive
    monkeypatch.setattr(transport_settings, "BATCH_MAX_MESSAGES", 20)
    monkeypatch.setattr(transport_settings, "BATCH_MAX_S", PATIENCE_S)
    scheduler, agent = post.scheduler(), post.agent("memory-9")
    waited_after: list[int] = []  # how many messages had been read when others were left to gather
    monkeypatch.setattr(Gathering, "wait", lambda _: waited_after.append(len(scheduler.bodies)))
    scheduler.awake.clear()
    broadcast_50(agent)
    # when it reads on
    scheduler.awake.set()
    eventually(lambda: len(scheduler.bodies) == 50, "all received")
    # then it waits after no batch behind which more messages waited
    ends = list(accumulate(scheduler.batches))
    assert not {end for end, more in zip(ends, scheduler.more, strict=True) if more}.intersection(waited_after)


def test_order_is_kept(post: Post) -> None:
    scheduler, agent = post.scheduler(), post.agent("memory-2")
    sent = [b"%d" % n for n in range(300)]
    for body in sent:
        agent.endpoint.broadcast(body)
    eventually(lambda: len(scheduler.bodies) == len(sent), "all received")
    assert scheduler.bodies == sent


def test_a_receiver_that_fails_loses_its_batch_and_nothing_else(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = post.scheduler()
    agent = post.bus.agent_endpoint("memory-3")
    connected = threading.Event()
    agent.start(lambda bodies: 1 / 0 and None, lambda now: connected.set())
    connected.wait(60)
    with caplog.at_level(logging.ERROR, "shared_scheduler.transport"):
        scheduler.endpoint.broadcast(b"hello")
        eventually(lambda: "ssched.agent.memory-3 failed on 1 messages" in caplog.text, "it is logged")
    agent.broadcast(b"still here")
    scheduler.hears(b"still here")
    agent.close()


def test_an_endpoint_is_started_once_and_used_after_that(post: Post) -> None:
    box = post.agent("memory-4")
    with pytest.raises(RuntimeError, match="was started already"):
        box.start()
    with pytest.raises(RuntimeError, match="is not started"):
        post.bus.agent_endpoint("memory-5").broadcast(b"too early")


def test_closing_twice_is_harmless_and_the_threads_end(post: Post) -> None:
    scheduler, agent = post.scheduler(), post.agent("memory-6")
    agent.endpoint.broadcast(b"leave")
    agent.endpoint.close()
    agent.endpoint.close()
    scheduler.hears(b"leave")
    scheduler.endpoint.close()
    names = [scheduler.address, agent.address, post.boxes[0].address]
    eventually(
        lambda: not any(name in thread.name for thread in threading.enumerate() for name in names),
        "the threads end",
    )


def test_no_cell_name_is_too_long_for_an_exchange() -> None:
    assert len(exchange_of("state", "c" * 500).name) == NAME_MAX_CHARS
