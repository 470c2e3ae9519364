# SPDX-License-Identifier: Apache-2.0
"""The messages from the tap inside nova-compute to the agent beside it, and their encoding.

The socket is a local one of type SOCK_SEQPACKET: it delivers whole frames, in order, without loss.  A message is one
msgpack value ``[kind, body]`` in one or more frames::

    magic 2 bytes | version 1 byte | last frame? 1 byte | part of the message

Both sides are in one package.  A different version means that nova-compute or the agent was not restarted after an
upgrade; it is refused with an error that says so.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from compute_agent.events import Member
from shared_scheduler.protocol.messages import Leaf

MAGIC: Final = b"ct"
VERSION: Final = 2
#: The claim of nova-compute that begins a build: a method of its tracker, and the ``kind`` of a claim.
BUILD_CLAIM: Final = "instance_claim"
_HEADER: Final = struct.Struct(">2sBB")
#: Far below the kernel's default socket buffer (about 200 KiB).
FRAME_MAX_BYTES: Final = 32 * 1024
#: A node with thousands of instances and providers stays below this.
MESSAGE_MAX_BYTES: Final = 8 * 1024 * 1024


class TapError(Exception):
    """A message of the socket cannot be used.  The error names the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class TapHello:
    """The first message: which nova-compute the tap belongs to."""

    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class NodeReported:
    """A node's leaves and members, all of them (``complete``) or those that changed."""

    node: str
    leaves: Mapping[str, Leaf]
    members: Mapping[str, Member | None] = field(default_factory=dict)
    complete: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class NodeGone:
    """nova-compute no longer manages this node."""

    node: str


@dataclass(frozen=True, slots=True)
class TreeWritten:
    """nova-compute has written a changed provider tree of the node to Placement."""

    node: str


@dataclass(frozen=True, slots=True)
class ClaimEntered:
    """nova-compute begins to claim for an instance; ``kind`` is the method's name."""

    consumer: str
    kind: str


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """nova-compute refused, or failed, to claim for an instance."""

    consumer: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class BuildEnded:
    """nova-compute has built an instance on the node, or failed to."""

    node: str
    consumer: str
    succeeded: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another agent is connected already."""


TapMessage = TapHello | NodeReported | NodeGone | TreeWritten | ClaimEntered | ClaimFailed | BuildEnded | Busy

_KINDS: Final[dict[str, type[Any]]] = {
    "hello": TapHello,
    "node": NodeReported,
    "gone": NodeGone,
    "tree": TreeWritten,
    "enter": ClaimEntered,
    "failed": ClaimFailed,
    "built": BuildEnded,
    "busy": Busy,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def frames(message: TapMessage) -> Iterator[bytes]:
    """The frames of a message, each to be sent as one packet."""
    body = msgpack.packb([_NAMES[type(message)], _fields(message)])
    if len(body) > MESSAGE_MAX_BYTES:
        raise TapError(f"a tap message of {len(body)} bytes is over {MESSAGE_MAX_BYTES}")
    room = FRAME_MAX_BYTES - _HEADER.size
    for start in range(0, len(body), room):
        last = start + room >= len(body)
        yield _HEADER.pack(MAGIC, VERSION, last) + body[start : start + room]


class Assembler:
    """Makes messages from frames."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, frame: bytes) -> TapMessage | None:
        """Take a frame.  Return the message that it completes, or None.

        :raises TapError: when the frame is not valid
        """
        if len(frame) < _HEADER.size or frame[:2] != MAGIC:
            raise TapError("the socket is not that of a tap: check [compute_agent] tap_socket")
        _, version, last = _HEADER.unpack_from(frame)
        if version != VERSION:
            raise TapError(
                f"the tap in nova-compute has protocol version {version}, this agent has {VERSION}: "
                "restart whichever is older"
            )
        self._parts.append(frame[_HEADER.size :])
        self._size += len(frame)
        if self._size > MESSAGE_MAX_BYTES + FRAME_MAX_BYTES:
            raise TapError(f"a tap message is over {MESSAGE_MAX_BYTES} bytes")
        return self._complete() if last else None

    def _complete(self) -> TapMessage:
        body = b"".join(self._parts)
        self._parts, self._size = [], 0
        try:
            name, values = msgpack.unpackb(body, strict_map_key=False)
            return _build(_KINDS[name], values)
        except (ValueError, LookupError, TypeError, AttributeError, msgpack.UnpackException) as error:
            raise TapError(f"a tap message does not parse: {type(error).__name__}: {error}") from error


def _fields(message: Any) -> list[Any]:
    values = [getattr(message, name) for name in message.__slots__]
    if isinstance(message, NodeReported):
        values[2] = {
            key: None if one is None else [one.instance, one.migration] for key, one in message.members.items()
        }
    return values


def _build(kind: type[Any], values: list[Any]) -> TapMessage:
    if kind is NodeReported:
        values[2] = {key: None if one is None else Member(*one) for key, one in values[2].items()}
    built: TapMessage = kind(*values)
    return built
