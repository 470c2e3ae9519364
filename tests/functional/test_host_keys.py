# SPDX-License-Identifier: Apache-2.0
"""Host keys on a real RabbitMQ, with the commands of the page on security: a fleet gets keys, and rotates them, while
claims are judged all the time; then another host speaks in the name of the agent, and is not believed.

The agent is the real process.  The scheduler is its channel: it has the master, casts claims and hears verdicts."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent.tap.tap_channel import TapChannel
from compute_agent.tap_wire import NodeReported, TapHello
from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, Kind
from shared_scheduler.protocol.messages import (
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Release,
    Role,
    Snapshot,
    Verdict,
    Want,
    agent_address,
)
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.key_options import configured_host_keys, new_host_keys
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.compute_agent.fake_placement import FakePlacement, served
from tests.unit.compute_agent.node_facts import HOST, NODE, ROOT_LEAVES, claim
from tests.unit.compute_agent.test_process import SLOW, Process
from tools.laboratory.cloud.rabbitmq import PrivateRabbit

PAGE = Path(__file__).resolve().parents[2] / "doc" / "source" / "admin" / "security.rst"
EVIL = "compute-evil"
WAIT_S = 180.0
#: an epoch that no agent of these tests has
FORGED_EPOCH = 7


class Controller:
    """The operator's shell, with the files of the page in a directory of its own."""

    def __init__(self, home: Path, names: Sequence[str] = (HOST, EVIL)) -> None:
        self.hosts = home / "host-keys"
        self.master, self.file = home / "host-keys.master", home / "scheduler.master"
        self._places = {"/etc/nova/host-keys.master": self.master, "/root/host-keys": self.hosts,
                        "HOSTS.txt": home / "HOSTS.txt"}  # fmt: skip
        self._places["HOSTS.txt"].write_text("".join(f"{name}\n" for name in names))
        self._derive = ""

    def run(self, line: str) -> None:
        """A line of the page; ``...`` stands for the arguments of the first line."""
        if line.endswith("derive ..."):
            line = self._derive
        if " derive " in line:
            self._derive = line
        words = [str(self._places.get(word, word)) for word in shlex.split(line)]
        assert words[:2] == ["shared-scheduler-manage", "keys"]
        command = [sys.executable, "-m", "shared_scheduler.cmd.manage", *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Scheduler:
    """A scheduler's channel that casts one claim after the other, in a thread, and counts what becomes of them."""

    def __init__(self, url: str, master: Path) -> None:
        self.bus = KombuBus(parse_transport_url(url), CHANNEL_NAME)
        self.keys = new_host_keys()
        self.heard: list[Message] = []
        self.judged = 0
        self.lost: list[str] = []
        self._master = master
        self._changed, self._ended = threading.Condition(), threading.Event()
        self.channel = Channel(self.bus.scheduler_endpoint("test"), host_keys=self.keys)
        self.channel.host_of = lambda node: HOST if node == NODE else ""
        self.channel.start(self._received, lambda connected: None)
        self._claiming = threading.Thread(target=self._claim_all_the_time)

    def reload(self, mode: str) -> None:
        """As SIGHUP does."""
        options = SimpleNamespace(host_keys=mode, host_keys_file=str(self._master))
        self.keys.replace(*configured_host_keys(options, "shared_scheduler"))

    def begin(self) -> None:
        self._claiming.start()

    def _received(self, messages: Sequence[Message]) -> None:
        with self._changed:
            self.heard += messages
            self._changed.notify_all()

    def _claim_all_the_time(self) -> None:
        for number in count():
            if self._ended.is_set():
                return
            if self._claims(f"c{number}"):
                self.judged += 1
            else:
                returned = self.channel.counters["returned"]
                self.lost.append(f"c{number}, with {self.keys.mode} {self.keys.key_id}, {returned} came back")

    def _claims(self, claim_id: str) -> bool:
        """Is it accepted?  It is released, so that the next one finds room."""
        asked = claim(claim_id, scheduler=self.channel.address)
        self.channel.cast(agent_address(HOST), asked)
        verdict = self.first(lambda one: isinstance(one, Verdict) and one.claim_id == claim_id)
        self.channel.cast(agent_address(HOST), Release(claim_id, NODE, self.channel.address, asked.consumer))
        return verdict is not None and verdict.accepted

    def first(self, true: Callable[[Message], bool]) -> Any:
        """The first such message; None if none arrives in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended.is_set() or any(map(true, self.heard)), WAIT_S)
            return next(filter(true, self.heard), None)

    def go_on(self, claims: int = 3) -> None:
        """Return when so many more claims were accepted; none was lost."""
        wanted, tick = self.judged + claims, threading.Event()
        for _ in range(int(WAIT_S / 0.05)):
            if self.judged >= wanted or self.lost:
                break
            tick.wait(0.05)
        assert self.lost == []
        assert self.judged >= wanted

    def close(self) -> None:
        with self._changed:
            self._ended.set()
            self._changed.notify_all()
        if self._claiming.is_alive():
            self._claiming.join()
        self.channel.close()


class Fleet:
    """A controller, a scheduler and an agent, whose files and modes the operator changes."""

    def __init__(self, controller: Controller, scheduler: Scheduler, agent: Process) -> None:
        self.controller, self.scheduler, self.agent = controller, scheduler, agent
        self.modes = {"schedulers": "off", "computes": "off"}
        self._file = agent.home / "agent.keys"

    def set(self, who: str, mode: str) -> None:
        """Change the mode of one side, and send SIGHUP."""
        self.modes[who] = mode
        if who == "computes":
            self.agent.configure(**SLOW, host_keys=mode, host_keys_file=self._file)
        self.hangup(who)

    def distribute(self, who: str) -> None:
        """Copy the files to one side, and send SIGHUP."""
        if who == "computes":
            shutil.copy(self.controller.hosts / f"{HOST}.keys", self._file)
        else:
            shutil.copy(self.controller.master, self.controller.file)
        self.hangup(who)

    def hangup(self, who: str) -> None:
        if who == "schedulers":
            self.scheduler.reload(self.modes[who])
            return
        before, line = len(self.agent.lines("host_keys is")), f"host_keys is {self.modes[who]}"
        self.agent.hangup()
        self.agent.wait(lambda: self.agent.lines("host_keys is")[before:])
        assert line in self.agent.lines("host_keys is")[-1]


def commands() -> tuple[list[str], list[tuple[str, str]]]:
    """The commands of the page: those that create keys, and those that rotate, with who gets the files then."""
    lines = re.findall(r"^    (shared-scheduler-manage keys .+)$", PAGE.read_text(), re.MULTILINE)
    rotation = [line.partition("#") for line in lines if "#" in line]
    to = ["schedulers" if "schedulers" in told else "computes" for _, _, told in rotation]
    steps = [(line.strip(), who) for (line, _, _), who in zip(rotation, to, strict=True)]
    return [line for line in lines if "#" not in line], steps


@pytest.fixture
def fleet(shared_rabbit: PrivateRabbit, tmp_path: Path) -> Iterator[Fleet]:
    """Without keys; the agent is ready, and claims are cast all the time."""
    controller = Controller(tmp_path)
    scheduler = Scheduler(shared_rabbit.url, controller.file)
    hello = TapHello(HOST, 1)
    told = NodeReported(NODE, ROOT_LEAVES, {}, complete=True, ready=True)
    tap = TapChannel(str(tmp_path / "compute-agent" / "tap.sock"), lambda: [hello, told])
    with tap.lock:
        tap.put(hello)
    with served(FakePlacement(vcpus=4)) as url:
        agent = Process(tmp_path, url, shared_rabbit.url)
        agent.configure(**SLOW)
        try:
            agent.start()
            assert scheduler.first(lambda one: isinstance(one, Snapshot) and one.leaves["agent.ready"] is True)
            scheduler.begin()
            yield Fleet(controller, scheduler, agent)
        finally:
            scheduler.close()
            agent.close()


def with_keys(fleet: Fleet) -> None:
    """Steps 2 and 3 of the page; claims are judged after each change of each program."""
    for line in commands()[0]:
        fleet.controller.run(line)
    for who in ("computes", "schedulers"):
        fleet.set(who, "off")
        fleet.distribute(who)
    for mode in ("accept", "require"):
        for who in ("schedulers", "computes"):
            fleet.set(who, mode)
            fleet.scheduler.go_on()


def rotate(fleet: Fleet) -> None:
    """The commands of the page in their order; claims are judged after each."""
    for line, who in commands()[1]:
        fleet.controller.run(line)
        fleet.distribute(who)
        fleet.scheduler.go_on()


def test_keys_are_introduced_and_rotated_while_claims_are_judged(fleet: Fleet) -> None:
    fleet.scheduler.go_on()
    with_keys(fleet)
    first = fleet.scheduler.keys.key_id
    pid = fleet.agent.child and fleet.agent.child.pid

    rotate(fleet)

    assert fleet.scheduler.keys.key_id > first
    assert first not in fleet.controller.master.read_text()
    assert (fleet.agent.child and fleet.agent.child.pid) == pid, "no restart"
    counters = fleet.scheduler.channel.counters
    assert counters["messages_rejected"] == 0, counters
    assert not fleet.agent.lines("is dropped")
    assert fleet.agent.end() == 0
    assert fleet.scheduler.first(lambda one: isinstance(one, Leave))


def of_victim(epoch: int) -> tuple[Message, ...]:
    """What would change the row of the agent's node, or a claim."""
    return (
        Hello(Role.AGENT, agent_address(HOST), epoch, NODE, HOST),
        Snapshot(NODE, epoch, 2**40, HOST, {**ROOT_LEAVES, "cn.vcpus": 64}, {}, {}, 0),
        Increment(NODE, epoch, 2**40, {"cn.vcpus_used": 4}),
        Heartbeat(NODE, epoch, 2**40, HOST, 0),
        Verdict("c0", NODE, epoch, False),
        Leave(NODE, epoch, 2**40),
    )


class Impostor:
    """A compromised host with its own keys and its own user of the broker."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._own = (fleet.controller.hosts / f"{EVIL}.keys").read_text()
        self.endpoint = fleet.scheduler.bus.agent_endpoint(EVIL)
        self.endpoint.start(lambda bodies: None, lambda connected: None)

    def keys(self, name: str, own: str = "") -> HostKeys:
        """Keys as ``keys derive`` wrote them for this host, under a name."""
        file = self._fleet.agent.home / f"impostor.{name}"
        file.write_text((own or self._own).replace(EVIL, name))
        file.chmod(0o600)
        options = SimpleNamespace(host_keys="require", host_keys_file=str(file))
        return HostKeys(*configured_host_keys(options, "compute_agent", name))

    def send(self, body: bytes) -> None:
        """To all schedulers, and to the scheduler and the agent alone."""
        self.endpoint.broadcast_to_schedulers(body)
        for address in (self._fleet.scheduler.channel.address, agent_address(HOST)):
            self.endpoint.cast(address, body)


def test_another_host_is_not_believed_and_named(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    # given a fleet that requires keys, and what one of its hosts can make: its own name, and the agent's name with
    # its own secret, without a key, and with a key that was rotated out
    with_keys(fleet)
    impostor = Impostor(fleet)
    old = (fleet.controller.hosts / f"{HOST}.keys").read_text()
    rotate(fleet)
    scheduler = fleet.scheduler
    epoch = scheduler.heard[-1].epoch  # type: ignore[union-attr]
    scheduler_hello = Hello(Role.SCHEDULER, scheduler.channel.address, 1, want=Want.SNAPSHOT)
    forged = [encode(one) for epoch_ in (epoch, epoch + FORGED_EPOCH) for one in of_victim(epoch_)]
    forged += [encode(replace(claim("forged", vcpus=4), scheduler=scheduler.channel.address)), encode(scheduler_hello)]
    own = impostor.keys(EVIL, (fleet.controller.hosts / f"{EVIL}.keys").read_text())
    named = impostor.keys(HOST, (fleet.controller.hosts / f"{EVIL}.keys").read_text())
    past = impostor.keys(HOST, old)
    before, restarts = len(scheduler.heard), fleet.agent.lines("new epoch")

    # when it sends all of them, ten times
    for _ in range(10):
        for body in forged:
            for keys in (own, named, past):
                impostor.send(keys.seal(Kind.AGENT, body))
            impostor.send(body)
    refused = 10 * len(forged) * 4 * 2
    fleet.agent.wait(lambda: scheduler.channel.counters["messages_rejected"] >= refused)
    scheduler.go_on(10)

    # then nothing of it was heard, the agent goes on as before, and claims are judged
    # (the agent itself may still answer the Hello with which the scheduler began)
    assert not any(isinstance(one, Hello) for one in scheduler.heard[before:])
    snapshots = [one for one in scheduler.heard[before:] if isinstance(one, Snapshot)]
    assert all((one.epoch, one.leaves["cn.vcpus"]) == (epoch, 4) and one.sequence < 2**40 for one in snapshots)
    assert {one.epoch for one in scheduler.heard[before:] if isinstance(one, Increment)} == {epoch}
    assert all(one.sequence < 2**40 for one in scheduler.heard if isinstance(one, Increment))
    assert fleet.agent.lines("new epoch") == restarts
    assert scheduler.channel.counters["messages_rejected"] == refused
    impostor.endpoint.close()

    # and the operator is told who it is, in a bounded number of lines
    lines = [record.getMessage() for record in caplog.records if "is dropped" in record.getMessage()]
    assert any(f"host {EVIL} has sent a" in line for line in lines), lines
    assert any(f"host '{HOST}', is wrong" in line for line in lines), lines
    assert len(lines) <= 3, lines
    assert 1 <= len(fleet.agent.lines("is dropped")) <= 3
    assert scheduler.keys.mode is HostKeysMode.REQUIRE
