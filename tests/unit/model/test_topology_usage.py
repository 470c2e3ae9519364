# SPDX-License-Identifier: Apache-2.0
"""What a claim takes of the NUMA cells of a host, and what is left there."""

from __future__ import annotations

from typing import Any

from shared_scheduler.model import leaves as names
from shared_scheduler.model.topology import TopologyUsage, host_cells

CELL = f"{names.NUMA}0"


def test_a_claim_keeps_only_its_own_cpus_when_others_have_left() -> None:
    # given a claim of CPU 1 beside a server that has CPU 0
    take = TopologyUsage.between({CELL: [1, 512, "1", {}]}, {CELL: [2, 1024, "3", {}]})
    # when that server has left
    row: dict[str, Any] = {CELL: [0, 0, "0", {}]}
    take.consume_from(row)
    # then
    assert row == {CELL: [1, 512, "2", {}]}


def test_pages_that_the_host_reserves_and_those_in_use_are_not_free() -> None:
    static = {
        "id": 0, "socket": 0, "cpuset": [], "pcpuset": [0, 1], "siblings": [], "memory": 4096,
        "mempages": [[4, 1000, 100], [2048, 10, 3]], "network_metadata": {"physnets": [], "tunneled": False},
    }  # fmt: skip
    (cell,) = host_cells({names.NUMA_STATIC: [static], CELL: [0, 0, "0", {"2048": 2}]})
    assert cell.pages == ((4, 1000, 900), (2048, 10, 5))
