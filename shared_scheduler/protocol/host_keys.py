# SPDX-License-Identifier: Apache-2.0
"""Host keys: who has sent a message.

Only schedulers have the *master*.  Each host has a secret that is derived from it, so a scheduler can verify every
agent without a directory of keys, and a host that is compromised can speak for itself only.  Broadcasts to agents
cannot be protected by a secret that agents share, because each of them could then forge them; they carry an Ed25519
signature, whose private key is derived from the master as well.

==========  ============================  ====================================  ==========================
kind        from, to                      key                                   who can create it
==========  ============================  ====================================  ==========================
AGENT       agent, schedulers             HMAC-SHA256(master, "agent", host)    this host, schedulers
TO_AGENT    scheduler, one agent          the same; the kind is authenticated   schedulers, this host for itself
SCHEDULERS  scheduler, other schedulers   HMAC-SHA256(master, "schedulers")     schedulers
BROADCAST   scheduler, all agents         Ed25519, seed derived from master     schedulers
==========  ============================  ====================================  ==========================

Ed25519 for all messages would cost a scheduler about 100 us for each of the thousands of increments per second that it
verifies; HMAC costs a few.  A broadcast to agents is sent when a scheduler connects.

Replays: the windows refuse epochs and sequences of the past, and claims have ids.  A Hello has neither, so SCHEDULERS
and BROADCAST contain the time of sending; one that is older than ``STAMP_AGE_MAX_MS``, or was received before, is
refused.  If clocks differ more than that, an agent does not answer a Hello, and its next heartbeat does.

=======  =======================  =======================================================================
mode     sends                    accepts
=======  =======================  =======================================================================
off      no envelopes             everything that ``signing`` accepts; envelopes are removed, not verified
accept   envelopes                the same; the sender is known if its envelope is valid
require  envelopes                only valid envelopes, from senders that may send this message
=======  =======================  =======================================================================

The envelope contains what ``signing`` makes of the body, so each program is changed from off to accept to require
alone, while others have not been changed yet.

Envelope: 0xC1, the version, the kind, the lengths of key id and host, key id, host, the time of sending in milliseconds
(8 bytes, 0 for AGENT and TO_AGENT), the code of all other bytes (HMAC: 32 bytes, Ed25519: 64 bytes), the content.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from cachetools import FIFOCache

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.memo import Memo
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Release,
    Resync,
    Role,
    Snapshot,
    Verdict,
    agent_address,
)
from shared_scheduler.protocol.signing import MAGIC, PREFIX_BYTES, Keyring

VERSION = 2
HMAC_BYTES, SIGNATURE_BYTES, PUBLIC_KEY_BYTES = 32, 64, 32
#: magic, version, kind, length of the key id, length of the host
_HEAD = struct.Struct(">BBBBB")
_STAMP = struct.Struct(">Q")
#: a body in an envelope of ``signing``
CONTENT_MAX_BYTES = limits.BODY_MAX_BYTES + PREFIX_BYTES + limits.KEY_ID_MAX_CHARS + HMAC_BYTES
#: how much the time of sending may differ from the receiver's clock
STAMP_AGE_MAX_MS = 300_000
#: Broadcasts and Hellos of schedulers that are remembered; 256 schedulers send this many in 40 minutes.
STAMPED_MAX = 65_536
#: Secrets of hosts that a scheduler stores, so that it derives each once.
DERIVED_MAX = 16_384
_LABEL = b"shared-scheduler 1 "
AGENT_REMEDY = "create the file with 'shared-scheduler-manage keys derive'"


class HostKeysMode(StrEnum):
    """The modes, described in the docstring of this module."""

    OFF = "off"
    ACCEPT = "accept"
    REQUIRE = "require"


class Kind(IntEnum):
    """The kinds of envelopes."""

    AGENT = 1
    TO_AGENT = 2
    SCHEDULERS = 3
    BROADCAST = 4


STAMPED = (Kind.SCHEDULERS, Kind.BROADCAST)


@dataclass(frozen=True, slots=True)
class VerifiedSender:
    """A sender whose envelope is valid; ``host`` is empty for a scheduler."""

    role: Role
    host: str = ""

    def __str__(self) -> str:
        return f"host {self.host}" if self.role is Role.AGENT else "a scheduler"


SCHEDULER = VerifiedSender(Role.SCHEDULER)


def agent_secret(master: bytes, host: str) -> bytes:
    """The secret of a host, 32 bytes."""
    return _derive(master, b"agent", host.encode())


def _derive(master: bytes, purpose: bytes, about: bytes = b"") -> bytes:
    return hmac.digest(master, _LABEL + purpose + b"\0" + about, "sha256")


def public_key(master: bytes) -> bytes:
    """The public key that verifies broadcasts to agents, 32 bytes."""
    from shared_scheduler.protocol import broadcast_signature

    return broadcast_signature.public_of(_derive(master, b"broadcast"))


@dataclass(frozen=True, slots=True)
class AgentKey:
    """One generation of the keys of a host: its secret, and the public key of the schedulers."""

    secret: bytes
    public: bytes


@dataclass(frozen=True, slots=True)
class AgentKeys:
    """The keys of one host by key id, and the primary one.  ``repr`` never shows secrets."""

    host: str
    primary: str
    _keys: Mapping[str, AgentKey]

    def __repr__(self) -> str:
        return f"AgentKeys(host={self.host!r}, primary={self.primary!r}, keys={sorted(self._keys)})"

    def seal(self, kind: Kind, host: str, content: bytes, stamp_ms: int) -> bytes:
        """The envelope of a message to schedulers, whatever was asked for."""
        head = _head_of(Kind.AGENT, self.primary, self.host, 0)
        return head + hmac.digest(self._keys[self.primary].secret, head + content, "sha256") + content

    def verify(self, envelope: Envelope) -> str:
        """What is wrong with an envelope; empty if it is from a scheduler and for this host."""
        key = self._keys.get(envelope.key_id)
        if key is None:
            return f"host key {envelope.key_id!r} is not accepted"
        if envelope.kind is Kind.BROADCAST:
            return _verify_signature(key.public, envelope)
        if envelope.kind is not Kind.TO_AGENT or envelope.host != self.host:
            return f"an envelope of kind {envelope.kind.name}, host {envelope.host!r}, is not for this agent"
        return _verify_code(key.secret, envelope)


class MasterKeys:
    """The masters by key id, and the primary one.  ``repr`` never shows secrets.

    All threads of a scheduler share it, and anybody may name any number of hosts: secrets are kept in a plain
    dictionary, and those of senders only after a code was right.
    """

    def __init__(self, masters: Keyring) -> None:
        self._masters = masters
        self.primary = masters.primary
        self._derived: Memo[tuple[str, str], bytes] = Memo(DERIVED_MAX)

    def __repr__(self) -> str:
        return f"MasterKeys({self._masters!r})"

    @property
    def remembered(self) -> int:
        """The number of hosts whose secrets are kept."""
        return len(self._derived)

    def _master(self, key_id: str) -> bytes:
        found = self._masters.secret(key_id)
        assert found is not None, "the caller has tested the key id"
        return found

    def seal(self, kind: Kind, host: str, content: bytes, stamp_ms: int) -> bytes:
        """The envelope of a message to an agent, to all agents, or to other schedulers."""
        head = _head_of(kind, self.primary, host, stamp_ms)
        if kind is Kind.BROADCAST:
            from shared_scheduler.protocol import broadcast_signature

            seed = _derive(self._master(self.primary), b"broadcast")
            return head + broadcast_signature.sign(seed, head + content) + content
        secret = self._secret(self.primary, kind, host)
        self._remember(self.primary, kind, host, secret)
        return head + hmac.digest(secret, head + content, "sha256") + content

    def verify(self, envelope: Envelope) -> str:
        """What is wrong with an envelope; empty if it is from an agent or another scheduler."""
        master = self._masters.secret(envelope.key_id)
        if master is None:
            return f"host key {envelope.key_id!r} is not accepted"
        if envelope.kind is Kind.BROADCAST:
            return _verify_signature(public_key(master), envelope)
        if envelope.kind is Kind.TO_AGENT:
            return "an envelope for an agent is not for a scheduler"
        secret = self._secret(envelope.key_id, envelope.kind, envelope.host)
        problem = _verify_code(secret, envelope)
        if not problem:
            self._remember(envelope.key_id, envelope.kind, envelope.host, secret)
        return problem

    def _secret(self, key_id: str, kind: Kind, host: str) -> bytes:
        if kind is Kind.SCHEDULERS:
            return _derive(self._master(key_id), b"schedulers")
        return self._derived.get((key_id, host)) or agent_secret(self._master(key_id), host)

    def _remember(self, key_id: str, kind: Kind, host: str, secret: bytes) -> None:
        if kind is not Kind.SCHEDULERS and (key_id, host) not in self._derived:
            self._derived.learn((key_id, host), secret)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A parsed envelope.  ``head`` and ``content`` are the authenticated bytes."""

    kind: Kind
    key_id: str
    host: str
    stamp_ms: int
    head: bytes
    code: bytes
    content: bytes


def _head_of(kind: Kind, key_id: str, host: str, stamp_ms: int) -> bytes:
    id_bytes, host_bytes = key_id.encode(), host.encode()
    lengths = _HEAD.pack(MAGIC, VERSION, kind, len(id_bytes), len(host_bytes))
    return lengths + id_bytes + host_bytes + _STAMP.pack(stamp_ms)


def is_envelope(data: bytes) -> bool:
    """Whether these bytes begin as an envelope of host keys."""
    return len(data) >= _HEAD.size and data[0] == MAGIC and data[1] == VERSION


def parse(data: bytes) -> Envelope | None:
    """The parts of an envelope; None if it is malformed."""
    _, _, kind, id_length, host_length = _HEAD.unpack_from(data)
    if kind not in Kind.__members__.values() or id_length > limits.KEY_ID_MAX_CHARS:
        return None
    code_at = _HEAD.size + id_length + host_length + _STAMP.size
    content_at = code_at + (SIGNATURE_BYTES if kind == Kind.BROADCAST else HMAC_BYTES)
    if len(data) < content_at or len(data) - content_at > CONTENT_MAX_BYTES:
        return None
    host_at = _HEAD.size + id_length
    try:
        key_id, host = data[_HEAD.size : host_at].decode("ascii"), data[host_at : host_at + host_length].decode()
    except UnicodeDecodeError:
        return None
    (stamp_ms,) = _STAMP.unpack_from(data, code_at - _STAMP.size)
    return Envelope(Kind(kind), key_id, host, stamp_ms, data[:code_at], data[code_at:content_at], data[content_at:])


def _verify_code(secret: bytes, envelope: Envelope) -> str:
    code = hmac.digest(secret, envelope.head + envelope.content, "sha256")
    if hmac.compare_digest(code, envelope.code):
        return ""
    return f"the code with host key {envelope.key_id!r}, host {envelope.host!r}, is wrong"


def _verify_signature(public: bytes, envelope: Envelope) -> str:
    from shared_scheduler.protocol import broadcast_signature

    if broadcast_signature.is_valid(public, envelope.code, envelope.head + envelope.content):
        return ""
    return f"the signature with host key {envelope.key_id!r} is wrong"


class HostKeys:
    """Puts what is sent into envelopes, and finds the senders of what is received.

    ``now_ms``: the time of day, for ``STAMP_AGE_MAX_MS``.  ``lock``: of what was received, for several threads.
    """

    def __init__(
        self,
        mode: HostKeysMode = HostKeysMode.OFF,
        keys: AgentKeys | MasterKeys | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.replace(mode, keys)
        self._now_ms = now_ms
        self._received: FIFOCache[bytes, None] = FIFOCache(STAMPED_MAX)
        self._lock = lock or nullcontext()

    def replace(self, mode: HostKeysMode, keys: AgentKeys | MasterKeys | None) -> None:
        """Replace the mode and the keys.

        :raises KeyringError: when the mode needs keys and there are none
        """
        if mode is not HostKeysMode.OFF and keys is None:
            raise KeyringError(f"host_keys is {mode}, but there are no keys")
        self.mode, self._keys = mode, keys

    @property
    def key_id(self) -> str:
        """The id of the key that is used for sending; empty without keys."""
        return "" if self._keys is None else self._keys.primary

    def seal(self, kind: Kind, content: bytes, host: str = "") -> bytes:
        """The bytes to send; ``host`` is the receiver of ``TO_AGENT``.  An agent always sends as ``AGENT``."""
        if self.mode is HostKeysMode.OFF or self._keys is None:
            return content
        return self._keys.seal(kind, host, content, self._now_ms() if kind in STAMPED else 0)

    def open(self, data: bytes) -> tuple[bytes, VerifiedSender | None, str]:
        """The content, the sender if it is known, and why it is not known."""
        if not is_envelope(data):
            return data, None, "no host key"
        envelope = parse(data)
        if envelope is None:
            return data, None, "a malformed envelope of host keys"
        if self.mode is HostKeysMode.OFF or self._keys is None:
            return envelope.content, None, "host_keys is off"
        problem = self._keys.verify(envelope) or self._replayed(envelope)
        if problem:
            return envelope.content, None, problem
        sender = VerifiedSender(Role.AGENT, envelope.host) if envelope.kind is Kind.AGENT else SCHEDULER
        return envelope.content, sender, ""

    def _replayed(self, envelope: Envelope) -> str:
        if envelope.kind not in STAMPED:
            return ""
        if abs(self._now_ms() - envelope.stamp_ms) > STAMP_AGE_MAX_MS:
            return "it was sent at another time: a replay, or the clocks of the hosts differ by minutes"
        mark = hashlib.sha256(envelope.head + envelope.content).digest()
        with self._lock:
            if mark in self._received:
                return "it was received before: a replay"
            self._received[mark] = None
        return ""


def may_send(sender: VerifiedSender, message: Message) -> bool:
    """Whether this sender may send this message, as far as the message itself shows it.

    The host of a node is not in every message; ``transport/channel.py`` checks it.
    """
    match message:
        case Hello(role=Role.AGENT):
            return sender.role is Role.AGENT and (message.host, message.sender) == (
                sender.host,
                agent_address(sender.host),
            )
        case Snapshot() | Heartbeat():
            return sender.role is Role.AGENT and message.host == sender.host
        case Increment() | Leave() | Verdict() | BuildResult():
            return sender.role is Role.AGENT
        case Hello() | Claim() | Release() | Resync():
            return sender.role is Role.SCHEDULER


def parse_agent_keys(text: str, host: str) -> AgentKeys:
    """Lines of ``key-id secret public-key host``, the primary first; empty lines and # comments are skipped.

    :raises KeyringError: when a line is not valid or is for another host; the text never contains a secret
    """
    keys: dict[str, AgentKey] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if entry and not entry.startswith("#"):
            key_id, key = _parse_line(entry, host, f"line {number}")
            if key_id in keys:
                raise KeyringError(f"key {key_id!r} is listed twice", f"line {number}", AGENT_REMEDY)
            keys[key_id] = key
    if not 1 <= len(keys) <= limits.KEYS_MAX:
        raise KeyringError(f"{len(keys)} keys, 1 to {limits.KEYS_MAX} are needed", "host keys", AGENT_REMEDY)
    return AgentKeys(host, next(iter(keys)), MappingProxyType(keys))


def _parse_line(entry: str, host: str, where: str) -> tuple[str, AgentKey]:
    parts = entry.split(None, 3)
    if len(parts) != 4 or len(parts[0]) > limits.KEY_ID_MAX_CHARS:
        raise KeyringError("not of the form 'key-id secret public-key host'", where, AGENT_REMEDY)
    if parts[3] != host:
        raise KeyringError(f"the key of host {parts[3]!r}, but this is host {host!r}", where, AGENT_REMEDY)
    try:
        secret, public = bytes.fromhex(parts[1]), bytes.fromhex(parts[2])
    except ValueError:
        raise KeyringError("secret and public key are not hexadecimal", where, AGENT_REMEDY) from None
    if len(secret) != HMAC_BYTES or len(public) != PUBLIC_KEY_BYTES:
        raise KeyringError("secret and public key need 32 bytes each", where, AGENT_REMEDY)
    return parts[0], AgentKey(secret, public)


def agent_line(key_id: str, master: bytes, host: str) -> str:
    """The line of a host's key file for one master."""
    return f"{key_id} {agent_secret(master, host).hex()} {public_key(master).hex()} {host}"
