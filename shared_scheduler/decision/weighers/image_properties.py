# SPDX-License-Identifier: Apache-2.0
"""The weigher for hosts that run servers of images with the same properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.masks import RowNumber
from shared_scheduler.decision.weighers.base import NativeWeigher
from shared_scheduler.model.image_properties import leaf_of
from shared_scheduler.table.columns import FloatArray, IntArray
from shared_scheduler.table.row import Row


class ImagePropertiesWeigher(NativeWeigher):
    """The sum, over the properties of the image, of the instances on the host with the same property.

    As in Nova, the weigher has an effect only if the option is set; aggregates alone do not enable it.
    """

    name, option = "ImagePropertiesWeigher", "image_props_weight_multiplier"

    def is_constant(self, context: DecisionContext) -> bool:
        return self.configured(context) == 0.0 or not context.request.image_properties

    def raw(self, context: DecisionContext, slots: IntArray | None) -> FloatArray | None:
        properties = context.request.image_properties
        asked = frozenset((key, str(value)) for key, value in properties.items())
        of_nodes = context.masks.numbers(
            context.table, (self.name, asked), lambda: self._count(context, asked), static=False
        )
        every = _of_hosts(context, of_nodes)
        return every[: context.high] if slots is None else every.take(slots)

    def _count(self, context: DecisionContext, asked: frozenset[tuple[str, str]]) -> RowNumber:
        ratios = dict(context.settings.image_props_weight_setting)
        shares = {leaf_of(pair): ratios.get(pair[0], 0.0) if ratios else 1.0 for pair in asked}

        def value(row: Row) -> float:
            counts: Mapping[str, Any] = row.leaves
            return float(sum(share * counts.get(name, 0) for name, share in shares.items()))

        return value


def _of_hosts(context: DecisionContext, of_nodes: FloatArray) -> FloatArray:
    """The numbers of whole service hosts, because Nova counts the instances of all nodes of a service host."""
    every = of_nodes
    for slots in context.table.crowded():
        every = of_nodes.copy() if every is of_nodes else every
        every[list(slots)] = of_nodes[list(slots)].sum()
    return every
