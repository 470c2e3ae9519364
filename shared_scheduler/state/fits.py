# SPDX-License-Identifier: Apache-2.0
"""The one capacity rule, used by both sides: schedulers to choose, agents to judge.

Placement's rule for a write (placement/objects/allocation.py, ``_check_capacity_exceeded``)::

    used + amount <= (total - reserved) * allocation_ratio
    min_unit <= amount <= max_unit
    amount % step_size == 0

A class without an inventory fits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from shared_scheduler.protocol.messages import Allocations, Leaf
from shared_scheduler.state.resources import Inventory, used_of


class Rule(StrEnum):
    """Which comparison failed."""

    NO_INVENTORY = "no_inventory"
    MIN_UNIT = "min_unit"
    MAX_UNIT = "max_unit"
    STEP_SIZE = "step_size"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an amount does not fit: the rule and the numbers that it compared.

    ``bound`` is the capacity for ``CAPACITY`` (then ``used + asked > bound``), else the unit that the
    amount broke; 0 for ``NO_INVENTORY``.
    """

    rule: Rule
    asked: int
    used: int = 0
    bound: int = 0
    provider: str = ""
    resource_class: str = ""

    def detail(self) -> dict[str, Leaf]:
        """For ``protocol.messages.Reason.detail``: the key of ``bound`` is the rule's name."""
        found: dict[str, Leaf] = {
            "provider": self.provider,
            "resource_class": self.resource_class,
            "asked": self.asked,
            "used": self.used,
        }
        if self.rule is not Rule.NO_INVENTORY:
            found[self.rule.value] = self.bound
        return found


def fits(inventory: Inventory | None, used: int, amount: int) -> Shortage | None:
    """None if ``amount`` more fits beside ``used``, else why not."""
    if inventory is None:
        return Shortage(Rule.NO_INVENTORY, amount, used)
    if amount < inventory.min_unit:
        return Shortage(Rule.MIN_UNIT, amount, used, inventory.min_unit)
    if amount > inventory.max_unit:
        return Shortage(Rule.MAX_UNIT, amount, used, inventory.max_unit)
    if amount % inventory.step_size:
        return Shortage(Rule.STEP_SIZE, amount, used, inventory.step_size)
    if used + amount > inventory.capacity:
        return Shortage(Rule.CAPACITY, amount, used, inventory.capacity)
    return None


def first_shortage(
    inventories: Mapping[str, Mapping[str, Inventory]],
    used: Mapping[str, Mapping[str, int]],
    asked: Allocations,
) -> Shortage | None:
    """``fits`` for each provider and class of ``asked``; the first that does not, named."""
    for provider, amounts in asked.items():
        rows = inventories.get(provider, {})
        for resource_class, amount in amounts.items():
            found = fits(rows.get(resource_class), used_of(used, provider, resource_class), amount)
            if found is not None:
                return Shortage(
                    found.rule, found.asked, found.used, found.bound, provider, resource_class
                )
    return None
