# SPDX-License-Identifier: Apache-2.0
"""What is sent to Placement for one consumer.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shared_scheduler.core.effects import WriteAllocation
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.protocol.messages import Allocations


@dataclass(frozen=True, slots=True)
class ConsumerWrite:
    """The new allocations of one consumer; ``generation`` None means that the consumer must not exist."""

    consumer: str
    allocations: Allocations
    generation: int | None
    project_id: str
    user_id: str
    mappings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The body for Placement, with sorted providers, because rows are locked in this order."""
        body: dict[str, Any] = {
            "allocations": {
                provider: {"resources": dict(self.allocations[provider])} for provider in sorted(self.allocations)
            },
            "consumer_generation": self.generation,
            "project_id": self.project_id,
            "user_id": self.user_id,
        }
        if self.mappings:
            body["mappings"] = {name: list(rps) for name, rps in self.mappings.items()}
        return body


def first_write(effect: WriteAllocation) -> ConsumerWrite:
    """The first write for a *new* consumer."""
    return ConsumerWrite(
        effect.consumer, effect.allocations, None, effect.project_id, effect.user_id,
        effect.mappings,
    )  # fmt: skip


def union_write(effect: WriteAllocation, kept: Allocations, generation: int | None) -> ConsumerWrite:
    """The write of a *merge* with allocations that are kept."""
    both = consumer_conflicts.union(kept, effect.allocations)
    return replace(first_write(effect), allocations=both, generation=generation, mappings={})
