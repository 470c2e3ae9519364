# SPDX-License-Identifier: Apache-2.0
"""Every option of Nova that affects a decision, as plain values.

Field names are Nova's option names of ``[filter_scheduler]``; those of ``[metrics]`` begin with
``metrics_``.  Defaults are Nova 34's.  The Nova edge fills it from its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

#: Nova's default filters (``enabled_filters``)
DEFAULT_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)

#: Nova's ``all_weighers``.  Nova adds weights in the order in which its directory is read, which affects the last
#: bit of a float.  The Nova edge passes the order of Nova on its machine.
DEFAULT_WEIGHERS = (
    "CrossCellWeigher",
    "NumInstancesWeigher",
    "MetricsWeigher",
    "CPUWeigher",
    "BuildFailureWeigher",
    "ServerGroupSoftAffinityWeigher",
    "ServerGroupSoftAntiAffinityWeigher",
    "RAMWeigher",
    "DiskWeigher",
    "PCIWeigher",
    "ImagePropertiesWeigher",
    "IoOpsWeigher",
    "HypervisorVersionWeigher",
)


class SpreadImages(StrEnum):
    """Whether properties of an image ask for spreading, and what happens if they cannot be read."""

    IGNORED = "ignored"
    REQUIRED = "required"  # the request fails
    IF_READABLE = "if_readable"  # the request goes on without them


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """See the docstring of the module.  The last group are options of this project."""

    enabled_filters: tuple[str, ...] = DEFAULT_FILTERS
    weighers: tuple[str, ...] = DEFAULT_WEIGHERS

    host_subset_size: int = 1
    shuffle_best_same_weighed_hosts: bool = False
    max_io_ops_per_host: int = 8
    max_instances_per_host: int = 50
    isolated_images: frozenset[str] = frozenset()
    isolated_hosts: frozenset[str] = frozenset()
    restrict_isolated_hosts_to_isolated_images: bool = True
    image_properties_default_architecture: str | None = None
    aggregate_image_properties_isolation_namespace: str | None = None
    aggregate_image_properties_isolation_separator: str = "."

    ram_weight_multiplier: float = 1.0
    cpu_weight_multiplier: float = 1.0
    disk_weight_multiplier: float = 1.0
    io_ops_weight_multiplier: float = -1.0
    num_instances_weight_multiplier: float = 0.0
    hypervisor_version_weight_multiplier: float = 1.0
    pci_weight_multiplier: float = 1.0
    build_failure_weight_multiplier: float = 1_000_000.0
    cross_cell_move_weight_multiplier: float = 1_000_000.0
    soft_affinity_weight_multiplier: float = 1.0
    soft_anti_affinity_weight_multiplier: float = 1.0
    image_props_weight_multiplier: float = 0.0
    #: (property, ratio); empty: the ratio of every property is 1
    image_props_weight_setting: tuple[tuple[str, float], ...] = ()
    metrics_weight_multiplier: float = 1.0
    #: (metric, ratio)
    metrics_weight_setting: tuple[tuple[str, float], ...] = ()
    metrics_required: bool = True
    metrics_weight_of_unavailable: float = -10000.0

    #: Each of several live schedulers prefers hosts of its own slice among those whose weight is at most this far
    #: below the best, so that they do not all select the same host.  0: equal weights only.  None: as in Nova,
    #: every scheduler selects the first of the best.
    near_tie: float | None = 0.1

    #: If at most this many hosts have room, Nova's own filters judge all of them before they are weighed.
    #: Otherwise they judge only the hosts that are tried.
    exact_hosts_max: int = 3

    #: The keys in the metadata of aggregates over which servers may be spread; empty: spreading is disabled
    #: (``spread_request.py``).
    spread_keys: tuple[str, ...] = ()
    #: Whether properties of images may ask for spreading too
    spread_images: SpreadImages = SpreadImages.IGNORED
    #: The multiplier of soft constraints of spreading
    spread_weight_multiplier: float = 2.0


def plain_settings(settings: DecisionSettings) -> dict[str, Any]:
    """The settings that are not Nova's defaults, as values for JSON.  The order of weighers is not kept."""
    found = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.name == "weighers":
            value = tuple(sorted(value))
        if value != DEFAULTS[each.name]:
            found[each.name] = sorted(value) if isinstance(value, frozenset) else _listed(value)
    return found


def settings_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of ``plain_settings`` by name, defaults included; values as in JSON."""
    return {name: _listed(value) for name, value in DEFAULTS.items()} | dict(plain)


def _listed(value: Any) -> Any:
    """Tuples as lists, as JSON returns them."""
    return [_listed(one) for one in value] if isinstance(value, tuple | frozenset) else value


#: setting -> Nova's default
DEFAULTS: Mapping[str, Any] = {
    each.name: tuple(sorted(DEFAULT_WEIGHERS)) if each.name == "weighers" else each.default
    for each in fields(DecisionSettings)
}
