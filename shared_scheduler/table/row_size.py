# SPDX-License-Identifier: Apache-2.0
"""The size of a row, so that increments of one host do not take the memory of a scheduler.

A snapshot is bounded (``protocol/limits.py``), an increment is too, but a stream of increments that only add is not.
The writer of a row adds up what increments add, which costs little and counts what they replace twice.  When that is
too much, the row is counted as a whole.  A row that is too large needs a snapshot, like one of which messages are lost.

Sizes are about those of encoded messages.
"""

from __future__ import annotations

from typing import Any

from shared_scheduler.protocol.limits import SNAPSHOT_BODY_MAX_BYTES
from shared_scheduler.table.row import Row, StoredConsumer, amounts_of

#: An agent that has more cannot send its snapshot.
ROW_MAX_BYTES = SNAPSHOT_BODY_MAX_BYTES
#: Increments may add so much before the row is counted; a count takes milliseconds.
ADDED_MAX_BYTES = SNAPSHOT_BODY_MAX_BYTES
#: a number, and the header of a text or container
NUMBER_BYTES = 8
#: a new leaf with a number
LEAF_BYTES = 48
#: a consumer with its uuid, and each of its amounts with the name of the class
CONSUMER_BYTES, AMOUNT_BYTES = 64, 24
PENDING_BYTES = 2 * CONSUMER_BYTES


def size_of_leaf(value: Any) -> int:
    """The size of the value of a leaf."""
    match value:
        case str():
            return NUMBER_BYTES + len(value)
        case dict():
            return NUMBER_BYTES + sum(len(key) + size_of_leaf(item) for key, item in value.items())
        case list() | tuple():
            return NUMBER_BYTES + sum(map(size_of_leaf, value))
        case _:
            return NUMBER_BYTES


def size_of_consumer(stored: StoredConsumer) -> int:
    """The size of a consumer; it may name any number of classes."""
    if stored.others:
        return CONSUMER_BYTES + AMOUNT_BYTES * (amounts_of(stored) + 2 * len(stored.others))
    return CONSUMER_BYTES + AMOUNT_BYTES * len(stored.root or ())  # the usual case, without a call


def is_too_large(row: Row) -> bool:
    """Whether a row holds more than a snapshot can; forgets what was added if it does not."""
    if row.added_bytes <= ADDED_MAX_BYTES:
        return False
    row.added_bytes = 0
    return _size_of(row) > ROW_MAX_BYTES


def _size_of(row: Row) -> int:
    return (
        sum(len(name) + size_of_leaf(value) for name, value in row.leaves.items())
        + sum(map(size_of_consumer, row.consumers.values()))
        + PENDING_BYTES * len(row.pending)
        + CONSUMER_BYTES * len(row.groups)
    )
