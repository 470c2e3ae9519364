# SPDX-License-Identifier: Apache-2.0
"""Inventories and amounts as Placement keeps them, and the one capacity rule of both programs.

Schedulers use the rule to choose, agents to judge.  It is Placement's rule for a write
(placement/objects/allocation.py, ``_check_capacity_exceeded``)::

    used + amount <= (total - reserved) * allocation_ratio
    min_unit <= amount <= max_unit
    amount % step_size == 0

A class without an inventory fits nothing.
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
    """What a provider has of one resource class, in that class's own unit."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_UNIT_DEFAULT
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        """The greatest usage that Placement accepts.

        Python doubles as in Placement's write check (placement/objects/allocation.py); ``used`` and
        amounts are whole numbers, so comparing with the floor is the same comparison.
        """
        return int((self.total - self.reserved) * self.allocation_ratio)

    @classmethod
    def from_leaf(cls, leaf: Sequence[Any]) -> Inventory:
        """From the six numbers of an ``rp.<uuid>`` leaf (``model/leaves.py``)."""
        try:
            total, reserved, min_unit, max_unit, step_size, ratio = leaf
            made = cls(
                int(total), int(reserved), int(min_unit), int(max_unit), int(step_size), float(ratio)
            )
        except (TypeError, ValueError) as error:
            raise MalformedInventoryError(f"not an inventory: {leaf!r}: {error}") from error
        if made.step_size < 1 or made.total < 0:
            raise MalformedInventoryError(f"not an inventory: {leaf!r}: step_size or total")
        return made

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Inventory:
        """From Placement's ``GET /resource_providers/{uuid}/inventories``, one class of it."""
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
    """Add (or with ``sign=-1`` subtract) allocations per provider and class; zeros are dropped."""
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
    """What all these take together: provider -> class -> amount."""
    total: dict[str, dict[str, int]] = {}
    for one in allocations:
        add_amounts(total, one)
    return total


def same_allocations(one: Allocations, other: Allocations) -> bool:
    """Whether two allocations are equal, whatever kind of mapping holds them; zero amounts are ignored."""
    return _plain(one) == _plain(other)


def _plain(allocations: Allocations) -> dict[str, dict[str, int]]:
    rows = {
        provider: {rc: amount for rc, amount in amounts.items() if amount}
        for provider, amounts in allocations.items()
    }
    return {provider: row for provider, row in rows.items() if row}


def used_of(used: Mapping[str, Mapping[str, int]], provider: str, resource_class: str) -> int:
    """The amount in use, 0 where nothing is known."""
    return used.get(provider, {}).get(resource_class, 0)


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
