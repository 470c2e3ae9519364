# SPDX-License-Identifier: Apache-2.0
"""Whether Placement holds what callers were told, and no provider holds more than it has."""

from dataclasses import dataclass, field

from tools.laboratory.cloud.layout import Layout
from tools.laboratory.cloud.probes import database

OVER_SQL = """
SELECT p.name, c.name, SUM(a.used), FLOOR((i.total - i.reserved) * i.allocation_ratio)
FROM allocations a
JOIN resource_providers p ON p.id = a.resource_provider_id
JOIN resource_classes c ON c.id = a.resource_class_id
JOIN inventories i ON i.resource_provider_id = a.resource_provider_id AND i.resource_class_id = a.resource_class_id
GROUP BY p.name, c.name, i.total, i.reserved, i.allocation_ratio
HAVING SUM(a.used) > FLOOR((i.total - i.reserved) * i.allocation_ratio)
"""
HELD_SQL = """
SELECT DISTINCT a.consumer_id, p.name FROM allocations a JOIN resource_providers p ON p.id = a.resource_provider_id
"""
EXAMPLES = 5


@dataclass
class Check:
    """What was found; everything empty or 0 is as it should be."""

    consumers: int = 0
    """How many consumers hold anything."""
    over: list[str] = field(default_factory=list)
    """Providers that hold more than they have: "host class used/capacity"."""
    missing: int = 0
    """Answers whose allocation is not there, or not on the host that was told."""
    surplus: int = 0
    """Consumers that no caller was told of."""
    examples: list[str] = field(default_factory=list)

    def good(self) -> bool:
        return not (self.over or self.missing or self.surplus)


def check(layout: Layout, told: dict[str, str]) -> Check:
    """Compare Placement's allocations with its inventories and with `told`, instance to host."""
    with database(layout, "placement") as connection, connection.cursor() as cursor:
        cursor.execute(OVER_SQL)
        over = [f"{host} {name} {int(used)}/{int(capacity)}" for host, name, used, capacity in cursor.fetchall()]
        cursor.execute(HELD_SQL)
        held: dict[str, set[str]] = {}
        for consumer, host in cursor.fetchall():
            held.setdefault(consumer, set()).add(host)
    wrong = [instance for instance, host in told.items() if held.get(instance) != {host}]
    surplus = sorted(set(held) - set(told))
    examples = [f"{i}: told {told[i]}, Placement {sorted(held.get(i, ()))}" for i in wrong[:EXAMPLES]]
    examples += [f"{i}: nobody was told, Placement {sorted(held[i])}" for i in surplus[:EXAMPLES]]
    return Check(len(held), over, len(wrong), len(surplus), examples)
