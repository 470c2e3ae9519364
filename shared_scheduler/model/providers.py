# SPDX-License-Identifier: Apache-2.0
"""The mirror of a node's provider tree in Placement, parsed from its ``rp.<uuid>`` leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared_scheduler.model import leaves
from shared_scheduler.model.interning import Pool, key_of
from shared_scheduler.model.resources import Inventory, MalformedInventoryError
from shared_scheduler.protocol.messages import Leaf

#: A provider with this trait shares its resources with the trees that have an aggregate in common with it.
SHARING_TRAIT = "MISC_SHARES_VIA_AGGREGATE"


class MalformedProviderError(ValueError):
    """An ``rp.<uuid>`` leaf is not a provider; the text names the leaf and the reason."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One resource provider.  ``aggregates`` are Placement's, by uuid."""

    uuid: str
    name: str = ""
    parent: str | None = None
    generation: int = 0
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()

    @property
    def shares(self) -> bool:
        """Whether other trees may use its resources."""
        return SHARING_TRAIT in self.traits

    @classmethod
    def from_leaf(cls, uuid: str, leaf: Any, pool: Pool | None = None) -> Provider:
        """The provider in a leaf.  With ``pool``, equal parts are one object.

        :raises MalformedProviderError: when the leaf has a wrong shape
        """
        share = (pool or Pool()).made
        try:
            rows, traits = leaf["inventories"], leaf.get("traits") or ()
            return cls(
                uuid,
                str(leaf.get("name", "")),
                leaf.get("parent"),
                int(leaf.get("generation") or 0),
                share(("inventories", key_of(rows)), lambda: _inventories(rows)),
                share(("names", key_of(traits)), lambda: frozenset(traits)),
                frozenset(leaf.get("aggregates") or ()),
            )
        except (AttributeError, KeyError, TypeError, MalformedInventoryError) as error:
            raise MalformedProviderError(f"provider {uuid}: {error!r}") from error

    def to_leaf(self) -> dict[str, Leaf]:
        """The inverse of ``from_leaf``."""
        return {
            "name": self.name,
            "parent": self.parent,
            "generation": self.generation,
            "inventories": {rc: [*row.to_leaf()] for rc, row in sorted(self.inventories.items())},
            "traits": [*sorted(self.traits)],
            "aggregates": [*sorted(self.aggregates)],
        }


def _inventories(rows: Any) -> dict[str, Inventory]:
    return {rc: Inventory.from_leaf(row) for rc, row in rows.items()}


def providers_of(node_leaves: Mapping[str, Leaf], pool: Pool | None = None) -> dict[str, Provider]:
    """All providers that the leaves of a node describe, by uuid."""
    start = len(leaves.PROVIDER)
    return {
        name[start:]: Provider.from_leaf(name[start:], value, pool)
        for name, value in node_leaves.items()
        if name.startswith(leaves.PROVIDER) and value is not None
    }
