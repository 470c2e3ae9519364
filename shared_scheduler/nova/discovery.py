# SPDX-License-Identifier: Apache-2.0
"""Mapping of new computes to their cells, by one scheduler: the leader.

The leader is the first host, by name, whose nova-scheduler record is up.  This is Nova's own rule, so
both kinds of schedulers agree on the leader when they run side by side.
"""

from __future__ import annotations

import logging
from typing import Any

import nova.conf
from nova import exception
from nova.objects import host_mapping, service

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)


class HostDiscovery:
    """Runs the discovery that ``nova-manage cell_v2 discover_hosts`` runs."""

    def __init__(self, servicegroup_api: Any) -> None:
        self._servicegroup_api = servicegroup_api
        self._warned = False

    def discover(self, context: Any) -> list[Any]:
        """Map the hosts without a mapping, if this host is the leader; the new host mappings."""
        leader = self.leader(context)
        if leader != CONF.host:
            LOG.debug("Another scheduler discovers hosts: %s", leader or "none, because no scheduler is up")
            return []
        try:
            found = list(host_mapping.discover_hosts(context))
        except exception.HostMappingExists as error:
            self._warn_of_concurrent_mapping(error)
            return []
        if found:
            names = ", ".join(f"{each.cell_mapping.name}:{each.host}" for each in found)
            LOG.info("Discovered %d new hosts: %s", len(found), names)
        return found

    def leader(self, context: Any) -> str | None:
        """The host that discovers; None while no scheduler is up (this one has just started)."""
        records = service.ServiceList.get_by_binary(context, "nova-scheduler")
        up = [each.host for each in records if self._servicegroup_api.service_is_up(each)]
        return min(up, default=None)

    def _warn_of_concurrent_mapping(self, error: Exception) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        LOG.log(
            level,
            "Another process maps hosts too (nova-manage cell_v2 discover_hosts?); "
            "[scheduler] discover_hosts_in_cells_interval should be set in one place: %s",
            error,
        )
