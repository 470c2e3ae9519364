# SPDX-License-Identifier: Apache-2.0
"""Converts choices to what the conductor expects: Selections, or dicts for conductors before Queens."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import nova.conf
from nova.objects.request_spec import SchedulerLimits
from nova.objects.selection import Selection
from nova.scheduler.client import report
from oslo_serialization import jsonutils

from shared_scheduler.core.effects import Choice
from shared_scheduler.core.events import Candidate
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.request_spec import ATTRIBUTE_PREFIX

CONF = nova.conf.CONF

#: The version of our candidates' form.  The conductor claims alternates with it (contract 1.3, trap 20).
ALLOCATION_REQUEST_VERSION = report.SAME_SUBTREE_VERSION


def allocation_request(candidate: Candidate) -> dict[str, Any]:
    """An allocation request as Placement returns it, which ``PUT /allocations`` accepts unchanged."""
    return {
        "allocations": {
            provider: {"resources": dict(resources)} for provider, resources in candidate.allocations.items()
        },
        "mappings": {suffix: list(given) for suffix, given in candidate.mappings.items()},
    }


class ReadySelection(Selection):
    """A Selection that is made and serialised fast, because none of its fields is changed after it is made.

    Its values have the types of the fields, whose checks would cost most of the time.  Strings are their own
    primitives, and limits are nearly always empty.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self.__dict__.update({f"{ATTRIBUTE_PREFIX}{name}": value for name, value in values.items()})
        self._changed_fields.update(values)

    @classmethod
    def obj_name(cls) -> str:
        """Nova's name, because the receiver knows no other."""
        name: str = Selection.obj_name()
        return name

    def obj_to_primitive(self, target_version: str | None = None, version_manifest: Any = None) -> dict[str, Any]:
        """The same primitive as Nova's class makes."""
        if target_version not in (None, self.VERSION) or version_manifest:
            older: dict[str, Any] = super().obj_to_primitive(target_version, version_manifest)
            return older
        data = {name: getattr(self, name) for name in self.fields}
        limits = data["limits"]
        bounded = any(getattr(limits, name) is not None for name in limits.fields)
        data["limits"] = limits.obj_to_primitive() if bounded else _no_limits()
        return {
            "nova_object.name": self.obj_name(),
            "nova_object.namespace": self.OBJ_PROJECT_NAMESPACE,
            "nova_object.version": self.VERSION,
            "nova_object.data": data,
            "nova_object.changes": list(data),
        }


@cache
def _no_limits() -> dict[str, Any]:
    """Shared by all Selections without limits; serialisers copy it."""
    primitive: dict[str, Any] = _unlimited().obj_to_primitive()
    return primitive


@cache
def _unlimited() -> Any:
    """Shared as well."""
    return SchedulerLimits.from_dict({})


def selection(choice: Choice, zone_of: Callable[[str], str | None]) -> Any:
    """One ``objects.Selection``.  Without a candidate the allocation request is the JSON text ``null``, as in Nova."""
    candidate = choice.candidate
    return ReadySelection(
        compute_node_uuid=choice.node,
        service_host=choice.host,
        nodename=choice.nodename,
        cell_uuid=choice.cell,
        limits=SchedulerLimits.from_dict(choice.limits) if choice.limits else _unlimited(),
        allocation_request=json.dumps(None if candidate is None else allocation_request(candidate)),
        allocation_request_version=None if candidate is None else ALLOCATION_REQUEST_VERSION,
        availability_zone=zone_of(choice.host),
    )


def selections(choices: Sequence[Sequence[Choice]], aggregates: AggregateCache) -> list[list[Any]]:
    """One list for each instance, in order: the claimed host, then alternates."""

    def zone_of(host: str) -> str | None:
        return zone(aggregates, host)

    return [[selection(choice, zone_of) for choice in one] for one in choices]


def legacy(found: Sequence[Sequence[Any]]) -> Any:
    """The form without objects: for each instance a dict with host, nodename and limits."""
    return jsonutils.to_primitive([one[0].to_dict() for one in found])


def zone(aggregates: AggregateCache, host: str) -> str | None:
    """The availability zone of a service host: that of its aggregates, or the default."""
    named = {
        part.strip()
        for each in aggregates.of_host(host)
        for part in each.metadata.get("availability_zone", "").split(",")
        if part.strip()
    }
    default: str | None = CONF.default_availability_zone
    return min(named, default=default)
