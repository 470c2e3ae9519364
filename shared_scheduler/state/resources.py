# SPDX-License-Identifier: Apache-2.0
"""Inventories and amounts as Placement keeps them: one row per provider and resource class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from shared_scheduler.protocol.messages import Allocations

VCPU = "VCPU"
PCPU = "PCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"

#: Placement's defaults of an inventory (placement/schemas/inventory.py)
MAX_UNIT_DEFAULT = 2147483647


class MalformedInventoryError(ValueError):
    """A value is no inventory; says whose and why."""


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
        """From the six numbers of an ``rp.<uuid>`` leaf (``state/leaves.py``)."""
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
    """Add (or with ``sign=-1`` take off) allocations per provider and class, dropping zeros."""
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
    """Equal, whatever kind of mapping holds them; empty rows count for nothing."""
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
