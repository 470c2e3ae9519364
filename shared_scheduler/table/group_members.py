# SPDX-License-Identifier: Apache-2.0
"""The instances of each server group, from rows and own outstanding claims.

A row has the group of each consumer if its agent knows it; a claim of this scheduler has the group of its consumer.  An
instance that moves is in two rows, so the sources of each instance are counted.  ``Members`` (``row_writer.py``) has
the places of the instances; together they give the members of a group by host.
"""

from __future__ import annotations


class GroupMembers:
    """group uuid -> its instances, with the number of rows and claims for each."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def add(self, group: str, instance: str) -> None:
        """Count a row or claim with this instance in this group."""
        told = self._told.setdefault(group, {})
        told[instance] = told.get(instance, 0) + 1

    def discard(self, group: str, instance: str) -> None:
        """Remove the count of a row or claim with this instance in this group."""
        told = self._told[group]
        told[instance] -= 1
        if not told[instance]:
            del told[instance]
            if not told:
                del self._told[group]

    def of(self, group: str) -> frozenset[str]:
        """The instances of a group."""
        return frozenset(self._told.get(group, ()))
