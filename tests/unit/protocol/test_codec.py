# SPDX-License-Identifier: Apache-2.0
"""Encoded messages are decoded, and other bodies are rejected."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_scheduler.protocol import codec, limits
from shared_scheduler.protocol.codec import HEADER_FIELDS, LAYOUTS, VERSION, decode, encode
from shared_scheduler.protocol.digest import consumer_hash
from shared_scheduler.protocol.errors import (
    MalformedMessage,
    MessageTooLarge,
    RemoteProtocolError,
    UnknownMessageType,
    UnknownVersion,
    UnsendableMessage,
)
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    ClaimGroup,
    Consumer,
    GroupPolicy,
    Heartbeat,
    Hello,
    Increment,
    Message,
    Role,
    Snapshot,
    Usage,
    Verdict,
)
from tests.support.examples import examples
from tests.unit.protocol.samples import (
    ALLOCATIONS,
    CLAIM,
    EPOCH,
    INCREMENT,
    MESSAGES,
    NODE,
    OTHER_NODE,
    SCHEDULER,
    SERVER,
)


def row_of(message: Message) -> list[Any]:
    return list(msgpack.unpackb(encode(message), strict_map_key=False))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# --- there and back ----------------------------------------------------------------------------


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_each_message_survives_the_codec(message: Message) -> None:
    assert decode(encode(message)) == message


def test_there_is_a_layout_and_a_sample_of_every_message() -> None:
    kinds = set(Message.__args__)
    assert {layout.message for layout in LAYOUTS.values()} == kinds
    assert {type(sample) for sample in MESSAGES} == kinds


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda entry: entry.message.__name__)
def test_positions_on_the_wire_are_the_fields_of_the_dataclass(layout: Any) -> None:
    names = [field.name for field in dataclasses.fields(layout.message)]
    assert [field.name for field in layout.fields] == names


leaf_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz.019", min_size=1, max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
ids = st.text("abcdef-0123456789", min_size=1, max_size=36)
consumers = st.builds(
    Consumer,
    st.dictionaries(ids, st.dictionaries(ids, st.integers(0, 2**31 - 1), max_size=2), max_size=2),
    st.booleans(),
    st.just("") | ids,
) | st.builds(Consumer, st.just({}), st.booleans(), st.just("") | ids, st.integers(1, 2**63 - 1), st.booleans())
increments = st.builds(
    Increment,
    ids,
    st.integers(1, 2**63 - 1),
    st.integers(1, 2**63 - 1),
    st.dictionaries(ids, leaf_values, max_size=4),
    st.dictionaries(ids, st.none() | consumers, max_size=3),
    st.dictionaries(ids, st.none() | ids, max_size=3),
)


@given(increments)
def test_any_increment_survives_the_codec(increment: Increment) -> None:
    assert decode(encode(increment)) == increment


# --- what we refuse to send --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "complaint"),
    [
        (math.nan, "not a finite number"),
        (math.inf, "not a finite number"),
        (2**63, "does not fit 64 bits"),
        (b"bytes", "cannot hold bytes"),
        ({1, 2}, "cannot hold set"),
        ({"size": object()}, "cannot hold object"),
        ("\ud800", "not Unicode"),
        ("x" * (limits.LEAF_TEXT_MAX_CHARS + 1), "characters, but at most"),
        (nested(limits.LEAF_DEPTH_MAX), "nested deeper"),
        ([0] * 4097, "4097 entries"),
        ({4: 1024}, "a text was expected, not int"),
    ],
)
def test_a_leaf_that_receivers_reject_is_not_sent(leaf: Any, complaint: str) -> None:
    with pytest.raises(UnsendableMessage, match=complaint) as error:
        encode(Increment(NODE, EPOCH, 1, {"cn.bad": leaf}))
    assert str(error.value).startswith("Increment.leaves: ")


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat("", EPOCH, 1, "compute-1", 0),
        Heartbeat("n" * 65, EPOCH, 1, "compute-1", 0),
        Heartbeat("tab\there", EPOCH, 1, "compute-1", 0),
        Heartbeat(NODE, 0, 1, "compute-1", 0),
        Heartbeat(NODE, EPOCH, -1, "compute-1", 0),
        Heartbeat(NODE, EPOCH, 1, "compute-1", 2**64),
        Heartbeat(NODE, True, 1, "compute-1", 0),
        Heartbeat(NODE, EPOCH, 1, "compute-1", 0, 0, (BuildResult(OTHER_NODE, EPOCH, SERVER, True),)),
        Heartbeat(NODE, EPOCH, 1, "compute-1", 0, 0, (BuildResult(NODE, EPOCH + 1, SERVER, True),)),
        Heartbeat(NODE, EPOCH, 1, "compute-1", 0, 0, (BuildResult(NODE, EPOCH, SERVER, True, "\n"),)),
        Heartbeat(
            NODE, EPOCH, 1, "c", 0, 0, (BuildResult(NODE, EPOCH, SERVER, True),) * (limits.HEARTBEAT_ENDS_MAX + 1)
        ),
        Increment(NODE, EPOCH, 0),
        Increment(NODE, EPOCH, 1, consumers={"c": Consumer({NODE: {"VCPU": -1}})}),
        Increment(NODE, EPOCH, 1, consumers={"c": Consumer({NODE: {"VCPU": 2**31}})}),
        Claim("c", NODE, SCHEDULER, "s", {}, Usage(vcpus=-1)),
        Verdict("c", NODE, EPOCH, True, news=(dataclasses.replace(INCREMENT, node=OTHER_NODE),)),
        Verdict("c", NODE, EPOCH, True, news=(INCREMENT,) * 65),
        Verdict("c", NODE, EPOCH, 1),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_a_field_out_of_range_is_not_sent(message: Message) -> None:
    with pytest.raises(UnsendableMessage):
        encode(message)


def test_other_objects_are_not_sent() -> None:
    with pytest.raises(UnsendableMessage, match="dict is not a message"):
        encode({"node": NODE})  # type: ignore[arg-type]


def test_a_body_over_the_limit_of_its_type_is_not_sent() -> None:
    texts = {f"cn.text{i}": "x" * limits.LEAF_TEXT_MAX_CHARS for i in range(5)}
    with pytest.raises(UnsendableMessage, match="bytes, but at most 65536 are allowed"):
        encode(Increment(NODE, EPOCH, 1, texts))


# --- what we refuse to believe -----------------------------------------------------------------


def test_another_major_version_is_refused_by_name() -> None:
    row = row_of(MESSAGES[0])
    row[0] = VERSION + 1
    with pytest.raises(UnknownVersion, match="protocol version 2, this release uses 1; dropped; run"):
        decode(msgpack.packb(row))


def test_a_type_of_the_future_is_refused_by_name() -> None:
    with pytest.raises(UnknownMessageType, match="message type 99"):
        decode(msgpack.packb([VERSION, 99, "whatever"]))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_fields_that_a_newer_release_appends_are_ignored(message: Message) -> None:
    row = [*row_of(message), "new", {"in": 1.1}]
    assert decode(msgpack.packb(row)) == message


def test_fields_that_a_newer_release_appends_inside_a_consumer_are_ignored() -> None:
    sent = {"c": Consumer({}, True, "", 1, True)}
    row = row_of(Increment(NODE, EPOCH, 1, consumers=sent))
    row[6]["c"] += ["new", 1]
    assert decode(msgpack.packb(row)).consumers == sent  # type: ignore[union-attr]


def test_not_even_a_newer_release_appends_without_end() -> None:
    row = row_of(MESSAGES[0]) + [0] * (limits.EXTRA_FIELDS_MAX + 1)
    with pytest.raises(MalformedMessage, match="25 fields, 7 to 24 fields were expected"):
        decode(msgpack.packb(row))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_with_a_field_missing_is_refused(message: Message) -> None:
    row = row_of(message)
    needed = HEADER_FIELDS + LAYOUTS[row[1]].required
    with pytest.raises(MalformedMessage, match="fields were expected"):
        decode(msgpack.packb(row[: needed - 1]))


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(NODE, EPOCH, 7, "compute-1", 5),
        Snapshot(NODE, EPOCH, 7, "compute-1", {}, {"c": Consumer({}, True)}, {}, 5),
        Claim(CLAIM, NODE, SCHEDULER, SERVER, ALLOCATIONS, Usage(2, 2048, 20, 1, 1)),
        Increment(NODE, EPOCH, 1, consumers={"c": Consumer({}, True)}),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_message_of_the_release_without_groups_is_understood(message: Message) -> None:
    row = row_of(message)
    needed = HEADER_FIELDS + LAYOUTS[row[1]].required
    assert decode(msgpack.packb(row[:needed])) == message


@pytest.mark.parametrize("fields", [2, 3])
def test_a_consumer_from_a_release_without_generations_has_no_generation(fields: int) -> None:
    row = row_of(Increment(NODE, EPOCH, 1, consumers={"c": Consumer(ALLOCATIONS, True, "group", 3, True)}))
    consumers = next(field for field in row if isinstance(field, dict) and "c" in field)
    consumers["c"] = consumers["c"][:fields]
    found = decode(msgpack.packb(row))
    assert isinstance(found, Increment)
    assert found.consumers == {"c": Consumer(ALLOCATIONS, True, "group" if fields == 3 else "")}


def test_a_consumer_without_a_generation_is_encoded_without_the_field() -> None:
    assert codec.write_consumer(Consumer({}, True)) == [{}, True]
    assert codec.write_consumer(Consumer({}, True, "group")) == [{}, True, "group"]
    assert codec.write_consumer(Consumer({}, True, "", 1)) == [{}, True, "", 1, False]


def test_no_allocations_are_the_whole_of_an_unknown_generation() -> None:
    """Found by the fuzzer: such a consumer was encoded without the flag, so it changed on its way."""
    found = codec.read_consumer([ALLOCATIONS, True, "group", 0, True])
    assert found == Consumer(ALLOCATIONS, True, "group")
    assert codec.read_consumer(codec.write_consumer(found)) == found


@pytest.mark.parametrize("group", [["g"], {"g": 1}, 7, "g" * (limits.ID_MAX_CHARS + 1)], ids=codec.kind_of)
def test_a_group_that_is_no_short_text_is_refused(group: Any) -> None:
    row = row_of(Increment(NODE, EPOCH, 1, consumers={"c": Consumer({}, True)}))
    row[6]["c"].append(group)
    with pytest.raises(MalformedMessage, match=r"Increment\.consumers: (a text was expected|65 characters)"):
        decode(msgpack.packb(row))


def test_a_repeated_text_is_the_same_plain_object_each_time() -> None:
    texts = codec.CheckedTexts(codec.text(20))
    first = texts[GroupPolicy.AFFINITY]
    assert type(first) is str and first == "affinity"
    assert texts["".join(["affi", "nity"])] is first


@pytest.mark.parametrize("value", ["", "x" * 21, "a\nb", 7, True, None, b"x"])
def test_a_text_that_is_not_valid_is_not_remembered(value: Any) -> None:
    texts = codec.CheckedTexts(codec.text(20))
    for _ in range(2):
        with pytest.raises(codec.FieldError):
            texts[value]
    assert not texts


def test_a_generation_is_not_part_of_the_digest() -> None:
    known = Consumer(ALLOCATIONS, True, "group", 3, True)
    assert consumer_hash(SERVER, known) == consumer_hash(SERVER, Consumer(ALLOCATIONS, True, "group"))


def test_a_claim_names_a_bounded_number_of_members() -> None:
    members = tuple(f"server-{n}" for n in range(limits.GROUP_MEMBERS_MAX + 1))
    most = ClaimGroup("group", GroupPolicy.ANTI_AFFINITY, 1, members[:-1], 0)
    bare = Claim(CLAIM, NODE, SCHEDULER, SERVER, ALLOCATIONS, Usage())
    assert decode(encode(replace(bare, group=most))) == replace(bare, group=most)
    with pytest.raises(UnsendableMessage, match="257 members, but at most 256 are allowed"):
        encode(replace(bare, group=replace(most, members=members)))


@pytest.mark.parametrize(
    ("position", "value", "complaint"),
    [
        (2, "", "Heartbeat.node: 0 characters"),
        (2, 7, "Heartbeat.node: a text was expected, not int"),
        (3, "1", "Heartbeat.epoch: an integer was expected, not str"),
        (3, True, "Heartbeat.epoch: an integer was expected, not bool"),
        (3, 0, "Heartbeat.epoch: 0 is not in 1"),
        (4, -1, "Heartbeat.sequence: -1 is not in 0"),
        (4, 1.0, "Heartbeat.sequence: an integer was expected, not float"),
        (5, None, "Heartbeat.host: a text was expected, not nothing"),
        (5, "h" * 256, "Heartbeat.host: 256 characters"),
        (6, -1, "Heartbeat.digest: -1 is not in"),
        (8, None, "Heartbeat.ends: a list of at most 16 was expected"),
        (8, [[NODE, EPOCH]], "Heartbeat.ends: a list of 7 entries was expected"),
        (8, [[OTHER_NODE, EPOCH, SERVER, True, "", "", 1]], "Heartbeat.ends: ends of builds of another node"),
    ],
)
def test_the_error_names_message_field_and_fault(position: int, value: Any, complaint: str) -> None:
    row = row_of(Heartbeat(NODE, EPOCH, 1, "compute-1", 5))
    row[position] = value
    with pytest.raises(MalformedMessage, match=complaint):
        decode(msgpack.packb(row))


@pytest.mark.parametrize(
    "leaves",
    [
        {"cn.x": math.nan},
        {"cn.x": b"bytes"},
        {"cn.x": 2**63},
        {"cn.x": nested(9)},
        {"cn.x": msgpack.Timestamp(1)},
        {"cn.x": msgpack.ExtType(4, b"code")},
        {1: 1},
        {b"cn.x": 1},
        {"": 1},
        {"cn.\n": 1},
        [["cn.x", 1]],
        None,
    ],
    ids=repr,
)
def test_invalid_leaves_are_refused(leaves: Any) -> None:
    body = msgpack.packb([VERSION, 2, NODE, EPOCH, 1, leaves, {}, {}])
    with pytest.raises(MalformedMessage):
        decode(body)


def test_a_verdict_is_valid_for_its_own_node_only() -> None:
    row = row_of(Verdict("c", NODE, EPOCH, True, news=(INCREMENT,)))
    row[8][0][0] = OTHER_NODE
    with pytest.raises(MalformedMessage, match="increments of another node"):
        decode(msgpack.packb(row))


@pytest.mark.parametrize("junk", [b"", b"\x91", b"\xc1\x01", b"{}", b"\xdc\x00", b"\x93\xcc\x01", b"\x92\x01\x04"])
def test_bodies_of_another_protocol_are_refused(junk: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(junk)


def test_bytes_behind_the_message_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="extra data"):
        decode(encode(MESSAGES[0]) + b"\x00")


# --- size is judged first ----------------------------------------------------------------------


def test_a_huge_body_is_refused_by_its_size_alone() -> None:
    with pytest.raises(MessageTooLarge, match="no message has more than"):
        decode(b"\xff" * (limits.BODY_MAX_BYTES + 1))


def test_each_type_has_its_own_limit() -> None:
    heartbeat = encode(Heartbeat(NODE, EPOCH, 1, "compute-1", 5))
    with pytest.raises(MessageTooLarge, match="Heartbeat: 4097 bytes, but at most 4096 are allowed"):
        decode(heartbeat + b"\x00" * (4097 - len(heartbeat)))


def test_a_length_that_the_body_does_not_have_allocates_nothing_of_that_size() -> None:
    # the leaves claim to be a map of 4 billion entries
    body = msgpack.packb([VERSION, 2, NODE, EPOCH, 1, {}, {}, {}]).replace(b"\x80", b"\xdf\xff\xff\xff\xff", 1)
    with pytest.raises(MalformedMessage, match="max_map_len"):
        decode(body)


def test_a_tower_of_lists_is_refused() -> None:
    head = msgpack.packb([VERSION, 2, NODE, EPOCH, 1, 0, {}, {}])[:-3]
    with pytest.raises(MalformedMessage):
        decode(head + b"\x91" * 60_000)


def test_the_largest_snapshot_that_is_allowed_can_be_sent() -> None:
    full = {
        f"{i:036}": Consumer({f"{NODE}": {"VCPU": 64, "MEMORY_MB": 131072, "DISK_GB": 1000}}, True)
        for i in range(limits.CONSUMERS_PER_NODE_MAX)
    }
    snapshot = Snapshot(NODE, EPOCH, 1, "compute-1", {"cn.vcpus": 4}, full, {}, 1)
    assert decode(encode(snapshot)) == snapshot


# --- fuzz --------------------------------------------------------------------------------------

bodies = st.sampled_from([encode(message) for message in MESSAGES])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    body = bytearray(draw(bodies))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(body) - 1)) if body else 0
        match draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip" if body:
                body[at] = draw(st.integers(0, 255))
            case "cut":
                del body[at : at + draw(st.integers(1, 9))]
            case "insert":
                body[at:at] = draw(st.binary(max_size=9))
            case "repeat":
                body[at:at] = body[at : at + 20] * draw(st.integers(1, 50))
    return bytes(body)


def believe_or_refuse(body: bytes) -> None:
    """Whatever is believed can be said again, and means the same."""
    try:
        message = decode(body)
    except RemoteProtocolError as error:
        assert "\n" not in str(error) and str(error)
    else:
        assert decode(encode(message)) == message


@settings(max_examples=examples(1500))
@given(mutated())
def test_mutated_bytes_are_understood_or_refused(body: bytes) -> None:
    believe_or_refuse(body)


@settings(max_examples=examples(300))
@given(st.binary(max_size=300))
def test_any_bytes_are_understood_or_refused(body: bytes) -> None:
    believe_or_refuse(body)


@settings(max_examples=examples(300))
@given(st.integers(1, 9), st.lists(leaf_values, max_size=12))
def test_any_fields_are_understood_or_refused(number: int, values: list[Any]) -> None:
    believe_or_refuse(msgpack.packb([VERSION, number, *values]))


def test_hello_of_a_scheduler_needs_no_node() -> None:
    hello = decode(encode(Hello(Role.SCHEDULER, SCHEDULER, 0)))
    assert isinstance(hello, Hello) and hello.node == ""


def test_a_claim_holds_the_topology_of_a_server_with_numa_cells_and_many_devices() -> None:
    # two cells and 24 SR-IOV ports take 17,572 characters
    big = Claim(
        claim_id="c", node="n", scheduler="s", consumer="i", allocations={}, usage=Usage(1, 1, 1, 1, 1),
        topology="x" * 17_572, seen_epoch=1, seen_sequence=1, deadline_ms=3000,
    )  # fmt: skip
    assert decode(encode(big)) == big
    assert decode(encode(dataclasses.replace(big, topology="x" * limits.TOPOLOGY_MAX_CHARS))).topology  # type: ignore[union-attr]
