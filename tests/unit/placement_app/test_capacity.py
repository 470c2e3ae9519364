# SPDX-License-Identifier: Apache-2.0
"""The check of amounts against inventories."""

from __future__ import annotations

import pytest

from shared_scheduler.placement_app.capacity import Amount, CapacityReason, InventoryUse, Misfit, first_misfit


def inventory(**changes: float) -> InventoryUse:
    usual = {
        "total": 10, "reserved": 0, "min_unit": 1, "max_unit": 10, "step_size": 1, "allocation_ratio": 1.0, "used": 0,
    }  # fmt: skip
    return InventoryUse(resource_class_id=1, **(usual | changes))  # type: ignore[arg-type]


def amounts(*numbers: int) -> list[Amount]:
    return [Amount("node", "VCPU", number) for number in numbers]


@pytest.mark.parametrize(
    ("changes", "number", "reason"),
    [
        ({}, 10, None),
        ({"used": 1}, 10, CapacityReason.CAPACITY),
        ({"reserved": 1}, 10, CapacityReason.CAPACITY),
        ({"allocation_ratio": 0.5}, 6, CapacityReason.CAPACITY),
        ({"allocation_ratio": 2.0, "used": 10}, 10, None),
        ({"total": 30, "allocation_ratio": 0.9, "max_unit": 30}, 27, None),  # doubles, as in Placement
        ({"min_unit": 2}, 1, CapacityReason.CONSTRAINTS),
        ({"max_unit": 3}, 4, CapacityReason.CONSTRAINTS),
        ({"step_size": 4}, 6, CapacityReason.CONSTRAINTS),
        ({"step_size": 4, "used": 10}, 6, CapacityReason.CONSTRAINTS),
    ],
)
def test_one_amount(changes: dict[str, float], number: int, reason: CapacityReason | None) -> None:
    misfit = first_misfit(amounts(number), {("node", "VCPU"): inventory(**changes)})
    assert misfit == (None if reason is None else Misfit(Amount("node", "VCPU", number), reason))


def test_amounts_for_the_same_inventory_add_up() -> None:
    held = {("node", "VCPU"): inventory()}
    assert first_misfit(amounts(4, 6), held) is None
    assert first_misfit(amounts(4, 5, 2), held) == Misfit(Amount("node", "VCPU", 2), CapacityReason.CAPACITY)


def test_an_amount_without_an_inventory_is_not_judged() -> None:
    with pytest.raises(KeyError):
        first_misfit(amounts(1), {("node", "DISK_GB"): inventory()})


def test_an_amount_without_an_inventory_is_no_verdict_even_if_another_one_does_not_fit() -> None:
    """Placement looks all resource classes up first: one that does not exist is a 400."""
    with pytest.raises(KeyError):
        first_misfit([*amounts(11), Amount("node", "CUSTOM_A", 1)], {("node", "VCPU"): inventory()})
