# SPDX-License-Identifier: Apache-2.0
"""Mapping of new computes to their cells, by one scheduler of all: the leader.

The leader is the first, by name, of the hosts whose nova-scheduler record is up.  It is Nova's own
rule, so that ours and Nova's schedulers agree when they run side by side.
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
    """One call looks once."""

    def __init__(self, servicegroup_api: Any) -> None:
        self._servicegroup_api = servicegroup_api
        self._warned = False

    def look(self, context: Any) -> list[Any]:
        """Map what is not mapped yet, if this host leads; returns the new host mappings."""
        leader = self.leader(context)
        if leader != CONF.host:
            LOG.debug("Hosts are discovered by %s, not here", leader or "nobody: none is up")
            return []
        try:
            found = list(host_mapping.discover_hosts(context))
        except exception.HostMappingExists as error:
            self._say_that_others_do_it_too(error)
            return []
        if found:
            names = ", ".join(f"{each.cell_mapping.name}:{each.host}" for each in found)
            LOG.info("Discovered %d new hosts: %s", len(found), names)
        return found

    def leader(self, context: Any) -> str | None:
        """The host that discovers; None while no scheduler is up yet (this one has just begun)."""
        records = service.ServiceList.get_by_binary(context, "nova-scheduler")
        up = [each.host for each in records if self._servicegroup_api.service_is_up(each)]
        return min(up, default=None)

    def _say_that_others_do_it_too(self, error: Exception) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        LOG.log(
            level,
            "Somebody else maps hosts as well (nova-manage cell_v2 discover_hosts?); "
            "[scheduler] discover_hosts_in_cells_interval should be set in one place: %s",
            error,
        )
