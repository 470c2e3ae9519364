# SPDX-License-Identifier: Apache-2.0
"""Takes the bytes of a message as they are, whatever its headers and properties say.

kombu decompresses a body whose header names a compression, and py-amqp decodes one whose property names an encoding,
both before the size and the signature are checked: 400 bytes become 512 MiB, and an encoding may raise or take seconds.
Messages of this project have neither.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import pyamqp


class PlainMessage(pyamqp.Message):  # type: ignore[misc]
    """A message without headers."""

    def __init__(self, msg: Any, channel: Any = None, **kwargs: Any) -> None:
        msg.properties.pop("application_headers", None)
        super().__init__(msg, channel, **kwargs)


def take_plain(channel: Any) -> None:
    """Let a channel give plain messages to its consumers.  Channels of other transports are not changed."""
    if isinstance(channel, pyamqp.Channel):
        channel.auto_decode = False
        channel.Message = PlainMessage
