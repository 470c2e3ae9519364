# SPDX-License-Identifier: Apache-2.0
"""Images are counted for each instance: one that Nova cannot read affects only its own count."""

from __future__ import annotations

from typing import Any

from nova import objects

from shared_scheduler.novalib.image_properties import InstanceImages
from tests.unit.compute_agent.real_tracker import CONTEXT

#: a value of an earlier release, or of a site's own Nova
ODD = {"image_hw_disk_bus": "punched cards", "image_hw_architecture": "x86_64"}
PLAIN = {"image_hw_architecture": "x86_64"}


def instance(uuid: str, system_metadata: dict[str, str]) -> Any:
    return objects.Instance(CONTEXT, uuid=uuid, image_ref=None, system_metadata=system_metadata)


def test_an_image_that_nova_does_not_understand_counts_for_nothing() -> None:
    images = InstanceImages()
    uuids = ["0f7d1b9e-3c53-4ad5-a5a0-4d6c8a3c1f11", "0f7d1b9e-3c53-4ad5-a5a0-4d6c8a3c1f12"]

    for uuid, system_metadata in zip(uuids, (ODD, PLAIN), strict=True):
        images.see(instance(uuid, system_metadata))

    assert images.leaves(uuids) == {"image.hw_architecture=x86_64": 1}


def test_one_that_is_rebuilt_with_an_odd_image_does_not_keep_its_old_one() -> None:
    images = InstanceImages()
    uuid = "0f7d1b9e-3c53-4ad5-a5a0-4d6c8a3c1f11"

    for system_metadata in (PLAIN, ODD):
        images.see(instance(uuid, system_metadata))

    assert images.leaves([uuid]) == {}
