# SPDX-License-Identifier: Apache-2.0
"""The image properties of a nova-compute's instances, as Nova's ImagePropertiesWeigher counts them.

Nova stores the properties of an image in the system metadata of each instance.  Every list of instances that the
resource tracker processes contains them, so no additional read is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from shared_scheduler.model.image_properties import Pair, counted
from shared_scheduler.protocol.messages import Leaf


def pairs_of(image_meta: Callable[[], Any]) -> frozenset[Pair]:
    """The pairs of an ``objects.ImageMeta``; empty if Nova rejects it (a value of another release)."""
    try:
        properties = image_meta().properties.to_dict()
    except ValueError:
        return frozenset()
    return frozenset((key, str(value)) for key, value in properties.items())


@dataclass(frozen=True, slots=True)
class _Seen:
    system_metadata: dict[str, Any]
    pairs: frozenset[Pair]


class InstanceImages:
    """The image properties of known instances.  Nova's object is costly, so it is created once for equal metadata."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def see(self, instance: Any) -> None:
        """Store the properties of an instance; nothing changes if its metadata are not loaded."""
        if "system_metadata" not in instance:
            return
        metadata, uuid = dict(instance.system_metadata), str(instance.uuid)
        before = self._seen.get(uuid)
        if before is None or before.system_metadata != metadata:
            self._seen[uuid] = _Seen(metadata, pairs_of(lambda: instance.image_meta))

    def keep(self, uuids: Collection[str]) -> None:
        """Forget all other instances."""
        for gone in [uuid for uuid in self._seen if uuid not in uuids]:
            del self._seen[gone]

    def leaves(self, uuids: Collection[str]) -> dict[str, Leaf]:
        """The leaves with the counts of these instances."""
        return counted(self._seen[uuid].pairs for uuid in uuids if uuid in self._seen)
