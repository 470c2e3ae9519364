# SPDX-License-Identifier: Apache-2.0
"""Weighers whose raw value is one number of the host."""

from __future__ import annotations

from shared_scheduler.decision.weighers.base import ColumnWeigher


class RAMWeigher(ColumnWeigher):
    """Prefers hosts with more free memory."""

    name, option = "RAMWeigher", "ram_weight_multiplier"
    column, minval = "free_ram_mb", 0


class CPUWeigher(ColumnWeigher):
    """Prefers hosts with more free virtual CPUs, including over-commit."""

    name, option = "CPUWeigher", "cpu_weight_multiplier"
    column, minval = "free_vcpus", 0


class DiskWeigher(ColumnWeigher):
    """Prefers hosts with more free disk."""

    name, option = "DiskWeigher", "disk_weight_multiplier"
    column, minval = "free_disk_mb", 0


class IoOpsWeigher(ColumnWeigher):
    """By default, prefers hosts with fewer instances that build, resize, snapshot or migrate."""

    name, option = "IoOpsWeigher", "io_ops_weight_multiplier"
    column, minval = "num_io_ops", 0


class NumInstancesWeigher(ColumnWeigher):
    """Weighs by the number of instances."""

    name, option = "NumInstancesWeigher", "num_instances_weight_multiplier"
    column = "num_instances"


class HypervisorVersionWeigher(ColumnWeigher):
    """Prefers newer hypervisors."""

    name, option = "HypervisorVersionWeigher", "hypervisor_version_weight_multiplier"
    column = "hypervisor_version"


class PCIWeigher(ColumnWeigher):
    """Keeps hosts with free PCI devices for requests for PCI devices."""

    name, option = "PCIWeigher", "pci_weight_multiplier"
    column = "pci_weight"


class BuildFailureWeigher(ColumnWeigher):
    """Avoids hosts on which builds failed."""

    name, option = "BuildFailureWeigher", "build_failure_weight_multiplier"
    column, sign = "failed_builds", -1.0
