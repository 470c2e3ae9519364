# SPDX-License-Identifier: Apache-2.0
"""Messages of a message queue become events of its cell: whole messages, in order, in small parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from shared_scheduler.core import events as ev
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.messages import Claim, Heartbeat, Hello, Message, Release, Role, Want, agent_address
from shared_scheduler.protocol.signing import Signer, Signing, parse_keyring
from shared_scheduler.service.cell_channel import MESSAGES_PER_EVENT_MAX, CellChannel
from shared_scheduler.transport.bus import ConnectionChanged, Receive
from shared_scheduler.transport.channel import Channel
from tests.unit.protocol.samples import MESSAGES

KEYS = parse_keyring("k1:" + "ab" * 32)


class Wire:
    """An endpoint that the test holds the other end of."""

    has_more = False

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.full = False
        #: addresses without an endpoint
        self.gone: set[str] = set()
        self.address = "ssched.scheduler.test"
        self.receive: Receive = lambda bodies: None
        self.changed: ConnectionChanged = lambda connected: None

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        self.receive, self.changed = receive, changed

    def broadcast(self, body: bytes) -> bool:
        return self.cast("*", body)

    def broadcast_to_schedulers(self, body: bytes) -> bool:
        return self.cast("schedulers", body)

    def cast(self, address: str, body: bytes, returned: Callable[[], None] | None = None) -> bool:
        if returned is not None and address in self.gone:
            returned()
        if not self.full:
            self.sent.append((address, body))
        return not self.full

    def close(self) -> None:
        pass


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def events() -> list[ev.Event]:
    return []


@pytest.fixture
def open_channel(wire: Wire, events: list[ev.Event]) -> Any:
    def make(**more: Any) -> Channel:
        made = CellChannel("cell1", Channel(wire, name="State channel of cell cell1", **more), events.append)
        made.start()
        return made.channel

    return make


def of_kind(kind: type[Message]) -> Message:
    return next(message for message in MESSAGES if isinstance(message, kind))


def heartbeat(sequence: int) -> Heartbeat:
    return Heartbeat("node-1", 7, sequence, "cmp1", 0)


def test_good_messages_arrive_in_order(wire: Wire, events: list[ev.Event], open_channel: Any) -> None:
    open_channel()

    wire.receive([codec.encode(heartbeat(1)), codec.encode(heartbeat(2))])

    assert events == [ev.MessagesArrived("cell1", (heartbeat(1), heartbeat(2)))]


def test_a_queue_that_a_second_cell_has_joined_names_the_cell_of_each_node(wire: Wire, events: list[ev.Event]) -> None:
    # given a queue of one cell, whose messages need no row
    rows: dict[str, str] = {}
    channel = CellChannel("cell1", Channel(wire, name="State channel"), events.append, rows.get)
    channel.start()
    wire.receive([codec.encode(heartbeat(1))])
    assert [event.cell for event in events if isinstance(event, ev.MessagesArrived)] == ["cell1"]
    # when another cell uses it as well, and the node is of that one
    channel.add_cell("cell2")
    events.clear()
    rows[heartbeat(1).node] = "cell2"
    wire.receive([codec.encode(heartbeat(2))])
    # then
    assert [event.cell for event in events if isinstance(event, ev.MessagesArrived)] == ["cell2"]


def test_a_cell_whose_messages_wait_behind_those_of_another_is_told_so(wire: Wire, events: list[ev.Event]) -> None:
    # given a queue that two cells use, and a batch with messages of one of them, after which others wait
    channel = CellChannel("cell1", Channel(wire, name="State channel"), events.append, lambda node: "cell1")
    channel.start()
    channel.add_cell("cell2")
    # when
    wire.has_more = True
    wire.receive([codec.encode(heartbeat(1))])
    # then those of the other may be among them
    assert ev.MessagesArrived("cell1", (heartbeat(1),), more=True) in events
    assert ev.MessagesArrived("cell2", (), more=True) in events
    # and later nothing waits
    wire.has_more = False
    events.clear()
    wire.receive([codec.encode(heartbeat(2))])
    assert events == [ev.MessagesArrived("cell1", (heartbeat(2),))]


def test_a_cast_that_nobody_receives_comes_back_as_an_event(
    wire: Wire, events: list[ev.Event], open_channel: Any
) -> None:
    # given an agent that is not connected
    made, claim, release = open_channel(), of_kind(Claim), of_kind(Release)
    wire.gone.add(agent_address("cmp1"))
    # when a claim and a release are cast to it
    made.cast(agent_address("cmp1"), claim)
    made.cast(agent_address("cmp1"), release)
    # then the claim comes back, and nobody needs to know about the release
    assert events == [ev.CastReturned("cell1", claim)]
    assert made.counters["returned"] == 1


def test_a_flood_is_handed_over_in_parts(wire: Wire, events: list[ev.Event], open_channel: Any) -> None:
    open_channel()
    count = MESSAGES_PER_EVENT_MAX + 1

    wire.receive([codec.encode(heartbeat(n)) for n in range(count)])

    assert [len(each.messages) for each in events if isinstance(each, ev.MessagesArrived)] == [
        MESSAGES_PER_EVENT_MAX,
        1,
    ]


@pytest.mark.parametrize("body", [b"", b"\xff\xff", b"{}", b"\x93\x01\x09" + b"x" * 5_000_000])
def test_bad_bodies_are_counted_and_logged_once(
    wire: Wire,
    events: list[ev.Event],
    open_channel: Any,
    body: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = open_channel(clock=lambda: 0.0)

    with caplog.at_level(logging.WARNING):
        wire.receive([body, codec.encode(heartbeat(1)), body])

    assert events == [ev.MessagesArrived("cell1", (heartbeat(1),))]
    assert made.counters["messages_rejected"] == 2
    assert len([r for r in caplog.records if "is dropped: " in r.message]) == 1


def test_unsigned_messages_are_dropped_where_signing_is_enforced(
    wire: Wire, events: list[ev.Event], open_channel: Any
) -> None:
    signer = Signer(Signing.ENFORCE, KEYS)
    made = open_channel(signer=signer)

    wire.receive([codec.encode(heartbeat(1)), signer.seal(codec.encode(heartbeat(2)))])

    assert events == [ev.MessagesArrived("cell1", (heartbeat(2),))]
    assert made.counters["BadSignature"] == 1


def test_tolerated_messages_are_accepted_counted_and_logged_once_a_sender(
    wire: Wire, events: list[ev.Event], open_channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = open_channel(signer=Signer(Signing.WARN, KEYS))

    with caplog.at_level(logging.WARNING):
        wire.receive([codec.encode(heartbeat(1)), codec.encode(heartbeat(2))])

    assert events == [ev.MessagesArrived("cell1", (heartbeat(1), heartbeat(2)))]
    assert made.counters["tolerated"] == 2
    lines = [record.getMessage() for record in caplog.records if "signing = warn" in record.getMessage()]
    assert lines == [
        "State channel of cell cell1: a message from node-1 has no valid signature; it is accepted because of "
        "signing = warn (1 of this kind so far)"
    ]


def test_frames_can_be_assembled_by_the_other_side(wire: Wire, open_channel: Any) -> None:
    signer = Signer(Signing.ENFORCE, KEYS)
    made = open_channel(signer=signer)
    hello = Hello(Role.SCHEDULER, made.address, 1)

    made.broadcast(hello)
    made.cast("ssched.agent.cmp1", heartbeat(3))

    assert [to for to, _ in wire.sent] == ["schedulers", "ssched.agent.cmp1"]
    assert [codec.decode(signer.open(body)) for _, body in wire.sent] == [hello, heartbeat(3)]


@pytest.mark.parametrize(
    ("want", "heard_by"),
    [(Want.NOTHING, "schedulers"), (Want.HEARTBEAT, "*"), (Want.SNAPSHOT, "*")],
)
def test_a_hello_that_wants_nothing_of_agents_does_not_wake_thousands_of_them(
    wire: Wire, open_channel: Any, want: Want, heard_by: str
) -> None:
    open_channel().broadcast(Hello(Role.SCHEDULER, "ssched.scheduler.test", 1, want=want))

    assert [to for to, _ in wire.sent] == [heard_by]


def test_unsendable_messages_are_counted(wire: Wire, open_channel: Any) -> None:
    made = open_channel()
    made.cast("a", Heartbeat("x" * 1000, 7, 1, "cmp1", 0))
    wire.full = True
    made.broadcast(heartbeat(1))

    assert made.counters == {"unsendable": 1, "outbox_full": 1}


def test_the_core_is_notified_of_a_lost_and_a_new_connection(
    wire: Wire, events: list[ev.Event], open_channel: Any
) -> None:
    made = open_channel()

    wire.changed(True)
    assert made.connected
    wire.changed(False)

    assert events == [ev.ChannelChanged("cell1", True), ev.ChannelChanged("cell1", False)]
    assert not made.connected


def test_messages_that_wait_behind_a_rejected_batch_are_announced(wire: Wire, events: list[ev.Event]) -> None:
    # given a sender whose messages cannot be read, and others behind them
    channel = CellChannel("cell1", Channel(wire, name="State channel"), events.append)
    channel.start()
    wire.has_more = True
    # when a batch has nothing else
    wire.receive([b"no message"])
    # then the core knows that messages wait, and takes no node for silent
    assert events == [ev.MessagesArrived("cell1", (), more=True)]
    # and a batch that is the last tells nothing
    wire.has_more = False
    events.clear()
    wire.receive([b"no message"])
    assert events == []
