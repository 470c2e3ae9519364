# SPDX-License-Identifier: Apache-2.0
"""Which instances are in which server group, as rows and own outstanding claims tell it.

A row tells the group of each consumer that its agent knows to be in one; a claim of this scheduler tells its own.
An instance that moves is told of twice, so each telling is counted.  Where the instances are is known to ``Members``
(row_writer.py): the two together are the members of a group by host.
"""

from __future__ import annotations


class GroupMembers:
    """group uuid -> its instances, and how many rows and claims tell of each."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def add(self, group: str, instance: str) -> None:
        """One more row or claim tells that the instance is in the group."""
        told = self._told.setdefault(group, {})
        told[instance] = told.get(instance, 0) + 1

    def discard(self, group: str, instance: str) -> None:
        """One of them tells it no more."""
        told = self._told[group]
        told[instance] -= 1
        if not told[instance]:
            del told[instance]
            if not told:
                del self._told[group]

    def of(self, group: str) -> frozenset[str]:
        """The instances of a group."""
        return frozenset(self._told.get(group, ()))
