# SPDX-License-Identifier: Apache-2.0
"""All weighers of Nova 34, by class name."""

from __future__ import annotations

from collections.abc import Mapping

from shared_scheduler.decision.weighers.affinity import (
    CrossCellWeigher,
    ServerGroupSoftAffinityWeigher,
    ServerGroupSoftAntiAffinityWeigher,
)
from shared_scheduler.decision.weighers.base import NativeWeigher
from shared_scheduler.decision.weighers.host_numbers import (
    BuildFailureWeigher,
    CPUWeigher,
    DiskWeigher,
    HypervisorVersionWeigher,
    IoOpsWeigher,
    NumInstancesWeigher,
    PCIWeigher,
    RAMWeigher,
)
from shared_scheduler.decision.weighers.image_properties import ImagePropertiesWeigher
from shared_scheduler.decision.weighers.metrics import MetricsWeigher

NATIVE_WEIGHERS: Mapping[str, type[NativeWeigher]] = {
    weigher.name: weigher
    for weigher in (
        BuildFailureWeigher,
        CPUWeigher,
        CrossCellWeigher,
        DiskWeigher,
        HypervisorVersionWeigher,
        ImagePropertiesWeigher,
        IoOpsWeigher,
        MetricsWeigher,
        NumInstancesWeigher,
        PCIWeigher,
        RAMWeigher,
        ServerGroupSoftAffinityWeigher,
        ServerGroupSoftAntiAffinityWeigher,
    )
}
