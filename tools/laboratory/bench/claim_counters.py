# SPDX-License-Identifier: Apache-2.0
"""The counters of our schedulers, summed over the processes, and what became of their claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from shared_scheduler.daemon import admin
from tools.laboratory.bench.environment import World

COUNTERS = {
    "answered": "requests_answered",
    "refused": "refused",
    "conflicts": "conflicts",
    "late": "late",
    "returned": "agents_gone",
}
"""Names in the results -> counters of ``shared-scheduler-manage status``."""


def counters(world: World) -> Counter[str]:
    """The counters of all schedulers since their start; empty for a scheduler that has none."""
    found: Counter[str] = Counter()
    for path in admin.sockets(world.admin_sockets):
        with suppress(admin.AdminError):
            found.update(admin.ask(path, "status")["counters"])
    return found


def claims(counted: Mapping[str, int]) -> dict[str, int]:
    """What became of the claims; empty without counters."""
    return {name: counted.get(counter, 0) for name, counter in COUNTERS.items()} if counted else {}


def in_a_hundred(counts: dict[str, int]) -> float:
    """Of a hundred claims, those that an agent refused or that lost a race in Placement."""
    lost = counts.get("refused", 0) + counts.get("conflicts", 0)
    return 100 * lost / max(1, lost + counts.get("answered", 0))
