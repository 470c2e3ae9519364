# SPDX-License-Identifier: Apache-2.0
"""What a change of allocations by another writer was, as far as Placement and Nova show it.  Neither shows who wrote.

The order in which a change is examined is in ``placement/change_examiner.py``."""

from __future__ import annotations

from enum import StrEnum

from shared_scheduler.model.resources import same_allocations
from shared_scheduler.protocol.messages import Allocations

#: Time after which a removal is looked at once more: Nova may write its databases after Placement.
CONFIRMED_AFTER_S = 5.0


class ChangeKind(StrEnum):
    """What a change was."""

    REMOVED = "removed"  # all allocations, of a server that Nova neither deletes nor moves
    CHANGED = "changed"  # other amounts or providers
    REWRITTEN = "rewritten"  # the same amounts, with another generation
    OPERATION = "operation"  # Nova moves the server, or has moved it, or its evacuation has left its source
    DELETED = "deleted"  # Nova has deleted the server
    UNEXAMINED = "unexamined"  # Nova or Placement did not answer, or too many changes were found at once


#: what Nova does by itself
EXPECTED = frozenset({ChangeKind.OPERATION, ChangeKind.DELETED})


def kind_by_amounts(before: Allocations, after: Allocations) -> ChangeKind:
    """The kind of a change that Nova's databases need not explain."""
    if not after:
        return ChangeKind.REMOVED
    return ChangeKind.REWRITTEN if same_allocations(before, after) else ChangeKind.CHANGED


def kind_in_all_trees(here: Allocations, elsewhere: Allocations, standing: Allocations) -> ChangeKind:
    """The kind of a change that a node shows of an evacuated server, which had a part ``elsewhere``: the nova-compute
    of its source removes this when it starts."""
    if same_allocations(standing, here):
        return ChangeKind.OPERATION
    return kind_by_amounts({**here, **elsewhere}, standing)
