# SPDX-License-Identifier: Apache-2.0
"""Lets py-amqp read all that has arrived at once.

py-amqp reads a frame in three pieces, and sets the timeout of the socket before and after each frame.  A message has
three frames, so it costs 15 to 24 system calls, and these are more than half of what an idle scheduler does.  Here
one call takes what has arrived, and a frame that is complete is taken from py-amqp's own buffer without any.

If py-amqp may not wait and has read a part of a frame, it reads again in a loop until the rest arrives, which never
happens if the broker's machine has ended.  Here such a read is a timeout, and what has arrived is kept.
"""

from __future__ import annotations

from ssl import SSLWantReadError
from struct import calcsize, unpack_from
from typing import Any

from shared_scheduler.transport.transport_settings import READ_AHEAD_BYTES

#: type, channel and size of the payload
FRAME = ">BHI"
HEAD_BYTES, END_BYTES = calcsize(FRAME), 1


def read_ahead(connection: Any) -> None:
    """Change how this connection of py-amqp, which is connected, reads its socket."""
    transport, blocking_read = connection.transport, connection.blocking_read
    receive = transport._quick_recv

    def receive_more(wanted_bytes: int) -> bytes:
        try:
            received: bytes = receive(max(wanted_bytes, READ_AHEAD_BYTES))
        except (BlockingIOError, SSLWantReadError) as nothing:
            raise TimeoutError("nothing has arrived") from nothing
        return received

    def read(timeout: float | None = None) -> Any:
        if begins_with_frame(transport._read_buffer):
            return connection.on_inbound_frame(transport.read_frame())
        return blocking_read(timeout)

    transport._quick_recv, connection.blocking_read = receive_more, read


def begins_with_frame(buffer: bytes) -> bool:
    """Whether a whole frame is there."""
    if len(buffer) < HEAD_BYTES:
        return False
    _kind, _channel, payload_bytes = unpack_from(FRAME, buffer)
    return len(buffer) >= HEAD_BYTES + int(payload_bytes) + END_BYTES
