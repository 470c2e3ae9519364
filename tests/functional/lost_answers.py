# SPDX-License-Identifier: Apache-2.0
"""The allocation that a scheduler leaves when it is killed between Placement's answer and its own."""

from __future__ import annotations

import uuid

from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.provisioning import SLOT_MB


def leave_an_allocation(cloud: Cloud, server: str, host: str) -> None:
    """Allocate one slot of this host for the server, without an answer to the conductor."""
    allocated = {"VCPU": 1, "MEMORY_MB": SLOT_MB, "DISK_GB": 1}
    body = {
        "allocations": {cloud.providers()[host]: {"resources": allocated}}, "consumer_generation": None,
        "project_id": str(uuid.uuid4()), "user_id": str(uuid.uuid4()), "consumer_type": "INSTANCE",
    }  # fmt: skip
    cloud.placement("PUT", f"/allocations/{server}", body).expect(204)
