# SPDX-License-Identifier: Apache-2.0
"""Counts of the image properties of a node's instances."""

from __future__ import annotations

from shared_scheduler.model.image_properties import NAME_MAX_CHARS, PAIRS_MAX, counted, leaf_of
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.messages import Increment


def test_instances_of_one_image_count_for_each_of_its_properties() -> None:
    linux = [("os_type", "linux"), ("hw_architecture", "x86_64")]
    assert counted([linux, linux, [("os_type", "windows")]]) == {
        "image.os_type=linux": 2,
        "image.hw_architecture=x86_64": 2,
        "image.os_type=windows": 1,
    }


def test_a_node_without_instances_counts_nothing() -> None:
    assert counted([]) == {}


def test_a_value_that_a_name_cannot_contain_is_replaced_by_its_digest() -> None:
    strange = [("os_command_line", "quiet\n"), ("os_command_line", "a" * 4000), ("os_type", "linux")]
    names = [leaf_of(pair) for pair in strange]
    assert len(set(names)) == 3 and max(map(len, names)) <= NAME_MAX_CHARS
    body = codec.encode(Increment("n", 1, 1, dict.fromkeys(names, 1), {}, {}))
    told = codec.decode(body)
    assert isinstance(told, Increment) and set(told.leaves) == set(names)


def test_of_too_many_properties_the_commonest_are_counted() -> None:
    rare = [[("os_version", str(number))] for number in range(PAIRS_MAX)]
    found = counted([*rare, [("os_version", "7"), ("os_type", "linux")], [("os_type", "linux")]])
    assert len(found) == PAIRS_MAX
    assert found["image.os_version=7"] == found["image.os_type=linux"] == 2
