# SPDX-License-Identifier: Apache-2.0
"""Compares Placement's allocations with the answers to callers, and finds providers with over-commit."""

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
    """The result; everything is empty or 0 if there is no error."""

    consumers: int = 0
    """The number of consumers with allocations."""
    over: list[str] = field(default_factory=list)
    """Providers with over-commit: "host class used/capacity"."""
    missing: int = 0
    """Answers whose allocation does not exist, or is on another host than the answer says."""
    surplus: int = 0
    """Consumers that no answer contains."""
    examples: list[str] = field(default_factory=list)

    def good(self) -> bool:
        return not (self.over or self.missing or self.surplus)


def check(layout: Layout, told: dict[str, str]) -> Check:
    """Compare Placement's allocations with its inventories and with `told`, instance -> host."""
    with database(layout, "placement") as connection, connection.cursor() as cursor:
        cursor.execute(OVER_SQL)
        over = [f"{host} {name} {int(used)}/{int(capacity)}" for host, name, used, capacity in cursor.fetchall()]
        cursor.execute(HELD_SQL)
        held: dict[str, set[str]] = {}
        for consumer, host in cursor.fetchall():
            held.setdefault(consumer, set()).add(host)
    wrong = [instance for instance, host in told.items() if held.get(instance) != {host}]
    surplus = sorted(set(held) - set(told))
    examples = [f"{i}: answered {told[i]}, Placement has {sorted(held.get(i, ()))}" for i in wrong[:EXAMPLES]]
    examples += [f"{i}: no answer, Placement has {sorted(held[i])}" for i in surplus[:EXAMPLES]]
    return Check(len(held), over, len(wrong), len(surplus), examples)
