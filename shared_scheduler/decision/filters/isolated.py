# SPDX-License-Identifier: Apache-2.0
"""The filter for isolated images and isolated hosts."""

from __future__ import annotations

from collections.abc import Mapping

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView


class IsolatedHostsFilter(NativeFilter):
    """Isolated images run only on isolated hosts; other images only on other hosts, if restricted."""

    code = "IsolatedHostsFilter"
    once = True
    selects = True
    on_rebuild = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        settings = context.settings
        restricted = settings.restrict_isolated_hosts_to_isolated_images
        image_isolated = context.request.image_id in settings.isolated_images
        if not restricted and not image_isolated:
            return None
        hosts = settings.isolated_hosts
        isolated = context.masks.rows(context.table, (self.code, hosts), lambda: lambda row: row.host in hosts)
        return isolated if image_isolated else ~isolated

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        settings = context.settings
        return {
            "host_isolated": view.host in settings.isolated_hosts,
            "image_isolated": context.request.image_id in settings.isolated_images,
            "restricted": settings.restrict_isolated_hosts_to_isolated_images,
        }
