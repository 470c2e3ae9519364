# SPDX-License-Identifier: Apache-2.0
"""Which image properties the instances of a nova-compute have, as Nova's ImagePropertiesWeigher sees them.

Nova keeps an image's properties in the system metadata of each instance, where every list of instances that
the resource tracker works through has them already: nothing is read for this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from shared_scheduler.model.image_properties import Pair, counted
from shared_scheduler.protocol.messages import Leaf


def pairs_of(image_meta: Callable[[], Any]) -> frozenset[Pair]:
    """What an ``objects.ImageMeta`` says; nothing where Nova does not take it (a value of another release)."""
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
    """The instances that were seen.  Making Nova's object is the dear part: once for the same metadata."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def see(self, instance: Any) -> None:
        """Remember it; one whose metadata are not loaded stays as it was."""
        if "system_metadata" not in instance:
            return
        metadata, uuid = dict(instance.system_metadata), str(instance.uuid)
        before = self._seen.get(uuid)
        if before is None or before.system_metadata != metadata:
            self._seen[uuid] = _Seen(metadata, pairs_of(lambda: instance.image_meta))

    def keep(self, uuids: Collection[str]) -> None:
        """All others are no more."""
        for gone in [uuid for uuid in self._seen if uuid not in uuids]:
            del self._seen[gone]

    def leaves(self, uuids: Collection[str]) -> dict[str, Leaf]:
        """Counts over these instances."""
        return counted(self._seen[uuid].pairs for uuid in uuids if uuid in self._seen)
