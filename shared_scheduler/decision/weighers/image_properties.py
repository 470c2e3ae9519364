# SPDX-License-Identifier: Apache-2.0
"""Hosts that run servers of images like this one."""

from __future__ import annotations

from typing import Any

from shared_scheduler.decision.look import Look
from shared_scheduler.decision.masks import RowNumber
from shared_scheduler.decision.weighers.base import NativeWeigher
from shared_scheduler.state import leaves
from shared_scheduler.state.columns import FloatArray, IntArray
from shared_scheduler.state.row import Row


class ImagePropertiesWeigher(NativeWeigher):
    """Sum over the image's properties of how many instances of the host have the same.

    Off unless the option is set, as in Nova: aggregates alone do not turn it on.
    """

    name, option = "ImagePropertiesWeigher", "image_props_weight_multiplier"

    def tells_nothing(self, look: Look) -> bool:
        return self.configured(look) == 0.0 or not look.request.image_properties

    def raw(self, look: Look, slots: IntArray | None) -> FloatArray | None:
        properties = look.request.image_properties
        asked = frozenset((key, str(value)) for key, value in properties.items())
        every = look.masks.numbers(
            look.table, (self.name, asked), lambda: self._count(look, asked), static=False
        )
        return every[: look.high] if slots is None else every.take(slots)

    def _count(self, look: Look, asked: frozenset[tuple[str, str]]) -> RowNumber:
        ratios = dict(look.settings.image_props_weight_setting)

        def value(row: Row) -> float:
            counted: Any = row.leaves.get(leaves.IMAGE_PROPERTIES) or ()
            return float(
                sum(
                    count * (ratios.get(key, 0.0) if ratios else 1)
                    for key, text, count in counted
                    if (key, text) in asked
                )
            )

        return value
