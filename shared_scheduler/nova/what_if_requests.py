# SPDX-License-Identifier: Apache-2.0
"""Makes the request that Nova's API and conductor would have made of plain values (``decision/what_if.py``).

The RequestSpec has been through the request filters, as in ``manager.select_destinations``, so required aggregates and
traits are those of production.  Ports, volumes and device profiles have resources of their own, which plain values do
not name.
"""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import nova.conf
from nova import context as nova_context
from nova import exception, objects
from nova.pci import request as pci_request
from nova.virt import hardware

from shared_scheduler.decision.request import Request
from shared_scheduler.decision.what_if import WhatIf, WhatIfError
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.request_filters import AZ_KEY
from shared_scheduler.nova.request_spec import is_of_root, make_request, resource_requests
from shared_scheduler.protocol.messages import GroupPolicy

CONF = nova.conf.CONF

POLICIES = tuple(policy.value for policy in GroupPolicy)
#: Properties of an image whose names contain a trait.
TRAIT_PREFIX = "trait:"


class WhatIfRequests:
    """Makes requests.  ``filters`` are the request filters of production."""

    def __init__(self, host_manager: Any, aggregates: AggregateCache, filters: Callable[[Any, Any], None]) -> None:
        self._host_manager = host_manager
        self._aggregates = aggregates
        self._filters = filters

    def make(self, asked: WhatIf, servers: int, known: Sequence[str] = ()) -> Request:
        """The request for ``servers`` servers: those with the uuids ``known``, or new ones.

        It is root-only if the root provider gives everything: traits and aggregates are decided from the table.

        :raises WhatIfError: when something that is named does not exist, or has a wrong value
        """
        context = nova_context.RequestContext(asked.user or None, asked.project or None, is_admin=True)
        uuids = list(known) if any(known) else [str(uuid.uuid4()) for _ in range(servers)]
        try:
            spec = self._spec(context, asked, uuids[0])
            self._filters(context, spec)
            request = make_request(context, spec, uuids, 0, self._host_manager)
            requests = resource_requests(context, spec, self._host_manager)
        except exception.NoValidHost as error:
            raise WhatIfError(f"no host may serve this request: {error.format_message()}") from error
        except (exception.NovaException, ValueError, TypeError) as error:
            if isinstance(error, WhatIfError):
                raise
            raise WhatIfError(f"Nova refuses this request: {error}") from error
        return replace(request, root_only=all(map(is_of_root, requests)))

    def _spec(self, context: Any, asked: WhatIf, server: str) -> Any:
        flavor, image = _flavor(context, asked), _image(asked)
        affinity = hardware.get_pci_numa_policy_constraint(flavor, image)
        spec = objects.RequestSpec.from_components(
            context, server, image, flavor,
            hardware.numa_get_constraints(flavor, image),
            pci_request.get_pci_requests_from_flavor(flavor, affinity_policy=affinity),
            _properties(asked), _group(context, asked), self._zone(asked), project_id=asked.project, user_id=asked.user,
        )  # fmt: skip
        spec.is_bfv = asked.boot_from_volume
        spec.requested_networks = objects.NetworkRequestList(objects=[])
        destination = self._destination(asked)
        if destination is not None:
            spec.requested_destination = destination
        return spec

    def _zone(self, asked: WhatIf) -> str | None:
        zone = asked.availability_zone
        if zone and zone != CONF.default_availability_zone and not self._aggregates.with_metadata(AZ_KEY, zone):
            raise WhatIfError(f"availability_zone: no host aggregate has the zone {zone!r}")
        return zone or None

    def _destination(self, asked: WhatIf) -> Any:
        if not asked.host and not asked.aggregates:
            return None
        found = objects.Destination(host=asked.host) if asked.host else objects.Destination()
        for name in asked.aggregates:
            found.require_aggregates([each.uuid for each in self._named(name)])
        return found

    def _named(self, name: str) -> list[Any]:
        found = [each for each in self._aggregates.all() if name in (each.name, each.uuid)]
        if not found:
            raise WhatIfError(f"aggregates: there is no host aggregate {name!r}")
        return found


def _properties(asked: WhatIf) -> dict[str, Any]:
    return {
        "scheduler_hints": dict(asked.hints),
        "ignore_hosts": list(asked.ignore_hosts) or None,
        "force_hosts": list(asked.force_hosts) or None,
        "force_nodes": list(asked.force_nodes) or None,
    }


def _flavor(context: Any, asked: WhatIf) -> Any:
    given = {
        "vcpus": asked.vcpus, "memory_mb": asked.memory_mb, "root_gb": asked.root_gb,
        "ephemeral_gb": asked.ephemeral_gb, "swap": asked.swap_mb,
    }  # fmt: skip
    found = _stored_flavor(context, asked.flavor) if asked.looks_up_flavor else _new_flavor(asked.flavor)
    for name, value in given.items():
        if value is not None:
            setattr(found, name, value)
    required = {f"trait:{trait}": "required" for trait in asked.traits}
    found.extra_specs = {**found.extra_specs, **asked.extra_specs, **required}
    return found


def _stored_flavor(context: Any, name: str) -> Any:
    try:
        return objects.Flavor.get_by_name(context, name)
    except exception.FlavorNotFoundByName:
        pass
    try:
        return objects.Flavor.get_by_flavor_id(context, name)
    except exception.FlavorNotFound:
        raise WhatIfError(f"flavor: there is no flavor {name!r}; name another, or give vcpus and memory_mb") from None


def _new_flavor(name: str) -> Any:
    return objects.Flavor(
        id=0, flavorid=name, name=name, vcpus=0, memory_mb=0, root_gb=0, ephemeral_gb=0, swap=0, extra_specs={},
        rxtx_factor=1.0, vcpu_weight=0, disabled=False, is_public=True, description=None,
    )  # fmt: skip


def _image(asked: WhatIf) -> Any:
    unknown = [name for name in asked.image_properties if not _is_image_property(name)]
    if unknown:
        raise WhatIfError(f"image_properties: Nova does not know {', '.join(unknown)}")
    properties = {name: _plain(value) for name, value in asked.image_properties.items()}
    image = objects.ImageMeta.from_dict({"properties": dict(_settable(properties))})
    for name, value in properties.items():
        if isinstance(value, list):
            setattr(image.properties, name, value)
    if asked.image:
        image.id = asked.image
    return image


def _is_image_property(name: str) -> bool:
    known = objects.ImageMetaProps
    return name in known.fields or name in known._legacy_property_map or name.startswith(TRAIT_PREFIX)


def _plain(value: str) -> Any:
    """A list as a record keeps it (``['a']``) as a list; any other value as it is."""
    return ast.literal_eval(value) if value.startswith("[") else value


def _settable(properties: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in properties.items() if not isinstance(value, list))


def _group(context: Any, asked: WhatIf) -> Any:
    if asked.group:
        found = objects.InstanceGroup.get_by_uuid(context, asked.group)
        found.hosts = []  # the table knows the hosts of the members
        return found
    if not asked.group_policy:
        return None
    if asked.group_policy not in POLICIES:
        raise WhatIfError(f"group_policy: {asked.group_policy!r} is not one of {', '.join(POLICIES)}")
    rules = {"max_server_per_host": str(asked.max_server_per_host)} if asked.max_server_per_host > 1 else {}
    return objects.InstanceGroup(
        context, uuid=str(uuid.uuid4()), policy=asked.group_policy, policies=[asked.group_policy], _rules=rules,
        members=[], hosts=[],
    )  # fmt: skip
