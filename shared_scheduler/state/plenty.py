# SPDX-License-Identifier: Apache-2.0
"""Is there so much room that nobody needs to look whether a write was one too many?

Where no agent judges claims, Placement does, and it gives out more than there is when writers race for
the last of it (doc/placement.rst).  Whoever writes then looks afterwards, which costs more than the
write.  The look is left out where the last cannot be near: own claims that the row does not show yet
tell how much was taken since the row was read; other schedulers, who get their share of the same
requests, have taken about as much, each unseen by the others.
"""

from __future__ import annotations

from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.state.resources import used_of
from shared_scheduler.state.row import Row

#: What is left has to be this many times what own outstanding claims take: so many schedulers that
#: do as we do, or so many requests of the same size.
SCHEDULERS = 16
#: And this part of all: a request of another scheduler may be larger than ours.
PART_LEFT = 4


def has_plenty(row: Row, allocations: Allocations) -> bool:
    """Whether each provider and class of ``allocations``, assumed already, has plenty left.

    False for a provider that is not of the row's tree.
    """
    return all(
        _is_roomy(row, provider, resource_class)
        for provider, amounts in allocations.items()
        for resource_class in amounts
    )


def _is_roomy(row: Row, provider: str, resource_class: str) -> bool:
    known = row.providers.get(provider)
    inventory = None if known is None else known.inventories.get(resource_class)
    if inventory is None:
        return False
    free = inventory.capacity - used_of(row.used, provider, resource_class)
    taken = sum(
        used_of(claim.allocations, provider, resource_class)
        for claim in row.claims.values() if claim.counts_allocations
    )  # fmt: skip
    return free >= SCHEDULERS * taken and free * PART_LEFT >= inventory.capacity
