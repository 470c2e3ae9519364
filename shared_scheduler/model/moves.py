# SPDX-License-Identifier: Apache-2.0
"""What Nova does with a server that exists already, as far as a request for hosts shows it."""

from __future__ import annotations

from enum import StrEnum


class Move(StrEnum):
    """Nova tells a scheduler nothing by which a resize and a cold migration differ."""

    REBUILD = "rebuild"
    EVACUATION = "evacuation"
    LIVE_MIGRATION = "live_migration"
    RESIZE = "resize_or_cold_migration"
    UNSHELVE = "unshelve"


#: those in which the server is on a host while another one is looked for
LEAVES_A_HOST = frozenset({Move.EVACUATION, Move.LIVE_MIGRATION, Move.RESIZE})
