# SPDX-License-Identifier: Apache-2.0
"""Inventories and amounts of Placement, and the capacity rule of both programs.

Schedulers use the rule to choose hosts, and agents use it to judge claims.  It is Placement's rule for a write
(placement/objects/allocation.py, ``_check_capacity_exceeded``)::

    used + amount <= (total - reserved) * allocation_ratio
    min_unit <= amount <= max_unit
    amount % step_size == 0

Nothing fits a class without an inventory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from shared_scheduler.protocol.messages import Allocations, Leaf

VCPU = "VCPU"
PCPU = "PCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"

#: Placement's defaults of an inventory (placement/schemas/inventory.py)
MAX_UNIT_DEFAULT = 2147483647


class MalformedInventoryError(ValueError):
    """A value is not an inventory; the message says why."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The inventory of a provider for one resource class, in the unit of the class."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_UNIT_DEFAULT
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        """The largest usage that Placement accepts.

        It is computed with Python doubles, as in Placement's check of a write (placement/objects/allocation.py).
        ``used`` and amounts are integers, so a comparison with the floor has the same result.
        """
        return int((self.total - self.reserved) * self.allocation_ratio)

    @classmethod
    def from_leaf(cls, leaf: Sequence[Any]) -> Inventory:
        """Create an inventory from the six numbers of an ``rp.<uuid>`` leaf (``model/leaves.py``).

        :raises MalformedInventoryError: when the numbers are not an inventory
        """
        try:
            total, reserved, min_unit, max_unit, step_size, ratio = leaf
            made = cls(int(total), int(reserved), int(min_unit), int(max_unit), int(step_size), float(ratio))
        except (TypeError, ValueError) as error:
            raise MalformedInventoryError(f"not an inventory: {leaf!r}: {error}") from error
        if made.step_size < 1 or made.total < 0:
            raise MalformedInventoryError(f"not an inventory: {leaf!r}: step_size or total")
        return made

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Inventory:
        """Create an inventory from one class of Placement's ``GET /resource_providers/{uuid}/inventories``."""
        return cls(**{each.name: answer[each.name] for each in fields(cls)})

    def to_leaf(self) -> list[int | float]:
        """The inverse of ``from_leaf``."""
        return [
            self.total,
            self.reserved,
            self.min_unit,
            self.max_unit,
            self.step_size,
            self.allocation_ratio,
        ]


def add_amounts(into: dict[str, dict[str, int]], more: Allocations, sign: int = 1) -> None:
    """Add allocations per provider and class, or subtract them with ``sign=-1``; zeros are dropped."""
    for provider, amounts in more.items():
        row = into.setdefault(provider, {})
        for resource_class, amount in amounts.items():
            left = row.get(resource_class, 0) + sign * amount
            if left:
                row[resource_class] = left
            else:
                row.pop(resource_class, None)
        if not row:
            del into[provider]


def sum_amounts(allocations: Iterable[Allocations]) -> dict[str, dict[str, int]]:
    """The sum of allocations: provider -> class -> amount."""
    total: dict[str, dict[str, int]] = {}
    for one in allocations:
        add_amounts(total, one)
    return total


def same_allocations(one: Allocations, other: Allocations) -> bool:
    """Whether two allocations are equal, regardless of the type of mapping; zero amounts are ignored."""
    return plain_allocations(one) == plain_allocations(other)


def plain_allocations(allocations: Allocations) -> dict[str, dict[str, int]]:
    """The allocations as plain mappings without empty parts."""
    rows = {
        provider: {rc: amount for rc, amount in amounts.items() if amount} for provider, amounts in allocations.items()
    }
    return {provider: row for provider, row in rows.items() if row}


def used_of(used: Mapping[str, Mapping[str, int]], provider: str, resource_class: str) -> int:
    """The amount in use; 0 if it is not known."""
    return used.get(provider, {}).get(resource_class, 0)


class Rule(StrEnum):
    """The comparison that failed."""

    NO_INVENTORY = "no_inventory"
    MIN_UNIT = "min_unit"
    MAX_UNIT = "max_unit"
    STEP_SIZE = "step_size"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an amount does not fit: the rule and the numbers that it compared.

    ``bound`` is the capacity for ``CAPACITY`` (then ``used + asked > bound``), 0 for ``NO_INVENTORY``, and otherwise
    the unit that the amount violates.
    """

    rule: Rule
    asked: int
    used: int = 0
    bound: int = 0
    provider: str = ""
    resource_class: str = ""

    def detail(self) -> dict[str, Leaf]:
        """The ``detail`` of a ``protocol.messages.Reason``; the key of ``bound`` is the name of the rule."""
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
    """None if ``amount`` fits in addition to ``used``, otherwise why not."""
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
    """The first provider and class of ``asked`` that does not fit, with its shortage; None if all fit."""
    for provider, amounts in asked.items():
        rows = inventories.get(provider, {})
        for resource_class, amount in amounts.items():
            found = fits(rows.get(resource_class), used_of(used, provider, resource_class), amount)
            if found is not None:
                return Shortage(found.rule, found.asked, found.used, found.bound, provider, resource_class)
    return None
