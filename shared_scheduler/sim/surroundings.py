# SPDX-License-Identifier: Apache-2.0
"""What every simulated process of a world shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared_scheduler.sim.agenda import Agenda, Trace
from shared_scheduler.sim.network import Network
from shared_scheduler.sim.placement import SimPlacement


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Time, the state channel, Placement and the trace; ``placement_delay_s`` draws the time of one call."""

    agenda: Agenda
    network: Network
    placement: SimPlacement
    trace: Trace
    placement_delay_s: Callable[[], float]
