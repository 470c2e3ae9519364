# SPDX-License-Identifier: Apache-2.0
"""An operator sees since when a cell is cut off, and when an agent was heard last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared_scheduler.protocol import codec
from shared_scheduler.protocol.messages import Leave
from shared_scheduler.transport.bus import ConnectionChanged, Receive
from shared_scheduler.transport.channel import Channel


class Endpoint:
    """An endpoint that the test plays."""

    address = "ssched.scheduler.a"

    has_more = False

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        self.receive, self.changed = receive, changed

    def broadcast(self, body: bytes) -> bool:
        return True

    def broadcast_to_schedulers(self, body: bytes) -> bool:
        return True

    def cast(self, address: str, body: bytes, returned: Callable[[], None] | None = None) -> bool:
        return True

    def close(self) -> None:
        pass


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ignore(_: Sequence[object] | bool) -> None:
    pass


def test_the_time_in_a_state_begins_with_the_state() -> None:
    # given a channel that was never connected
    clock, endpoint = Clock(), Endpoint()
    channel = Channel(endpoint, clock=clock)
    channel.start(ignore, ignore)
    clock.now += 5
    assert (channel.connected, channel.in_state_s) == (False, 5.0)

    # when it is connected, and connected again without a loss
    endpoint.changed(True)
    clock.now += 3
    endpoint.changed(True)
    assert channel.in_state_s == 3.0

    # and is lost
    endpoint.changed(False)
    clock.now += 1
    assert (channel.connected, channel.in_state_s) == (False, 1.0)


def test_the_last_message_has_an_age_and_a_bad_one_does_not_count() -> None:
    clock, endpoint = Clock(), Endpoint()
    channel = Channel(endpoint, clock=clock)
    channel.start(ignore, ignore)
    assert channel.heard_ago_s is None

    endpoint.receive([codec.encode(Leave("node-1", 1, 1))])
    clock.now += 7
    endpoint.receive([b"junk"])

    assert channel.heard_ago_s == 7.0
