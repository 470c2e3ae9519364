# SPDX-License-Identifier: Apache-2.0
"""Whether amounts fit into inventories: the rules and the order of ``placement/objects/allocation.py``.

Placement checks the allocations of a request in their order, and names the first one that does not fit.  Amounts of
the same request for one inventory add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple


class Amount(NamedTuple):
    """So much of a resource class on a provider (its uuid), for one consumer."""

    provider: str
    resource_class: str
    amount: int


class InventoryUse(NamedTuple):
    """A row of ``inventories``, and the sum of what is allocated of it."""

    resource_class_id: int
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int

    def capacity(self) -> float:
        return (self.total - self.reserved) * self.allocation_ratio

    def allows(self, amount: int) -> bool:
        """Whether a single allocation may have this amount."""
        return self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0


#: By provider uuid and name of the resource class.
Inventories = Mapping[tuple[str, str], InventoryUse]


class CapacityReason(Enum):
    """Why an amount does not fit."""

    CONSTRAINTS = "min_unit, max_unit or step_size"
    CAPACITY = "capacity"


class Misfit(NamedTuple):
    """The first amount that does not fit."""

    amount: Amount
    reason: CapacityReason


def first_misfit(amounts: Sequence[Amount], inventories: Inventories) -> Misfit | None:
    """The amount that Placement would name in its answer; nothing if all fit.

    :raises KeyError: when there is no inventory for one of the amounts
    """
    # before any verdict: Placement looks all of them up before it checks an amount
    held = [inventories[amount.provider, amount.resource_class] for amount in amounts]
    needed: defaultdict[tuple[str, str], int] = defaultdict(int)
    for amount, inventory in zip(amounts, held, strict=True):
        key = (amount.provider, amount.resource_class)
        needed[key] += amount.amount
        if not inventory.allows(amount.amount):
            return Misfit(amount, CapacityReason.CONSTRAINTS)
        if inventory.capacity() < inventory.used + needed[key]:
            return Misfit(amount, CapacityReason.CAPACITY)
    return None
