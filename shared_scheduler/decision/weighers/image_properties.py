# SPDX-License-Identifier: Apache-2.0
"""Hosts that run servers of images like this one."""

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
    """Sum over the image's properties of how many instances of the host have the same.

    Off unless the option is set, as in Nova: aggregates alone do not turn it on.
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
    """Nova counts the instances of the whole service host of a node."""
    every = of_nodes
    for slots in context.table.crowded():
        every = of_nodes.copy() if every is of_nodes else every
        every[list(slots)] = of_nodes[list(slots)].sum()
    return every
