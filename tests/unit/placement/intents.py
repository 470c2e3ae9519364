# SPDX-License-Identifier: Apache-2.0
"""Writes and deletes of allocations, as the core requests them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation

PATIENCE_S = 30.0


def intent(provider: str, vcpus: int = 1, **changes: Any) -> WriteAllocation:
    effect = WriteAllocation(
        claim_id=str(uuid.uuid4()), consumer=str(uuid.uuid4()),
        allocations={provider: {"VCPU": vcpus}}, mappings={"": (provider,)},
        project_id="project", user_id="user", policy=ConsumerPolicy.NEW, serialise=False,
        request_id=f"req-{uuid.uuid4()}", deadline_s=1000.0 + PATIENCE_S,
    )  # fmt: skip
    return replace(effect, **changes)


def undo(effect: WriteAllocation, before: Mapping[str, Mapping[str, int]] | None = None,
         written: Mapping[str, Mapping[str, int]] | None = None, **changes: Any) -> DeleteAllocation:  # fmt: skip
    delete = DeleteAllocation(
        effect.claim_id, effect.consumer, written or effect.allocations, "", before or {}, effect.deadline_s
    )
    return replace(delete, **changes)
