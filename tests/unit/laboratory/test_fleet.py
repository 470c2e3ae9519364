# SPDX-License-Identifier: Apache-2.0
"""The fleet is a function of its size."""

from __future__ import annotations

from tools.laboratory.fleet.hosts import Host, compute_node, hosts, inventories


def test_the_rows_of_a_host_in_nova_and_placement_agree() -> None:
    for host in hosts(9):
        row, stock = compute_node(host), inventories(host)
        assert (row["uuid"], row["vcpus"], row["local_gb"]) == (host.node, stock["VCPU"].total, stock["DISK_GB"].total)
        assert row["free_ram_mb"] == stock["MEMORY_MB"].total - stock["MEMORY_MB"].reserved


def test_nodes_are_all_different_and_known_by_number() -> None:
    assert len({host.node for host in hosts(1000)}) == 1000
    assert hosts(1000)[6] == Host(7) and Host(7).name == "lab-00007"
    assert len({host.memory_mb for host in hosts(3)}) == 3
