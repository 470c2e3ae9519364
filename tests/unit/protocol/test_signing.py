# SPDX-License-Identifier: Apache-2.0
"""Signatures: envelopes, keyrings, and a change of keys without a simultaneous restart."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.errors import BadSignature, KeyringError
from shared_scheduler.protocol.signing import CODE_BYTES, Signer, Signing, parse_keyring
from tests.unit.protocol.samples import MESSAGES

OLD = "old:" + "11" * 32
NEW = "new:" + "22" * 32
BODY = encode(MESSAGES[2])


def signer(mode: Signing, *keys: str) -> Signer:
    return Signer(mode, parse_keyring("\n".join(keys)))


def test_a_signed_message_is_accepted() -> None:
    ours = signer(Signing.ENFORCE, NEW)
    assert ours.seal(BODY) != BODY
    assert ours.open(ours.seal(BODY)) == BODY
    assert (ours.refused, ours.tolerated) == (0, 0)


@pytest.mark.parametrize(
    ("forged", "complaint"),
    [
        (BODY, "not signed"),
        (b"", "not signed"),
        (
            signer(Signing.ENFORCE, "new:" + "33" * 32).seal(BODY),
            "signature with key 'new' is wrong",
        ),
        (signer(Signing.ENFORCE, OLD).seal(BODY), "key 'old', which is not accepted"),
        (signer(Signing.ENFORCE, NEW).seal(BODY)[:-1], "is wrong"),
        (signer(Signing.ENFORCE, NEW).seal(BODY)[:10], "is wrong"),
        (b"\xc1\x02\x03new" + b"\x00" * 40, "another version"),
        (b"\xc1", "another version"),
        (b"\xc1\x01", "another version"),
        (b"\xc1" + b"\x00" * (limits.BODY_MAX_BYTES + 100), "too large"),
    ],
    ids=lambda value: value[:16].hex() if isinstance(value, bytes) else value,
)
def test_a_message_without_a_valid_signature_is_refused_with_the_reason(forged: bytes, complaint: str) -> None:
    ours = signer(Signing.ENFORCE, NEW)
    with pytest.raises(BadSignature, match=complaint):
        ours.open(forged)
    assert ours.refused == 1


@given(st.integers(0, len(signer(Signing.ENFORCE, NEW).seal(BODY)) - 1), st.integers(1, 255))
def test_no_byte_can_be_changed(at: int, change: int) -> None:
    ours = signer(Signing.ENFORCE, NEW)
    sealed = bytearray(ours.seal(BODY))
    sealed[at] ^= change
    with pytest.raises(BadSignature):
        ours.open(bytes(sealed))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(BadSignature):
        signer(Signing.ENFORCE, NEW).open(b"\xc1" + data)


def test_a_fleet_moves_from_off_to_enforce_without_losing_a_message() -> None:
    # given: every pair of neighbouring steps of a rollout, each side ahead of the other once
    steps = [
        Signer(Signing.OFF),
        signer(Signing.WARN, OLD),
        signer(Signing.ENFORCE, OLD),
        signer(Signing.ENFORCE, OLD, NEW),
        signer(Signing.ENFORCE, NEW, OLD),
        signer(Signing.ENFORCE, NEW),
    ]
    # then: they understand each other
    for one, two in itertools.pairwise(steps):
        assert one.open(two.seal(BODY)) == BODY
        assert two.open(one.seal(BODY)) == BODY


def test_warn_accepts_and_counts_messages_that_enforce_refuses() -> None:
    ours = signer(Signing.WARN, NEW)
    assert ours.open(BODY) == BODY
    assert ours.open(signer(Signing.WARN, OLD).seal(BODY)) == BODY
    assert ours.tolerated == 2


def test_keys_can_be_replaced_while_running() -> None:
    ours = signer(Signing.ENFORCE, OLD)
    with pytest.raises(BadSignature):
        ours.open(signer(Signing.ENFORCE, NEW).seal(BODY))
    ours.replace(Signing.ENFORCE, parse_keyring(f"{NEW}\n{OLD}"))
    assert ours.open(signer(Signing.ENFORCE, NEW).seal(BODY)) == BODY
    assert ours.refused == 1


def test_a_keyring_is_text_and_its_secrets_never_show() -> None:
    ring = parse_keyring(f"# keys of cell 1\n\n{NEW}\n  {OLD}\n")
    assert ring.primary == "new"
    assert ring.secret("old") == b"\x11" * CODE_BYTES and ring.secret("other") is None
    assert repr(ring) == "Keyring(primary='new', keys=['new', 'old'])"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "0 keys, 1 to 16 are needed"),
        ("\n".join(f"k{n}:" + "11" * 32 for n in range(17)), "17 keys"),
        ("new", "a secret of 0 bytes"),
        ("new:xyz", "line 1: the secret is not hexadecimal"),
        ("new:1122", "a secret of 2 bytes"),
        (":" + "11" * 32, "a key id has"),
        ("k" * 33 + ":" + "11" * 32, "a key id has"),
        (f"{NEW}\n{NEW}", "line 2: key 'new' is listed twice"),
    ],
)
def test_an_unusable_keyring_is_reported_with_place_and_reason(text: str, complaint: str) -> None:
    with pytest.raises(KeyringError, match=complaint) as error:
        parse_keyring(text)
    assert "1122" not in str(error.value)
    assert "write one 'key-id:hex-secret' per line" in str(error.value)


@pytest.mark.parametrize("mode", [Signing.WARN, Signing.ENFORCE])
def test_signing_without_keys_is_refused_at_the_start(mode: Signing) -> None:
    with pytest.raises(KeyringError, match="there are no keys"):
        Signer(mode)
    with pytest.raises(KeyringError, match="there are no keys"):
        Signer(Signing.OFF).replace(mode, None)
