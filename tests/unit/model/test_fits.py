# SPDX-License-Identifier: Apache-2.0
"""The capacity rule is Placement's, and a refusal contains the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.model.resources import (
    Inventory,
    MalformedInventoryError,
    Rule,
    Shortage,
    add_amounts,
    first_shortage,
    fits,
    same_allocations,
    sum_amounts,
)


def test_the_last_unit_fits_and_the_next_does_not():
    four_cores = Inventory(total=4, allocation_ratio=1.0)
    assert fits(four_cores, used=3, amount=1) is None
    refusal = fits(four_cores, used=4, amount=1)
    assert refusal == Shortage(Rule.CAPACITY, asked=1, used=4, bound=4)


@pytest.mark.parametrize(
    ("total", "reserved", "ratio", "capacity"),
    [(10, 0, 0.7, 7), (30, 0, 0.9, 27), (8, 2, 16.0, 96), (3, 3, 1.5, 0), (1, 0, 0.5, 0)],
)
def test_capacity_is_the_floor_in_doubles(total, reserved, ratio, capacity):
    assert Inventory(total, reserved, allocation_ratio=ratio).capacity == capacity


@given(
    total=st.integers(0, 100_000),
    reserved=st.integers(0, 100_000),
    ratio=st.floats(0.01, 64, allow_nan=False),
    used=st.integers(0, 500_000),
    amount=st.integers(1, 100_000),
)
def test_the_floor_compares_as_placement_compares(total, reserved, ratio, used, amount):
    inventory = Inventory(total, min(reserved, total), allocation_ratio=ratio)
    accepted = not ((total - inventory.reserved) * ratio < used + amount)
    assert (fits(inventory, used, amount) is None) == accepted


@pytest.mark.parametrize(
    ("amount", "rule", "bound"),
    [(1, Rule.MIN_UNIT, 2), (12, Rule.MAX_UNIT, 10), (3, Rule.STEP_SIZE, 2)],
)
def test_units_are_kept(amount, rule, bound):
    in_pairs = Inventory(total=100, min_unit=2, max_unit=10, step_size=2)
    assert fits(in_pairs, 0, amount) == Shortage(rule, asked=amount, used=0, bound=bound)


def test_a_claim_over_two_providers_names_the_one_that_is_full():
    inventories = {
        "root": {"VCPU": Inventory(8), "MEMORY_MB": Inventory(4096)},
        "disk": {"DISK_GB": Inventory(100)},
    }
    used = {"root": {"VCPU": 2}, "disk": {"DISK_GB": 95}}
    asked = {"root": {"VCPU": 1, "MEMORY_MB": 512}, "disk": {"DISK_GB": 10}}

    refusal = first_shortage(inventories, used, asked)

    assert refusal is not None
    assert refusal.detail() == {
        "provider": "disk",
        "resource_class": "DISK_GB",
        "asked": 10,
        "used": 95,
        "capacity": 100,
    }


def test_no_inventory_fits_nothing():
    refusal = first_shortage({"root": {}}, {}, {"root": {"VGPU": 1}})
    assert refusal is not None
    assert refusal.rule is Rule.NO_INVENTORY
    assert "capacity" not in refusal.detail()


def test_an_inventory_travels_as_six_numbers():
    inventory = Inventory(16, 2, 1, 16, 1, 4.0)
    assert Inventory.from_leaf(inventory.to_leaf()) == inventory


@pytest.mark.parametrize("leaf", [[1, 2], ["a"] * 6, [4, 0, 1, 4, 0, 1.0], None])
def test_a_malformed_inventory_is_refused_with_its_text(leaf):
    with pytest.raises(MalformedInventoryError, match="not an inventory"):
        Inventory.from_leaf(leaf)


def test_amounts_add_up_and_vanish_when_taken_off():
    small = {"root": {"VCPU": 1, "MEMORY_MB": 512}}
    used = sum_amounts([small, small])
    assert used == {"root": {"VCPU": 2, "MEMORY_MB": 1024}}
    add_amounts(used, small, -1)
    add_amounts(used, small, -1)
    assert used == {}


def test_allocations_are_compared_by_their_amounts():
    assert same_allocations({"root": {"VCPU": 1}, "disk": {}}, {"root": {"VCPU": 1, "PCPU": 0}})
    assert not same_allocations({"root": {"VCPU": 1}}, {"root": {"VCPU": 2}})
