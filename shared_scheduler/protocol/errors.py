# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a message.  Each error says what, where and what to do, in one line.

``LocalProtocolError`` is our mistake (we tried to send nonsense), ``RemoteProtocolError`` is theirs:
drop the message, count it, log it once per sender and interval.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """A message that must not be sent or must not be believed."""

    #: What a person can do about it, where the error itself has nothing better to say.
    remedy = ""

    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        if remedy:
            self.remedy = remedy
        super().__init__(self._line())

    def _line(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"; {self.remedy}" if self.remedy else ""
        return f"{place}{self.what}{advice}"


class LocalProtocolError(ProtocolError):
    """This program was about to break the protocol."""


class UnsendableMessage(LocalProtocolError):
    """A message or leaf that no receiver would accept."""

    remedy = "it was not sent; this is a bug of the sender, or a limit of protocol/limits.py"


class MisroutedMessage(LocalProtocolError):
    """A message was handed to the window of another node."""

    remedy = "route messages by their node"


class KeyringError(LocalProtocolError):
    """The keys for signing cannot be used."""

    remedy = "write one 'key-id:hex-secret' a line, the primary key first"


class RemoteProtocolError(ProtocolError):
    """The sender broke the protocol; nothing of the message has been used."""

    remedy = "dropped; look at the sender's version, or for a stranger on the message queue"


class MalformedMessage(RemoteProtocolError):
    """Not msgpack, or not of the shape that its type demands."""


class MessageTooLarge(RemoteProtocolError):
    """The body passes the limit of its type."""


class UnknownVersion(RemoteProtocolError):
    """Another major version of the protocol."""

    remedy = "dropped; run releases with the same protocol version in one cell"


class UnknownMessageType(RemoteProtocolError):
    """A type that this release does not know (a newer one may have added it)."""

    remedy = "dropped; harmless while releases are mixed"


class BadSignature(RemoteProtocolError):
    """Not signed by a key that we accept."""

    remedy = "dropped; give both sides the same keyring, or set signing to warn while keys change"
