# SPDX-License-Identifier: Apache-2.0
"""All filters of Nova 34, by class name."""

from __future__ import annotations

from collections.abc import Mapping

from shared_scheduler.decision.filters.aggregates import (
    AggregateImagePropertiesIsolation,
    AggregateInstanceExtraSpecsFilter,
    AggregateMultiTenancyIsolation,
    AggregateTypeAffinityFilter,
)
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.filters.capabilities import ComputeCapabilitiesFilter
from shared_scheduler.decision.filters.compute import AllHostsFilter, ComputeFilter
from shared_scheduler.decision.filters.groups import ServerGroupAffinityFilter, ServerGroupAntiAffinityFilter
from shared_scheduler.decision.filters.hints import DifferentHostFilter, SameHostFilter, SimpleCIDRAffinityFilter
from shared_scheduler.decision.filters.image_properties import ImagePropertiesFilter
from shared_scheduler.decision.filters.isolated import IsolatedHostsFilter
from shared_scheduler.decision.filters.json_query import JsonFilter
from shared_scheduler.decision.filters.metrics import MetricsFilter
from shared_scheduler.decision.filters.topology import NUMATopologyFilter, PciPassthroughFilter
from shared_scheduler.decision.filters.workload import (
    AggregateIoOpsFilter,
    AggregateNumInstancesFilter,
    IoOpsFilter,
    NumInstancesFilter,
)

NATIVE_FILTERS: Mapping[str, type[NativeFilter]] = {
    native.code: native
    for native in (
        AggregateImagePropertiesIsolation,
        AggregateInstanceExtraSpecsFilter,
        AggregateIoOpsFilter,
        AggregateMultiTenancyIsolation,
        AggregateNumInstancesFilter,
        AggregateTypeAffinityFilter,
        AllHostsFilter,
        ComputeCapabilitiesFilter,
        ComputeFilter,
        DifferentHostFilter,
        ImagePropertiesFilter,
        IoOpsFilter,
        IsolatedHostsFilter,
        JsonFilter,
        MetricsFilter,
        NUMATopologyFilter,
        NumInstancesFilter,
        PciPassthroughFilter,
        SameHostFilter,
        ServerGroupAffinityFilter,
        ServerGroupAntiAffinityFilter,
        SimpleCIDRAffinityFilter,
    )
}
