# SPDX-License-Identifier: Apache-2.0
"""Ed25519 (RFC 8032) for broadcasts to agents; ``host_keys.py`` imports it where it is used.

``cryptography`` takes 6.5 MB, which agents without host keys can save.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


@lru_cache(maxsize=16)
def private_key(seed: bytes) -> Ed25519PrivateKey:
    """The private key of a seed of 32 bytes."""
    return Ed25519PrivateKey.from_private_bytes(seed)


def sign(seed: bytes, data: bytes) -> bytes:
    """The signature, 64 bytes, with the private key of ``seed``."""
    return private_key(seed).sign(data)


def public_of(seed: bytes) -> bytes:
    """The public key of ``seed``, 32 bytes."""
    return private_key(seed).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def is_valid(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the signature of ``data`` is of the private key of ``public``."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
