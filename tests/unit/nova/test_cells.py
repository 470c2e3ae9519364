# SPDX-License-Identifier: Apache-2.0
"""Which cell has which channel: one a message queue, whatever number of cells use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.core import events as ev
from shared_scheduler.nova.cells import Channels
from shared_scheduler.nova.running import live_schedulers
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.messages import Heartbeat, Hello, Message, Role, Want
from shared_scheduler.sync.databases import Cell
from shared_scheduler.transport.bus import ConnectionChanged, Receive
from shared_scheduler.transport.kombu_bus import KombuBus
from tests.unit.core.scheduler_driver import CELL, OTHER_CELL, SchedulerDriver

URL = "rabbit://nova:secret@mq:5672/"
MOVED = "rabbit://nova:secret@other-mq:5672/"


class Wire:
    """An endpoint that the test holds the other end of."""

    address = "ssched.scheduler.test"

    has_more = False

    def __init__(self) -> None:
        self.closed = 0
        self.receive: Receive = lambda bodies: None
        self.changed: ConnectionChanged = lambda connected: None

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        self.receive, self.changed = receive, changed

    def cast(self, address: str, body: bytes, returned: Callable[[], None] | None = None) -> bool:
        return True

    def broadcast(self, body: bytes) -> bool:
        return True

    def broadcast_to_schedulers(self, body: bytes) -> bool:
        return True

    def close(self) -> None:
        self.closed += 1

    def say(self, *messages: Message) -> None:
        self.receive([codec.encode(message) for message in messages])


class Story:
    """Channels on wires, and the events of the core."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wires: list[Wire] = []
        self.rows: dict[str, str] = {}
        self.told: list[Any] = []
        self.channels = Channels("sched1", self.told.append, self.rows.get)
        monkeypatch.setattr(KombuBus, "scheduler_endpoint", lambda *_: self.wire())

    def wire(self) -> Wire:
        self.wires.append(Wire())
        return self.wires[-1]

    def open(self, *wanted: Cell) -> None:
        for channel in self.channels.open(wanted):
            channel.start()


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(monkeypatch)


def cell(uuid: str, url: str = URL, disabled: bool = False) -> Cell:
    return Cell(uuid, f"name of {uuid}", "sqlite://", url, disabled)


def heartbeat(node: str) -> Heartbeat:
    return Heartbeat(node, 7, 1, f"host of {node}", 0)


def test_cells_on_one_queue_share_one_channel_and_its_address(story: Story) -> None:
    story.open(cell("a"), cell("b"), cell("c", "rabbit://nova:secret@mq:5672/c"))

    by_cell = story.channels.by_cell
    assert len(story.wires) == 2
    assert by_cell["a"] is by_cell["b"] is not by_cell["c"]
    assert story.channels.addresses.keys() == {"a", "b", "c"}
    assert story.channels.addresses["a"] == story.channels.addresses["b"]


@pytest.mark.parametrize(
    "url",
    [
        "rabbit://cell-b:other@mq:5672/",  # with a user of its own
        "rabbit://nova:secret@mq",
        "rabbit://nova:secret@mq:5672/?heartbeat=30",
    ],
)
def test_two_spellings_of_one_broker_url_are_one_queue(story: Story, url: str) -> None:
    """Else each cell would take all nodes of both for its own."""
    story.open(cell("a"), cell("b", url))
    assert len(story.wires) == 1
    assert story.channels.by_cell["a"] is story.channels.by_cell["b"]


def test_brokers_of_one_cluster_are_one_queue_in_any_order(story: Story) -> None:
    story.open(cell("a", "rabbit://u:p@mq1,u:p@mq2/v"), cell("b", "rabbit://u:p@mq2,u:p@mq1/v"))
    assert len(story.wires) == 1


def test_both_cells_are_notified_of_the_connection_and_of_peers(story: Story) -> None:
    story.open(cell("a"), cell("b"))
    hello = Hello(Role.SCHEDULER, "ssched.scheduler.other", 3)

    story.wires[0].changed(True)
    story.wires[0].say(hello)

    assert story.told == [
        ev.ChannelChanged("a", True), ev.ChannelChanged("b", True),
        ev.MessagesArrived("a", (hello,)), ev.MessagesArrived("b", (hello,)),
    ]  # fmt: skip


def test_on_a_shared_queue_a_node_is_of_the_cell_that_its_row_names(story: Story) -> None:
    story.open(cell("a"), cell("b"))
    story.rows.update({"n1": "a", "n2": "b"})

    story.wires[0].say(heartbeat("n1"), heartbeat("n2"), heartbeat("nobody told of it"))

    assert story.told == [
        ev.MessagesArrived("a", (heartbeat("n1"),)), ev.MessagesArrived("b", (heartbeat("n2"),)),
    ]  # fmt: skip
    assert story.channels.by_cell["a"].channel.counters["cell_of_node_unknown"] == 1


def test_a_cell_with_its_own_queue_gets_messages_of_new_nodes_at_once(story: Story) -> None:
    story.open(cell("a"))
    story.wires[0].say(heartbeat("new"))
    assert story.told == [ev.MessagesArrived("a", (heartbeat("new"),))]


def test_nodes_of_a_disabled_cell_are_not_taken_for_the_others(story: Story) -> None:
    story.open(cell("off", disabled=True), cell("a"))
    story.wires[0].say(heartbeat("of the disabled cell"))
    assert story.told == []
    assert "off" not in story.channels.addresses


def test_a_cell_added_later_is_notified_of_the_connection(story: Story) -> None:
    story.open(cell("a"))
    story.wires[0].changed(True)
    story.told.clear()
    story.open(cell("a"), cell("b"))

    story.channels.by_cell["b"].announce_cell("b")

    assert story.told == [ev.ChannelChanged("b", True)]


def test_the_channel_ends_with_the_last_cell_that_uses_it(story: Story) -> None:
    story.open(cell("a"), cell("b"))

    story.channels.close("a")
    assert story.wires[0].closed == 0
    story.channels.close("b")
    assert story.wires[0].closed == 1

    story.open(cell("b"))
    assert len(story.wires) == 2


@pytest.mark.parametrize("neighbours", [(), ("b",)])
def test_nothing_is_sent_for_a_deleted_cell(story: Story, neighbours: tuple[str, ...]) -> None:
    """The core says Hello every few seconds where its channel is up."""
    story.open(cell("a"), *map(cell, neighbours))
    story.wires[0].changed(True)
    story.told.clear()

    story.channels.close("a")

    assert story.told == [ev.ChannelChanged("a", False)]


def test_a_cell_that_moved_to_another_queue_is_followed(story: Story) -> None:
    """As stock does at SIGHUP, after ``nova-manage cell_v2 update_cell``."""
    story.open(cell("a"), cell("b"))

    story.open(cell("a"), cell("b", MOVED))

    assert [wire.closed for wire in story.wires] == [0, 0]
    assert story.channels.by_cell["a"].cells == ("a",)
    assert story.channels.by_cell["b"] is not story.channels.by_cell["a"]
    story.wires[1].changed(True)
    assert story.told == [ev.ChannelChanged("b", True)]


def test_a_queue_that_the_last_cell_moved_away_from_is_left(story: Story) -> None:
    story.open(cell("a"))

    story.open(cell("a", MOVED))

    assert [wire.closed for wire in story.wires] == [1, 0]
    assert story.channels.by_cell["a"].channel.address == story.channels.addresses["a"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file"),
        (b"k1\xff:", "not a text file"),
        (b"k1:xyz", "line 1: the secret is not hexadecimal"),
    ],
)
def test_unusable_keys_are_reported_with_option_and_file(
    conf: Any, tmp_path: Path, content: bytes | None, told: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    conf.set_override("signing", "warn", group="shared_scheduler")
    conf.set_override("signing_keys_file", str(file), group="shared_scheduler")

    with pytest.raises(KeyringError) as refused:
        Channels.read_keys()

    assert f"[shared_scheduler] signing_keys_file = {file}: " in str(refused.value)
    assert told in str(refused.value)


def test_signing_without_a_file_is_reported(conf: Any) -> None:
    conf.set_override("signing", "enforce", group="shared_scheduler")

    with pytest.raises(KeyringError, match="not set, and signing = enforce needs keys"):
        Channels.read_keys()


def test_schedulers_know_each_other_although_the_first_cell_has_no_state_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given two cells, the second of which has a state channel, on which another scheduler is heard
    driver = SchedulerDriver().without_agents("node-1", cell=CELL).without_agents("node-2", cell=OTHER_CELL)
    own, other = "ssched.scheduler.a.5.8c9dae0f", "ssched.scheduler.b.7.0a1b2c3d"
    monkeypatch.setitem(driver.core.identity.addresses, OTHER_CELL, own)
    driver.hear(Hello(Role.SCHEDULER, other, 1, "", "", Want.NOTHING), cell=OTHER_CELL)
    # then they share the search for orphans, and take turns
    assert live_schedulers(driver.core) == (own, (own, other))


def test_a_scheduler_without_a_state_channel_knows_itself() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    assert live_schedulers(driver.core) == ("scheduler-a", ("scheduler-a",))
