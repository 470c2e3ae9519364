# SPDX-License-Identifier: Apache-2.0
"""Signed messages: an envelope around the body, which is verified before the body is decoded.

The first protection are RabbitMQ's users and permissions.  If a site trusts its computes less than that, both sides
share a keyring.  It protects against programs that have no key, and not against a compute that has it; for that, use
``host_keys.py``.  The primary key signs, and all keys are accepted, so keys can be changed step by step: add the new
key everywhere, make it primary everywhere, remove the old one.

=======  =============  ========================================================
mode     sends          accepts
=======  =============  ========================================================
off      plain bodies   everything; signatures are not checked
warn     signed bodies  everything; bodies without a valid signature are counted
enforce  signed bodies  only bodies with a valid signature
=======  =============  ========================================================

To enable signing, change all programs from off to warn, and then to enforce.  A nonce against replays is not needed,
because the signed bytes contain epoch and sequence, and claims have ids.

Envelope: 0xC1 (a byte that msgpack never uses), the envelope version, the length of the key id, the
key id, 32 bytes of HMAC-SHA256 over all of the envelope except these 32 bytes, the body.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.errors import BadSignature, KeyringError

MAGIC = 0xC1
ENVELOPE_VERSION = 1
CODE_BYTES = 32
#: magic, version, length of the key id
PREFIX_BYTES = 3


class Signing(StrEnum):
    """The modes, described in the docstring of this module."""

    OFF = "off"
    WARN = "warn"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class Keyring:
    """The secrets by key id, and the primary key.  ``repr`` never shows secrets."""

    primary: str
    _secrets: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"Keyring(primary={self.primary!r}, keys={sorted(self._secrets)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """The key ids, the primary one first."""
        return tuple(self._secrets)

    def secret(self, key_id: str) -> bytes | None:
        """The secret of a key; None if the key is not accepted."""
        return self._secrets.get(key_id)


def parse_keyring(text: str) -> Keyring:
    """Lines of ``key-id:hex-secret``, the primary first; empty lines and # comments are skipped.

    :raises KeyringError: when a line is not valid; the text never contains a secret
    """
    secrets: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if entry and not entry.startswith("#"):
            key_id, secret = _parse_key(entry, f"keyring line {number}")
            if key_id in secrets:
                raise KeyringError(f"key {key_id!r} is listed twice", f"keyring line {number}")
            secrets[key_id] = secret
    if not 1 <= len(secrets) <= limits.KEYS_MAX:
        raise KeyringError(f"{len(secrets)} keys, 1 to {limits.KEYS_MAX} are needed", "keyring")
    return Keyring(next(iter(secrets)), MappingProxyType(secrets))


def _parse_key(entry: str, where: str) -> tuple[str, bytes]:
    key_id, _, digits = entry.partition(":")
    if not 1 <= len(key_id) <= limits.KEY_ID_MAX_CHARS or not key_id.isascii():
        raise KeyringError(f"a key id has 1 to {limits.KEY_ID_MAX_CHARS} ASCII characters", where)
    try:
        secret = bytes.fromhex(digits)
    except ValueError:
        raise KeyringError("the secret is not hexadecimal", where) from None
    if not limits.SECRET_MIN_BYTES <= len(secret) <= limits.SECRET_MAX_BYTES:
        bounds = f"{limits.SECRET_MIN_BYTES} to {limits.SECRET_MAX_BYTES}"
        raise KeyringError(f"a secret of {len(secret)} bytes, {bounds} are needed", where)
    return key_id, secret


class Signer:
    """Puts bodies into envelopes, and verifies and removes envelopes."""

    def __init__(self, mode: Signing = Signing.OFF, keyring: Keyring | None = None) -> None:
        if mode is not Signing.OFF and keyring is None:
            raise KeyringError(f"signing is {mode}, but there are no keys")
        self.mode = mode
        self._keyring = keyring
        #: bodies that were accepted without a valid signature (mode warn)
        self.tolerated = 0
        #: bodies that were refused
        self.refused = 0

    def replace(self, mode: Signing, keyring: Keyring | None) -> None:
        """Replace the mode and the keys; the counters stay.

        :raises KeyringError: when the mode needs keys and there are none
        """
        if mode is not Signing.OFF and keyring is None:
            raise KeyringError(f"signing is {mode}, but there are no keys")
        self.mode, self._keyring = mode, keyring

    def seal(self, body: bytes) -> bytes:
        """The bytes to send for this body."""
        if self.mode is Signing.OFF or self._keyring is None:
            return body
        key_id = self._keyring.primary
        prefix = bytes((MAGIC, ENVELOPE_VERSION, len(key_id))) + key_id.encode()
        secret = self._keyring.secret(key_id)
        assert secret is not None, "the primary key is in the keyring"
        return prefix + hmac.digest(secret, prefix + body, "sha256") + body

    @staticmethod
    def body_of(data: bytes) -> bytes:
        """The body of bytes whose sender is verified already (host keys): an envelope is removed, not verified."""
        return Signer()._judge(data)[0]

    def open(self, data: bytes) -> bytes:
        """The body of received bytes.

        :raises BadSignature: when the signature is not valid, in mode enforce
        """
        body, problem = self._judge(data)
        if not problem or self.mode is Signing.OFF:
            return body
        if self.mode is Signing.ENFORCE:
            self.refused += 1
            raise BadSignature(problem)
        self.tolerated += 1
        return body

    def _judge(self, data: bytes) -> tuple[bytes, str]:
        """The body, and the error of its signature (empty if it is valid)."""
        if not data or data[0] != MAGIC:
            return data, "not signed"
        if len(data) > limits.BODY_MAX_BYTES + PREFIX_BYTES + limits.KEY_ID_MAX_CHARS + CODE_BYTES:
            return data, "too large for a message of this protocol"
        if len(data) < PREFIX_BYTES or data[1] != ENVELOPE_VERSION:
            return data, "an envelope of another version"
        code_at = PREFIX_BYTES + data[2]
        body = data[code_at + CODE_BYTES :]
        if self.mode is Signing.OFF:
            return body, ""
        key_id = data[PREFIX_BYTES:code_at].decode("ascii", "replace")
        secret = self._keyring.secret(key_id) if self._keyring is not None else None
        if secret is None:
            return (
                body,
                f"signed with key {key_id[: limits.KEY_ID_MAX_CHARS]!r}, which is not accepted",
            )
        code = hmac.digest(secret, data[:code_at] + body, "sha256")
        if not hmac.compare_digest(code, data[code_at : code_at + CODE_BYTES]):
            return body, f"the signature with key {key_id!r} is wrong"
        return body, ""
