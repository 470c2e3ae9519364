# SPDX-License-Identifier: Apache-2.0
"""Weighers whose raw value is one number of the host."""

from __future__ import annotations

from shared_scheduler.decision.weighers.base import ColumnWeigher


class RAMWeigher(ColumnWeigher):
    """Free memory."""

    name, option = "RAMWeigher", "ram_weight_multiplier"
    column, minval = "free_ram_mb", 0


class CPUWeigher(ColumnWeigher):
    """Free virtual CPUs, over-commit included."""

    name, option = "CPUWeigher", "cpu_weight_multiplier"
    column, minval = "free_vcpus", 0


class DiskWeigher(ColumnWeigher):
    """Free disk."""

    name, option = "DiskWeigher", "disk_weight_multiplier"
    column, minval = "free_disk_mb", 0


class IoOpsWeigher(ColumnWeigher):
    """Instances that build, resize, snapshot, migrate; fewer is better by default."""

    name, option = "IoOpsWeigher", "io_ops_weight_multiplier"
    column, minval = "num_io_ops", 0


class NumInstancesWeigher(ColumnWeigher):
    """Instances."""

    name, option = "NumInstancesWeigher", "num_instances_weight_multiplier"
    column = "num_instances"


class HypervisorVersionWeigher(ColumnWeigher):
    """Newer hypervisors first."""

    name, option = "HypervisorVersionWeigher", "hypervisor_version_weight_multiplier"
    column = "hypervisor_version"


class PCIWeigher(ColumnWeigher):
    """Keep hosts with free PCI devices for those that want them."""

    name, option = "PCIWeigher", "pci_weight_multiplier"
    column = "pci_weight"


class BuildFailureWeigher(ColumnWeigher):
    """Away from hosts where builds failed."""

    name, option = "BuildFailureWeigher", "build_failure_weight_multiplier"
    column, sign = "failed_builds", -1.0
