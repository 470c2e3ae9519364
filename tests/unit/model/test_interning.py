# SPDX-License-Identifier: Apache-2.0
"""Equal values are one object, but only if their types are equal too: digests distinguish 1, 1.0 and True."""

from __future__ import annotations

import json

import pytest

from shared_scheduler.model.interning import Pool, key_of
from shared_scheduler.protocol.messages import Leaf


def test_equal_values_are_one_object() -> None:
    pool = Pool()
    made = [pool.leaf("cn.supported_hv_specs", [["x86_64", kind, "hvm"]]) for kind in ("kvm", "kvm", "qemu")]
    assert made[0] is made[1]
    assert made[2] == [["x86_64", "qemu", "hvm"]]


@pytest.mark.parametrize("values", [(1, 1.0, True), (0, 0.0, False), (0.0, -0.0), ("1", 1), (None, "None"), ([], {})])
def test_values_of_other_types_are_others(values: tuple[Leaf, ...]) -> None:
    pool = Pool()
    made = [pool.leaf("rp.node-1", {"inventories": [value]}) for value in values]
    assert [repr(each) for each in made] == [repr({"inventories": [value]}) for value in values]


@pytest.mark.parametrize("value", [2**64, json.loads(r'"\ud800"'), {"x": {1, 2}}, [(1, 2**70)]])
def test_what_only_a_database_holds_has_a_key_too(value: object) -> None:
    assert key_of([value]) == key_of([value]) != key_of(["other"])
