# SPDX-License-Identifier: Apache-2.0
"""What the fallback, which reads the database, takes for a migration that nova-compute counts."""

from __future__ import annotations

from typing import Any

import pytest
from nova import objects

from compute_agent.sources.conductor import is_counted
from tests.unit.compute_agent.node_facts import HOST

objects.register_all()
OTHER = "cmp-2"


def migration(source: str | None, dest: str | None, status: str = "pre-migrating") -> Any:
    return objects.Migration(
        source_compute=source, source_node=source, dest_compute=dest, dest_node=dest, status=status
    )


@pytest.mark.parametrize(
    ("source", "dest", "here", "counted"),
    [
        pytest.param(HOST, None, True, False, id="no host is chosen yet"),
        pytest.param(HOST, OTHER, True, False, id="it leaves, and the node counts the instance"),
        pytest.param(HOST, OTHER, False, True, id="it has left, and may return"),
        pytest.param(OTHER, HOST, False, True, id="it comes"),
        pytest.param(OTHER, HOST, True, False, id="it has come"),
        pytest.param(HOST, HOST, True, True, id="a resize to the same host"),
    ],
)
def test_a_migration_counts_where_nova_compute_counts_it(
    source: str, dest: str | None, here: bool, counted: bool
) -> None:
    assert is_counted(migration(source, dest), HOST, HOST, here) is counted


def test_a_migration_that_has_failed_does_not_count() -> None:
    assert not is_counted(migration(OTHER, HOST, "error"), HOST, HOST, False)
