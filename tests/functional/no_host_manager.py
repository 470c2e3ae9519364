# SPDX-License-Identifier: Apache-2.0
"""A broken scheduler: it never finds a host."""

from __future__ import annotations

from typing import Any

import oslo_messaging as messaging
from nova import exception

from shared_scheduler.nova.manager import SharedSchedulerManager


class NoHostManager(SharedSchedulerManager):
    """The manager of shared-scheduler, except that it finds no host."""

    @messaging.expected_exceptions(exception.NoValidHost)
    def select_destinations(self, *args: Any, **kwargs: Any) -> Any:
        """See Nova's."""
        raise exception.NoValidHost(reason="it never looks")
