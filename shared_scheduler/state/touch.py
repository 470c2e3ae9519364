# SPDX-License-Identifier: Apache-2.0
"""Which derived values a leaf has a say in."""

from __future__ import annotations

from shared_scheduler.state import leaves


class Touch:
    """Parts of a row that must be derived again; bits of a plain int, because an enum's ``|`` would
    be the dearest step of applying an increment."""

    NOTHING = 0
    MOVED = 1  # numbers that boots and deletes move, each with a column of its own
    POOLS = 2  # free PCI devices
    PROVIDERS = 4  # the mirror of the provider tree
    STATIC = 8  # anything else that changes rarely
    READY = 16  # whether the agent takes claims
    NUMA = 64  # what is free of NUMA cells
    NUMBERS = 32  # what those are counted against: all numbers are derived anew


_EXACT = {
    "cn.vcpus": Touch.NUMBERS,
    "cn.vcpus_used": Touch.MOVED,
    "cn.memory_mb_used": Touch.NOTHING,
    "cn.free_ram_mb": Touch.MOVED,
    "cn.local_gb_used": Touch.NOTHING,
    "cn.free_disk_gb": Touch.MOVED,
    "cn.disk_available_least": Touch.NUMBERS,
    "cn.cpu_allocation_ratio": Touch.NUMBERS,
    "stats.num_instances": Touch.MOVED,
    "stats.io_workload": Touch.MOVED,
    "stats.failed_builds": Touch.NUMBERS,
    "cn.running_vms": Touch.NOTHING,
    "cn.metrics": Touch.NOTHING,
    "cn.current_workload": Touch.NOTHING,
    leaves.AGENT_READY: Touch.READY,
    **{name: Touch.STATIC for name in leaves.HYPERVISOR},
}
_PREFIXES = (
    (leaves.STATS, Touch.NOTHING),
    (leaves.IMAGE_PROPERTY, Touch.NOTHING),
    (leaves.PROVIDER, Touch.PROVIDERS),
    (leaves.PCI_STATIC, Touch.STATIC | Touch.POOLS),
    (leaves.PCI, Touch.POOLS),
    (leaves.NUMA_STATIC, Touch.STATIC),
    (leaves.NUMA, Touch.NUMA),
)


def touch_of(name: str) -> int:
    """What a change of the leaf ``name`` touches, besides the row itself."""
    found = _EXACT.get(name)
    if found is not None:
        return found
    return next((touch for prefix, touch in _PREFIXES if name.startswith(prefix)), Touch.STATIC)
