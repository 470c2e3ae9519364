# SPDX-License-Identifier: Apache-2.0
"""A real agent process on a real RabbitMQ, with signed messages.  nova-compute's tap and Placement are
played by the test, the scheduler's end is the scheduler's own code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compute_agent.tap.tap_channel import TapChannel
from compute_agent.tap_wire import NodeReported, TapHello
from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.messages import Hello, Leave, Message, Resync, Snapshot, Verdict, agent_address
from shared_scheduler.protocol.signing import Signer, Signing, parse_keyring
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.compute_agent.fake_placement import FakePlacement, served
from tests.unit.compute_agent.node_facts import HOST, NODE, ROOT_LEAVES, claim
from tests.unit.compute_agent.test_process import SLOW, Process
from tests.unit.transport.mailbox import Mailbox
from tools.laboratory.cloud.rabbitmq import PrivateRabbit

WAIT_S = 180.0
OLD, NEW = "old:" + "ab" * 32, "new:" + "cd" * 32


class Scheduler:
    """The scheduler's channel, and a stranger's beside it."""

    def __init__(self, url: str) -> None:
        bus = KombuBus(parse_transport_url(url), CHANNEL_NAME)
        self.signer = Signer(Signing.ENFORCE, parse_keyring(OLD))
        self.heard: list[Message] = []
        self._changed = threading.Condition()
        self.channel = Channel(bus.scheduler_endpoint("test"), self.signer)
        self.channel.start(self._received, lambda connected: None)
        self.stranger = bus.scheduler_endpoint("stranger")
        self.stranger.start(lambda bodies: None, lambda connected: None)

    def _received(self, messages: Sequence[Message]) -> None:
        with self._changed:
            self.heard += messages
            self._changed.notify_all()

    def cast(self, message: Message) -> None:
        self.channel.cast(agent_address(HOST), message)

    def wait(self, true: Callable[[Message], bool]) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(true, self.heard)), WAIT_S), self.heard
            return next(filter(true, self.heard))

    def claims(self, claim_id: str) -> bool:
        """Is it accepted?"""
        self.cast(claim(claim_id, scheduler=self.channel.address))
        return bool(self.wait(lambda one: getattr(one, "claim_id", "") == claim_id).accepted)

    def close(self) -> None:
        self.channel.close()
        self.stranger.close()


@pytest.fixture
def scheduler(shared_rabbit: PrivateRabbit) -> Iterator[Scheduler]:
    made = Scheduler(shared_rabbit.url)
    yield made
    made.close()


@pytest.fixture
def agent(shared_rabbit: PrivateRabbit, tmp_path: Path) -> Iterator[Process]:
    """Configured with the old key, not started; its tap speaks."""
    hello = TapHello(HOST, 1)
    told = NodeReported(NODE, ROOT_LEAVES, {}, complete=True, ready=True)
    tap = TapChannel(str(tmp_path / "compute-agent" / "tap.sock"), lambda: [hello, told])
    with tap.lock:
        tap.put(hello)
    (tmp_path / "keys").write_text(OLD)
    with served(FakePlacement(vcpus=4)) as url:
        made = Process(tmp_path, url, shared_rabbit.url)
        made.configure(**SLOW, signing="enforce", signing_keys_file=tmp_path / "keys")
        yield made
        made.close()


def test_signed_claims_are_judged_and_unsigned_ones_are_dropped(agent: Process, scheduler: Scheduler) -> None:
    agent.start()
    scheduler.wait(lambda one: isinstance(one, Snapshot) and one.leaves["agent.ready"] is True)

    forged = encode(claim("forged", vcpus=4, scheduler=scheduler.stranger.address))
    for _ in range(3):
        scheduler.stranger.cast(agent_address(HOST), forged)
    agent.wait(lambda: agent.lines("not signed"))

    assert scheduler.claims("c1")
    assert len(agent.lines("not signed")) == 1
    assert agent.end() == 0
    scheduler.wait(lambda one: isinstance(one, Leave))


def test_keys_change_and_epochs_are_surpassed_while_it_runs(
    agent: Process, scheduler: Scheduler, tmp_path: Path
) -> None:
    agent.start()
    before = scheduler.wait(lambda one: isinstance(one, Snapshot) and one.leaves["agent.ready"] is True)

    for turn, keys in enumerate((f"{OLD}\n{NEW}\n", f"{NEW}\n{OLD}\n", NEW)):
        (tmp_path / "keys").write_text(keys)
        agent.hangup()
        agent.wait(lambda count=turn + 1: len(agent.lines("signing is enforce")) == count)  # type: ignore[misc]
        scheduler.signer.replace(Signing.ENFORCE, parse_keyring(keys))
        assert scheduler.claims(f"c{turn}")

    scheduler.cast(Resync(NODE, scheduler.channel.address, before.epoch + 10**9, 0))
    told = scheduler.wait(lambda one: isinstance(one, Snapshot) and one.epoch > before.epoch)
    assert told.epoch > before.epoch + 10**9
    assert set(told.claims) == {"c0", "c1", "c2"}
    assert not [one for one in scheduler.heard if isinstance(one, Verdict) and not one.accepted]
    assert agent.end() == 0


def test_an_agent_that_another_connection_keeps_from_its_queue_is_not_heard_of_before_it_hears(
    agent: Process, scheduler: Scheduler, shared_rabbit: PrivateRabbit
) -> None:
    """The machine lost its power and is back, before the broker has noticed: claims would go to the earlier life."""
    # given the connection of the earlier life, and the agent, which is ready
    bus = KombuBus(parse_transport_url(shared_rabbit.url), CHANNEL_NAME)
    with closing(Mailbox(bus.agent_endpoint(HOST)).started().endpoint):
        agent.start()
        agent.wait(lambda: agent.lines("is held by another connection") and agent.lines("claims are judged"))
    # when that connection ends, then a claim that is cast as soon as the agent is heard of is judged
    scheduler.wait(lambda one: isinstance(one, Snapshot) and one.leaves["agent.ready"] is True)
    assert scheduler.claims("c1")
    # and the first of all its messages is that of its own connection
    assert isinstance(scheduler.heard[0], Hello), scheduler.heard[0]
    assert agent.end() == 0
