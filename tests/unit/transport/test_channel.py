# SPDX-License-Identifier: Apache-2.0
"""Both ends of a state channel: messages are sealed on the way out, and judged before they are decoded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.host_keys import HostKeys
from shared_scheduler.protocol.messages import Claim, Heartbeat, Hello, Message, Release, Resync, Role, Usage, Want
from shared_scheduler.protocol.signing import Signer, Signing, parse_keyring
from shared_scheduler.transport.channel import Channel, sender_of
from shared_scheduler.transport.key_options import load_keys
from tests.support.memory_bus import MemoryBus

NODE, HOST = "node-1", "compute-1"
OLD, NEW = "old:" + "ab" * 32, "new:" + "cd" * 32
RELEASE = Release("c1", NODE, "ssched.scheduler.a", "vm-1")
HEARTBEAT = Heartbeat(NODE, 7, 3, HOST, 99)


def signer(mode: Signing, *keys: str) -> Signer:
    return Signer(mode, parse_keyring("\n".join(keys)))


class Cell:
    """An agent and a scheduler on one bus, each with its real channel."""

    def __init__(self, agents: Signer, schedulers: Signer) -> None:
        self.bus = MemoryBus()
        self.at_agent: list[Message] = []
        self.at_scheduler: list[Message] = []
        self.now = 0.0
        self.agent = Channel(self.bus.agent_endpoint(HOST), agents, clock=lambda: self.now)
        self.agent.start(self.at_agent.extend, lambda connected: None)
        self.scheduler = Channel(self.bus.scheduler_endpoint("test"), schedulers)
        self.scheduler.start(self.at_scheduler.extend, lambda connected: None)

    def exchange(self) -> None:
        """Each says something to the other, in every way it can."""
        self.agent.broadcast(HEARTBEAT)
        self.agent.cast(self.scheduler.address, HEARTBEAT)
        self.scheduler.cast(self.agent.address, RELEASE)
        self.scheduler.broadcast(Hello(Role.SCHEDULER, self.scheduler.address, 1, want=Want.HEARTBEAT))
        self.bus.deliver(1.0)

    @property
    def heard(self) -> tuple[int, int]:
        """Messages that reached the agent, and the scheduler."""
        return len(self.at_agent), len(self.at_scheduler)


class TestBothSides:
    @pytest.mark.parametrize("mode", list(Signing))
    def test_with_the_same_keys_they_understand_each_other(self, mode: Signing) -> None:
        cell = Cell(signer(mode, OLD), signer(mode, OLD))

        cell.exchange()

        assert cell.at_agent[0] == RELEASE and cell.at_scheduler == [HEARTBEAT, HEARTBEAT]
        assert cell.heard == (2, 2)
        assert cell.agent.counters == {"received_release": 1, "received_hello": 1, "sent_heartbeat": 2}
        assert cell.scheduler.counters == {"received_heartbeat": 2, "sent_release": 1, "sent_hello": 1}

    def test_an_unsigned_message_is_dropped_where_keys_are_enforced(self) -> None:
        cell = Cell(signer(Signing.ENFORCE, OLD), signer(Signing.ENFORCE, NEW))

        cell.exchange()

        assert cell.heard == (0, 0)
        assert cell.agent.counters == {"messages_rejected": 2, "BadSignature": 2, "sent_heartbeat": 2}

    def test_a_fleet_changes_from_off_to_enforce_through_warn(self) -> None:
        agents, schedulers = Signer(), Signer()
        cell = Cell(agents, schedulers)
        keys = parse_keyring(OLD)

        for steps, (one, mode) in enumerate(
            [(s, mode) for mode in (Signing.WARN, Signing.ENFORCE) for s in (agents, schedulers)], 1
        ):
            one.replace(mode, keys)
            cell.exchange()
            assert cell.heard == (2 * steps, 2 * steps)
        assert agents.refused == schedulers.refused == 0

    def test_keys_change_without_a_flag_day(self) -> None:
        agents, schedulers = signer(Signing.ENFORCE, OLD), signer(Signing.ENFORCE, OLD)
        cell = Cell(agents, schedulers)

        steps = [(one, keys) for keys in ((OLD, NEW), (NEW, OLD), (NEW,)) for one in (agents, schedulers)]
        for count, (one, keys) in enumerate(steps, 1):
            one.replace(Signing.ENFORCE, parse_keyring("\n".join(keys)))
            cell.exchange()
            assert cell.heard == (2 * count, 2 * count)


class TestBadMessages:
    @pytest.fixture
    def cell(self, caplog: pytest.LogCaptureFixture) -> Iterator[Cell]:
        with caplog.at_level(logging.WARNING, logger="shared_scheduler.transport"):
            yield Cell(signer(Signing.ENFORCE, OLD), signer(Signing.ENFORCE, OLD))

    def send(self, cell: Cell, bodies: Sequence[bytes]) -> None:
        stranger = cell.bus.scheduler_endpoint("stranger")
        for body in bodies:
            stranger.cast(cell.agent.address, body)
        cell.bus.deliver(1.0)

    def test_each_kind_is_logged_once_and_once_more_after_the_interval(
        self, cell: Cell, caplog: pytest.LogCaptureFixture
    ) -> None:
        rubbish = signer(Signing.ENFORCE, OLD).seal(b"rubbish")

        self.send(cell, [encode(RELEASE)] * 3 + [rubbish] * 2)
        assert len(caplog.records) == 2
        cell.now += 61
        self.send(cell, [encode(RELEASE), rubbish])

        assert len(caplog.records) == 4
        assert "4 of this kind so far" in caplog.text and "not signed" in caplog.text
        assert cell.agent.counters["messages_rejected"] == 7
        assert cell.at_agent == []

    def test_a_changed_byte_is_seen_before_anything_is_decoded(self, cell: Cell) -> None:
        sealed = signer(Signing.ENFORCE, OLD).seal(encode(RELEASE))

        self.send(cell, [sealed[:-1] + bytes((sealed[-1] ^ 1,))])

        assert cell.at_agent == []
        assert cell.agent.counters["BadSignature"] == 1

    def test_tolerated_messages_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        cell = Cell(signer(Signing.WARN, OLD), Signer())

        with caplog.at_level(logging.WARNING, logger="shared_scheduler.transport"):
            cell.exchange()

        assert cell.heard == (2, 2)
        assert cell.agent.counters["tolerated"] == 2
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]  # one a sender
        assert "signing" in caplog.text
        assert "from ssched.scheduler.a has no valid signature" in caplog.text

    def test_unsendable_messages_are_counted_without_other_effects(self, cell: Cell) -> None:
        cell.agent.broadcast(Heartbeat("x" * 1000, 7, 3, HOST, 99))
        cell.agent.broadcast(HEARTBEAT)
        cell.bus.deliver(1.0)

        assert cell.agent.counters["unsendable"] == 1
        assert cell.at_scheduler == [HEARTBEAT]


class TestKeys:
    def conf(self, mode: str, file: Path | str = "") -> Any:
        options = {"signing": mode, "signing_keys_file": str(file), "host_keys": "off"}
        return SimpleNamespace(host=HOST, compute_agent=SimpleNamespace(**options))

    def test_off_needs_no_file(self) -> None:
        taken = signer(Signing.ENFORCE, OLD)

        load_keys(self.conf("off"), taken, HostKeys())

        assert taken.seal(b"body") == b"body"

    def test_the_first_key_signs_and_all_are_accepted(self, tmp_path: Path) -> None:
        file = tmp_path / "keys"
        file.write_text(f"# since june\n{NEW}\n{OLD}\n")
        taken = Signer()

        load_keys(self.conf("enforce", file), taken, HostKeys())

        assert taken.open(signer(Signing.WARN, OLD).seal(b"body")) == b"body"
        assert signer(Signing.ENFORCE, NEW).open(taken.seal(b"body")) == b"body"

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"k1:xyz\n", ("line 1", "not hexadecimal")),
            (b"", ("0 keys",)),
            (b"k1:abcd\n", ("line 1", "2 bytes")),
            (b"\xff\xfe\x00", ("not a text file",)),
            (None, ("No such file",)),
        ],
        ids=["no hex", "empty", "short", "binary", "missing"],
    )
    def test_a_file_that_cannot_be_used_is_named_and_the_old_keys_stay(
        self, tmp_path: Path, content: bytes | None, words: tuple[str, ...]
    ) -> None:
        file = tmp_path / "keys"
        if content is not None:
            file.write_bytes(content)
        taken = signer(Signing.ENFORCE, OLD)

        with pytest.raises(KeyringError) as caught:
            load_keys(self.conf("enforce", file), taken, HostKeys())

        line = str(caught.value)
        assert all(word in line for word in ("[compute_agent] signing_keys_file", str(file), *words))
        assert "\n" not in line
        assert taken.open(signer(Signing.ENFORCE, OLD).seal(b"body")) == b"body"

    def test_a_missing_file_is_reported_with_the_option(self) -> None:
        with pytest.raises(KeyringError, match=r"\[compute_agent\] signing_keys_file.*not set"):
            load_keys(self.conf("warn"), Signer(), HostKeys())


def test_every_message_names_its_sender() -> None:
    assert sender_of(HEARTBEAT) == NODE
    assert sender_of(Hello(Role.SCHEDULER, "ssched.scheduler.a", 1)) == "ssched.scheduler.a"
    assert sender_of(RELEASE) == "ssched.scheduler.a"
    assert sender_of(Resync(NODE, "ssched.scheduler.c", 1, 1)) == "ssched.scheduler.c"
    assert sender_of(Claim("c1", NODE, "ssched.scheduler.d", "vm-1", {}, Usage())) == "ssched.scheduler.d"
