# SPDX-License-Identifier: Apache-2.0
"""The metrics that a compute node's monitors report (``cn.metrics``, JSON text)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shared_scheduler.protocol.messages import Leaf

#: Nova writes these as parts of 1 and reads them as whole percents
#: (nova/objects/monitor_metric.py)
PERCENTS = frozenset(
    {
        "cpu.user.percent",
        "cpu.kernel.percent",
        "cpu.idle.percent",
        "cpu.iowait.percent",
        "cpu.percent",
    }
)


def metrics_of(leaves: Mapping[str, Leaf]) -> dict[str, int]:
    """Whole numbers by name; what does not parse is not there."""
    text: Any = leaves.get("cn.metrics")
    if not text:
        return {}
    try:
        return {one["name"]: _whole(one) for one in json.loads(text) if "value" in one}
    except (KeyError, OverflowError, TypeError, ValueError):
        return {}


def _whole(one: Mapping[str, Any]) -> int:
    number = int(one["value"] * 100 if one["name"] in PERCENTS else one["value"])
    float(number)  # what cannot be weighed fails here
    return number
