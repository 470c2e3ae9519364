# SPDX-License-Identifier: Apache-2.0
"""The cloud of a run: eight computes in two cells and two zones, three schedulers, flavors, images."""

from dataclasses import dataclass
from typing import Any

from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.cloud_settings import CloudSettings
from tools.laboratory.cloud.host_tables import wait_followed
from tools.laboratory.cloud.provisioning import Flavor

COMPUTES, CELLS, SCHEDULERS = 8, 2, 3
SLOTS = 4
"""Small servers that fit on a compute."""

SETTINGS: dict[str, Any] = {
    "scheduler": "shared", "schedulers": SCHEDULERS, "computes": COMPUTES, "cells": CELLS, "agents": "all",
    "compute_slots": (SLOTS,), "compute_ram_mb": (), "numa_cells": 0, "hardware_of": {},
    "gpus": 0, "vfs": 0, "update_resources_interval_s": 0, "allocation_conflict_retry_count": 0, "placement_app": False,
    "service_down_time_s": 20, "report_interval_s": 2,
    "nova_options": {
        "DEFAULT": {"shelved_offload_time": "0", "allow_resize_to_same_host": "true"},
        # a scheduler that was killed restarts while the cloud is busy
        "shared_scheduler": {"startup_wait_s": "180"},
    },
}  # fmt: skip

SMALL = Flavor("m400")
LARGE = Flavor("m800", vcpus=2, ram_mb=800)
FLAVORS = {flavor.name: flavor for flavor in (SMALL, LARGE)}
IMAGES = ("tiny", "other")
ZONES = {"north": frozenset({"c1", "c2", "c3", "c4"}), "south": frozenset({"c5", "c6", "c7", "c8"})}


@dataclass(frozen=True)
class Environment:
    """The objects that users may request by name."""

    cloud: Cloud
    flavors: dict[str, str]
    images: dict[str, str]

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(self.cloud.hosts())

    def neighbours(self, host: str) -> frozenset[str]:
        """All hosts of the cell of this host, including itself; no server leaves its cell."""
        settings = self.cloud.settings
        cell = settings.cell_of(int(host[1:]))
        return frozenset(h for h in self.cloud.hosts() if settings.cell_of(int(h[1:])) == cell)

    def in_zone(self, zone: str | None) -> frozenset[str]:
        return ZONES[zone] if zone else self.hosts


def prepare(cloud: Cloud) -> Environment:
    """Start the cloud without servers."""
    if cloud.layout.exists() and cloud.settings.cells != CELLS:
        empty(cloud)
    cloud.up(**SETTINGS)
    cloud.reset()
    cloud.add_flavor(LARGE)
    for zone, hosts in ZONES.items():
        cloud.ensure_zone(zone, hosts)
    images = {name: cloud.ensure_image(name) for name in IMAGES}
    wait_followed(cloud)
    return Environment(cloud, {name: cloud.flavor_id(name) for name in FLAVORS}, images)


def clear(cloud: Cloud) -> None:
    """Leave a cloud of one cell without computes, zones and options, as other users of the cloud expect it."""
    cloud.reset()
    for zone in ZONES:
        cloud.remove_zone(zone)
    empty(cloud)
    usual = CloudSettings()
    cloud.up(
        cells=1, nova_options={}, service_down_time_s=usual.service_down_time_s,
        report_interval_s=usual.report_interval_s,
    )  # fmt: skip


def empty(cloud: Cloud) -> None:
    """Remove all computes, because only then the number of cells may change."""
    cloud.reset()
    cloud.up(schedulers=0, agents="none", computes=0)
