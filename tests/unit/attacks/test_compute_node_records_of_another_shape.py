# SPDX-License-Identifier: Apache-2.0
"""A compromised compute writes texts of another shape into its own record in Nova's database, through nova-conductor.
Schedulers read all records of a cell together."""

from __future__ import annotations

import pytest

from shared_scheduler.placement.mirror import Tree
from shared_scheduler.sync.node_reads import node_read

TREE = Tree({}, {}, {})
DEEP = "[" * 16_000
TEXTS = ("[]", "[1]", "5", '"text"', "{", DEEP, '{"cells": 5}', '{"cells": [5]}', '{"objects": 5}', '{"objects": [5]}')


@pytest.mark.parametrize("column", ["numa_topology", "pci_stats", "stats", "supported_instances"])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20])
def test_the_record_is_skipped_or_read_and_the_others_are_read(
    column: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"uuid": "node-1", "host": "host-1", "hypervisor_hostname": "host-1", column: text}

    found = node_read("cell-1", row, frozenset(), TREE, 0.0)

    assert found is not None or "compute node node-1 of host host-1 is skipped" in caplog.text
