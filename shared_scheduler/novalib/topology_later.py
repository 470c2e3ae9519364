# SPDX-License-Identifier: Apache-2.0
"""The NUMA and PCI fit, which imports Nova when the node needs it.

Nova's objects and ``nova.virt.hardware`` take about 60 MB and a second to import.  A node with PCI pools, pinned CPUs
or guests in its NUMA cells imports them as soon as it is reported.  Any other node imports them with its first claim
that has a topology; the verdict on that claim is a second late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shared_scheduler.model import leaves as names
from shared_scheduler.protocol.messages import Leaf, Reason


class TopologyFitLater:
    """``novalib.topology.NovaTopologyFit``; ``configure`` reads nova.conf for Nova, once."""

    def __init__(self, configure: Callable[[], None]) -> None:
        self._configure = configure

    def consume(self, leaves: Mapping[str, Leaf], topology: str) -> dict[str, Leaf] | Reason:
        """See ``novalib.topology.consume``."""
        self._configure()
        from shared_scheduler.novalib.topology import consume

        return consume(leaves, topology)

    def prepare(self, leaves: Mapping[str, Leaf]) -> None:
        """Import what the node of these leaves needs.  Call it from another thread than the one that judges."""
        if needs_topology(leaves):
            self._configure()
            import shared_scheduler.novalib.topology  # noqa: F401


def needs_topology(leaves: Mapping[str, Leaf]) -> bool:
    """Whether the node has pools of devices, dedicated CPUs, or guests in its NUMA cells."""
    return any(_needs(name, value) for name, value in leaves.items())


def _needs(name: str, value: Any) -> bool:
    if name.startswith(names.PCI_STATIC):
        return value is not None
    if name == names.NUMA_STATIC:
        return isinstance(value, list) and any(isinstance(cell, dict) and cell.get("pcpuset") for cell in value)
    if name.startswith(names.NUMA):
        return isinstance(value, list) and bool(value and value[0])
    return False
