# SPDX-License-Identifier: Apache-2.0
"""Nova's request filters without their queries to the databases.

The filters of ``nova.scheduler.request_filter.ALL_REQUEST_FILTERS`` run in order.  The four that query a
database for each request are replaced by the same rule over cached aggregates and versions.  All others,
among them those of Neutron, are Nova's own functions, called with the caller's own context.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import nova.conf
import os_traits
from nova import exception, objects
from nova.i18n import _
from nova.scheduler import request_filter, utils

from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.versions import MinimumComputeVersion

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

RequestFilter = Callable[[Any, Any], Any]

ISOLATION_PREFIX = "trait:"
ISOLATION_VALUE = "required"
AZ_KEY = "availability_zone"


class RequestFilters:
    """Called with the caller's context and a RequestSpec, which it changes."""

    def __init__(
        self,
        aggregates: AggregateCache,
        versions: MinimumComputeVersion,
        learned: Callable[[list[Any]], None],
    ) -> None:
        """``learned`` is called with aggregates that were read from the database and not cached."""
        self._aggregates = aggregates
        self._versions = versions
        self._learned = learned
        self._instead: dict[RequestFilter, RequestFilter] = {
            request_filter.require_tenant_aggregate: self._require_tenant_aggregate,
            request_filter.map_az_to_placement_aggregate: self._map_az_to_aggregate,
            request_filter.isolate_aggregates: self._isolate_aggregates,
            request_filter.owner_nova_filter: self._owner_nova,
        }

    def __call__(self, context: Any, spec: Any) -> None:
        """Apply all of them.

        :raises NoValidHost: when one of them says that no host can serve this request
        """
        try:
            for each in request_filter.ALL_REQUEST_FILTERS:
                self._instead.get(each, each)(context, spec)
        except exception.RequestFilterFailed as error:
            raise exception.NoValidHost(reason=error.message) from error

    def _require_tenant_aggregate(self, context: Any, spec: Any) -> None:
        if not CONF.scheduler.limit_tenants_to_placement_aggregate:
            return
        prefix, project = request_filter.TENANT_METADATA_KEY, spec.project_id
        found = self._aggregates.with_value_under_prefix(prefix, project)
        required = CONF.scheduler.placement_aggregate_required_for_tenants
        if not found and required:
            self._read_missing(context, key=None, value=project)
            found = self._aggregates.with_value_under_prefix(prefix, project)
        if found:
            _destination(spec).require_aggregates([each.uuid for each in found])
        elif required:
            LOG.warning("Tenant %s has no available aggregates", project)
            raise exception.RequestFilterFailed(reason=_("No hosts available for tenant"))

    def _map_az_to_aggregate(self, context: Any, spec: Any) -> None:
        zone = spec.availability_zone
        if not zone:
            return
        found = self._aggregates.with_metadata(AZ_KEY, zone)
        if not found and zone != CONF.default_availability_zone:
            self._read_missing(context, key=AZ_KEY, value=zone)
            found = self._aggregates.with_metadata(AZ_KEY, zone)
        if found:  # a zone without an aggregate does not restrict the hosts, as in Nova
            _destination(spec).require_aggregates([each.uuid for each in found])

    def _isolate_aggregates(self, _context: Any, spec: Any) -> None:
        if not CONF.scheduler.enable_isolated_aggregate_filtering:
            return
        traits = utils.ResourceRequest.from_request_spec(spec).all_required_traits
        satisfied = {ISOLATION_PREFIX + trait for trait in traits}
        isolated = self._aggregates.demanding(ISOLATION_PREFIX, ISOLATION_VALUE, satisfied)
        if isolated:
            _destination(spec).append_forbidden_aggregates({each.uuid for each in isolated})

    def _owner_nova(self, _context: Any, spec: Any) -> None:
        if os_traits.OWNER_NOVA in spec.root_required:
            return
        needed = request_filter.MIN_COMPUTE_VERSION_OWNER_TRAIT
        if not self._versions.reached(needed):
            LOG.warning("The trait OWNER_NOVA is not required, because a nova-compute is older than version %d", needed)
            return
        spec.root_required.add(os_traits.OWNER_NOVA)
        pci_ids = _pci_request_ids(spec)
        for group in spec.requested_resources or [] if pci_ids else []:
            if (group.requester_id or "").rsplit("-", 1)[0] in pci_ids:
                group.required_traits.add(os_traits.OWNER_NOVA)

    def _read_missing(self, context: Any, key: str | None, value: str) -> None:
        """Read aggregates from the database that the cache does not have, and cache them."""
        thin = objects.AggregateList.get_by_metadata(context, key=key, value=value)
        if not thin:
            return
        # what that query returns carries the matching metadata only; read these in full
        full = [objects.Aggregate.get_by_id(context, each.id) for each in thin]
        LOG.info("Read aggregates %s, which were not cached", [each.name for each in full])
        self._aggregates.update(full)
        self._learned(full)


def _destination(spec: Any) -> Any:
    if "requested_destination" not in spec or spec.requested_destination is None:
        spec.requested_destination = objects.Destination()
    return spec.requested_destination


def _pci_request_ids(spec: Any) -> set[str]:
    """Ids of the PCI requests that do not come from a Neutron port."""
    if "pci_requests" not in spec or not spec.pci_requests:
        return set()
    return {
        each.request_id
        for each in spec.pci_requests.requests
        if each.source != objects.InstancePCIRequest.NEUTRON_PORT and each.request_id
    }
