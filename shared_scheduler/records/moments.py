# SPDX-License-Identifier: Apache-2.0
"""Moments as text, always in UTC and with the zone, so that the answers of all machines can be compared."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def moment(at_s: float) -> str:
    """Seconds since 1970 for a reader, with milliseconds: ``2026-11-24 17:32:06.692Z``."""
    return iso(at_s).replace("T", " ")


def second(at_s: float) -> str:
    """As ``moment``, without the fraction."""
    return datetime.fromtimestamp(math.floor(at_s), UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def iso(at_s: float) -> str:
    """Seconds since 1970 for a program, in ISO 8601: ``2026-11-24T17:32:06.692Z``."""
    at = datetime.fromtimestamp(math.floor(at_s), UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{int(at_s % 1 * 1000):03d}Z"
