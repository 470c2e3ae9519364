# SPDX-License-Identifier: Apache-2.0
"""Errors of messages.  The text of each error names the mistake, its place and the remedy, in one line.

``LocalProtocolError`` is a mistake of this program (a message that must not be sent).  ``RemoteProtocolError`` is a
mistake of the sender: drop the message, count it, and log it once per sender and interval.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """A message that must not be sent or must not be used."""

    #: The remedy for an operator, unless the error itself names one.
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
    """This program would have broken the protocol."""


class UnsendableMessage(LocalProtocolError):
    """A message or leaf that no receiver would accept."""

    remedy = "it was not sent; this is a bug of the sender, or a limit of protocol/limits.py"


class MisroutedMessage(LocalProtocolError):
    """A message was handed to the window of another node."""

    remedy = "route messages by their node"


class KeyringError(LocalProtocolError):
    """The keys for signing cannot be used."""

    remedy = "write one 'key-id:hex-secret' per line, the primary key first"


class RemoteProtocolError(ProtocolError):
    """The sender broke the protocol; nothing of the message has been used."""

    remedy = "dropped; check the release of the sender, and who else can write to the message queue"


class MalformedMessage(RemoteProtocolError):
    """The body is not msgpack, or does not have the layout of its type."""


class MessageTooLarge(RemoteProtocolError):
    """The body exceeds the limit of its type."""


class UnknownVersion(RemoteProtocolError):
    """The message has another major version of the protocol."""

    remedy = "dropped; run releases with the same protocol version in one cell"


class UnknownMessageType(RemoteProtocolError):
    """This release does not know the type (a newer one may have added it)."""

    remedy = "dropped; harmless while releases are mixed"


class BadSignature(RemoteProtocolError):
    """The message is not signed with an accepted key."""

    remedy = "dropped; give both sides the same keyring, or set signing to warn while keys change"


class UnknownSender(RemoteProtocolError):
    """The message has no valid envelope of host keys, and ``host_keys`` is require."""

    remedy = "dropped; give the sender the host keys, or set host_keys to accept while keys change"


class KnownSenderError(RemoteProtocolError):
    """The envelope is valid, and its message is not used.  ``sender`` is for people."""

    def __init__(self, what: str, sender: str) -> None:
        self.sender = sender
        super().__init__(what)


class WrongSender(KnownSenderError):
    """The sender may not send this message."""

    remedy = "dropped; examine that host: it is compromised, or has the keys or the node uuid of another host"


class SenderTooFast(KnownSenderError):
    """The host has sent more than schedulers accept of one host."""

    remedy = "dropped; examine that host: it is compromised, or its agent repeats what it sends"
