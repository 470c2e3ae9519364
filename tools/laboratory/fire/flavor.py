# SPDX-License-Identifier: Apache-2.0
"""The flavor of all requests: four servers of it fill a host, so that over-commit would be found."""

from __future__ import annotations

from shared_scheduler.decision.request import Flavor
from shared_scheduler.protocol.messages import Usage
from tools.laboratory.fleet.hosts import SMALL

HARDWARE = SMALL
FLAVOR = Flavor("large", 4, 16_384, 80)
AMOUNTS = {"VCPU": FLAVOR.vcpus, "MEMORY_MB": FLAVOR.memory_mb, "DISK_GB": FLAVOR.root_gb}
USAGE = Usage(FLAVOR.vcpus, FLAVOR.memory_mb, FLAVOR.root_gb, 1, 0)
SERVERS_PER_HOST = HARDWARE.memory_sizes_mb[0] // FLAVOR.memory_mb
