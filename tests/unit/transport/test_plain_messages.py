# SPDX-License-Identifier: Apache-2.0
"""Of the frames of a message, its body and two texts are read, whatever else its sender has written."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack
from typing import Any

import amqp
import pytest
from amqp.serialization import decode_properties_basic, dumps, loads
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.transport.plain_messages import DELIVER, KEPT, SIZES_BYTES, plain_delivery, plain_header

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
#: names and values of all properties
ALL: Mapping[str, st.SearchStrategy[Any]] = {
    "content_type": TEXT, "content_encoding": TEXT, "application_headers": st.dictionaries(TEXT, TEXT),
    "delivery_mode": st.integers(0, 255), "priority": st.integers(0, 255), "correlation_id": TEXT, "reply_to": TEXT,
    "expiration": TEXT, "message_id": TEXT, "timestamp": st.integers(0, 2**64 - 1), "type": TEXT, "user_id": TEXT,
    "app_id": TEXT, "cluster_id": TEXT,
}  # fmt: skip
BEFORE = bytes(range(SIZES_BYTES))


def test_all_properties_of_amqp_are_tried() -> None:
    assert [*ALL] == [name for name, _ in amqp.Message.PROPERTIES]


@given(st.fixed_dictionaries({}, optional=dict(ALL)))
def test_two_texts_are_left(properties: dict[str, Any]) -> None:
    header = plain_header(BEFORE + amqp.Message(**properties)._serialize_properties())

    left, end = decode_properties_basic(header, SIZES_BYTES)
    assert left == {name: text for name, text in properties.items() if name in ("message_id", "app_id")}
    assert (header[:SIZES_BYTES], len(header)) == (BEFORE, end)


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80"], ids=["no UTF-8", "a surrogate"])
def test_a_text_that_cannot_be_read_is_left_out(text: bytes) -> None:
    odd, last = pack(">B", len(text)) + text, b"\x04last"

    header = plain_header(BEFORE + pack(">H", KEPT) + odd + last)

    assert decode_properties_basic(header, SIZES_BYTES)[0] == {"app_id": "last"}


def test_a_delivery_has_no_text_of_its_sender() -> None:
    before = DELIVER + dumps("sLb", ["consumer-1", 2**40, True])

    values, _ = loads("sLbss", plain_delivery(before + dumps("s", ["exchange"]) + b"\x02\xff\xfe"), len(DELIVER))

    assert values == ["consumer-1", 2**40, True, "", ""]
