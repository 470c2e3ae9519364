# SPDX-License-Identifier: Apache-2.0
"""What a record holds of its request, as a request that can be made again (``decision/what_if.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared_scheduler.decision.request import LABEL_POLICY
from shared_scheduler.decision.what_if import WhatIf, what_if_of
from shared_scheduler.records.errors import CannotReplayError
from shared_scheduler.records.record_file import DAMAGED
from shared_scheduler.records.store import Record

MB_PER_GB = 1024
#: Hints that say nothing beyond what the record holds.
KNOWN_HINTS = frozenset({"group"})


def asked_again(record: Record) -> WhatIf:
    """The request of a record.

    :raises CannotReplayError: when the record does not hold all of the request
    :raises WhatIfError: when the record is damaged
    """
    asked: Mapping[str, Any] = record.get("asked", {})
    if DAMAGED in record:
        raise CannotReplayError("the line is not a record")
    if "sizes" not in asked:
        raise CannotReplayError("the record is from a release that did not keep the sizes of the flavor")
    _check(asked)
    group, policy = asked["group"] or ("", "")
    destination = asked["destination"] or {}
    return what_if_of({
        "flavor": asked["flavor"], **asked["sizes"], **_local_disk(asked), "extra_specs": asked["extra_specs"],
        "image": asked["image"], "image_properties": asked["image_properties"],
        "number": len(asked["instances"]), "group": "" if policy == LABEL_POLICY else group,
        "availability_zone": asked["availability_zone"], "host": destination.get("host"),
        "project": asked["project_id"], "user": asked["user_id"], "ignore_hosts": asked["ignore_hosts"],
        "force_hosts": asked["force_hosts"], "force_nodes": asked["force_nodes"],
    })  # fmt: skip


def _check(asked: Mapping[str, Any]) -> None:
    destination = asked["destination"] or {}
    hints = sorted(set(asked["hints"]) - KNOWN_HINTS)
    if asked["is_rebuild"] or not asked["forms"]:
        raise CannotReplayError("a rebuild, or a request that claimed nothing, is not decided again")
    if hints:
        raise CannotReplayError(f"the values of the hints {', '.join(hints)} are not recorded")
    if destination.get("cell") or destination.get("node"):
        raise CannotReplayError("a move is bound to the cell or the node of its server")


def _local_disk(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Swap, and whether the root disk is a volume: both follow from the disk that was asked of Placement."""
    sizes, disk = asked["sizes"], asked["forms"][0]["resources"].get("DISK_GB", 0)
    rest = disk - sizes["root_gb"] - sizes["ephemeral_gb"]
    from_volume = rest < 0
    swap_gb = disk - sizes["ephemeral_gb"] if from_volume else rest
    return {"swap_mb": max(swap_gb, 0) * MB_PER_GB, "boot_from_volume": from_volume}


def differs_from(record: Record, asked: Mapping[str, Any]) -> bool:
    """Whether a request that was made again (``decision.record.asked_of``) asks for other resources."""

    def resources(one: Mapping[str, Any]) -> Any:
        forms = [(form["resources"], form.get("numbered", [])) for form in one["forms"]]
        return forms, one["has_numa"], one["has_pci"]

    return bool(resources(record["asked"]) != resources(asked))
