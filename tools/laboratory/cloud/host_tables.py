# SPDX-License-Identifier: Apache-2.0
"""Reads the tables of our running schedulers, and waits until they have a state."""

from typing import Any

from shared_scheduler.daemon import admin
from tools.laboratory.cloud.cloud import Cloud

IDLE_TIMEOUT_S = 240.0


def rows(cloud: Cloud, question: str = "nodes") -> list[list[dict[str, Any]]]:
    """For each scheduler that answers, a row of each node: short, or complete with `tables`
    (`service/inspection.py`)."""
    try:
        return [answer["nodes"] for answer in admin.ask_all(cloud.layout.admin_sockets, question)]
    except admin.AdminError:
        return []  # no scheduler answers yet


def wait_followed(cloud: Cloud, timeout_s: float = IDLE_TIMEOUT_S) -> None:
    """Wait until every scheduler follows every agent, and may select every host."""
    cloud.wait(lambda: _holds(cloud, followed), "every scheduler to follow every agent", timeout_s)


def wait_idle(cloud: Cloud, timeout_s: float = IDLE_TIMEOUT_S) -> None:
    """Wait until, in addition, every host is empty in every table."""
    cloud.wait(lambda: _holds(cloud, idle), "every host to be empty in every scheduler's table", timeout_s)


def followed(row: dict[str, Any]) -> bool:
    return bool(row["choosable"]) and row["freshness"] == "fresh"


def idle(row: dict[str, Any]) -> bool:
    return followed(row) and not (row["used"] or row["pending"] or row["outstanding"])


def _holds(cloud: Cloud, condition: Any) -> bool:
    tables = rows(cloud)
    hosts = set(cloud.hosts())
    return len(tables) == len(cloud.names("scheduler-shared")) and all(
        hosts == {row["host"] for row in table} and all(condition(row) for row in table) for table in tables
    )
