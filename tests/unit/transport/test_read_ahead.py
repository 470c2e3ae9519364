# SPDX-License-Identifier: Apache-2.0
"""Frames that have arrived together are read by one call, and none is lost, doubled or waited for without need."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from amqp.connection import Connection
from amqp.exceptions import UnexpectedFrame
from amqp.transport import SSLTransport, TCPTransport
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.transport.read_ahead import begins_with_frame, read_ahead
from shared_scheduler.transport.transport_settings import READ_AHEAD_BYTES
from tests.unit.transport.broker_door import Authority

Frame = tuple[int, int, bytes]
#: method, header and body of a message, and a heartbeat
MESSAGE: list[Frame] = [(1, 1, b"deliver"), (2, 1, b"header"), (3, 1, b"body" * 60), (8, 0, b"")]
PATIENCE_S = 10.0

FRAMES = st.lists(
    st.tuples(st.integers(1, 8), st.integers(0, 2**16 - 1), st.binary(max_size=40)), min_size=1, max_size=8
)


def sent(frames: list[Frame]) -> bytes:
    return b"".join(pack(">BHI", kind, channel, len(body)) + body + b"\xce" for kind, channel, body in frames)


class CountedCalls:
    """A socket that counts what costs a system call."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.calls = 0

    def recv(self, size: int) -> bytes:
        self.calls += 1
        return self._sock.recv(size)

    def settimeout(self, timeout_s: float | None) -> None:
        self.calls += 1
        self._sock.settimeout(timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class Ends:
    """A connection of py-amqp, which is open, and its end at the broker."""

    def __init__(self, transport: Any, broker: socket.socket) -> None:
        self.connection, self.broker = Connection(), broker
        self.connection.transport = transport
        self.connection.on_inbound_frame = lambda frame: frame
        read_ahead(self.connection)

    def read(self, timeout_s: float = PATIENCE_S) -> Frame:
        frame: Frame = self.connection.blocking_read(timeout_s)
        return frame

    def close(self) -> None:
        self.connection.transport.sock.close()
        self.broker.close()


def over_tcp() -> Ends:
    ours, broker = socket.socketpair()
    transport = TCPTransport("localhost:5672")
    transport.sock = CountedCalls(ours)
    transport._setup_transport()
    return Ends(transport, broker)


def over_tls(directory: Path) -> Ends:
    ours, broker = socket.socketpair()
    authority, accepted = Authority(directory), []
    serving = threading.Thread(
        target=lambda: accepted.append(authority.server_of("localhost").wrap_socket(broker, server_side=True))
    )
    serving.start()
    transport = SSLTransport(
        "localhost:5671",
        connect_timeout=PATIENCE_S,
        ssl={"ca_certs": str(authority.file), "server_hostname": "localhost"},
    )
    transport.sock = ours
    transport._setup_transport()
    serving.join()
    return Ends(transport, accepted[0])


@pytest.fixture(params=["TCP", "TLS"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ends]:
    pair = over_tcp() if request.param == "TCP" else over_tls(tmp_path)
    yield pair
    pair.close()


def test_frames_that_arrive_together_arrive_one_by_one(ends: Ends) -> None:
    ends.broker.sendall(sent(MESSAGE))

    assert [ends.read() for _ in MESSAGE] == MESSAGE


def test_nothing_is_waited_for_after_the_last_frame(ends: Ends) -> None:
    ends.broker.sendall(sent(MESSAGE))
    for _ in MESSAGE:
        ends.read()

    with pytest.raises(TimeoutError):
        ends.read(timeout_s=0.0)


@pytest.mark.parametrize("timeout_s", [0.0, 0.01])
def test_a_frame_that_arrives_in_two_parts_is_read_when_it_is_whole(ends: Ends, timeout_s: float) -> None:
    whole = sent(MESSAGE)
    ends.broker.sendall(whole[:-20])
    begun = [ends.read(), ends.read()]
    with pytest.raises(TimeoutError):
        ends.read(timeout_s)

    ends.broker.sendall(whole[-20:])

    assert [*begun, ends.read(), ends.read()] == MESSAGE


def test_a_frame_larger_than_what_is_read_at_once_is_read_whole(ends: Ends) -> None:
    large: list[Frame] = [(3, 1, bytes(range(256)) * (READ_AHEAD_BYTES // 64)), MESSAGE[0]]
    sending = threading.Thread(target=ends.broker.sendall, args=(sent(large),))
    sending.start()

    assert [ends.read(), ends.read()] == large
    sending.join()


def test_what_was_read_is_delivered_before_the_end_of_the_connection(ends: Ends) -> None:
    ends.broker.sendall(sent(MESSAGE))
    ends.broker.close()

    assert [ends.read() for _ in MESSAGE] == MESSAGE
    with pytest.raises(OSError, match="closed"):
        ends.read()


def test_a_message_costs_one_read_and_two_changes_of_the_timeout() -> None:
    ends = over_tcp()
    ends.broker.sendall(sent(MESSAGE))

    for _ in MESSAGE:
        ends.read()

    assert ends.connection.transport.sock.calls == 3
    ends.close()


def test_a_frame_without_its_end_is_an_error() -> None:
    ends = over_tcp()
    ends.broker.sendall(sent(MESSAGE[:1])[:-1] + b"\x00")

    with pytest.raises(UnexpectedFrame):
        ends.read()
    ends.close()


@given(FRAMES, st.data())
def test_however_the_bytes_arrive_the_frames_are_the_same(frames: list[Frame], data: st.DataObject) -> None:
    ends, whole = over_tcp(), sent(frames)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole)), max_size=6)) | {0, len(whole)})
    parts = [whole[begin:end] for begin, end in pairwise(cuts)]
    read: list[Frame] = []

    for part in parts:
        ends.broker.sendall(part)
        while len(read) < len(frames):
            try:
                read.append(ends.read(timeout_s=0.0))
            except TimeoutError:
                break

    assert read == frames
    ends.close()


@given(FRAMES, st.binary(max_size=3))
def test_a_frame_is_there_when_its_last_byte_is(frames: list[Frame], further: bytes) -> None:
    first = sent(frames[:1])

    assert begins_with_frame(first + further)
    assert not any(begins_with_frame(first[:size]) for size in range(len(first)))
