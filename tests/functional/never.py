# SPDX-License-Identifier: Apache-2.0
"""A scheduler that is broken: it finds no host, ever."""

from __future__ import annotations

from typing import Any

import oslo_messaging as messaging
from nova import exception

from shared_scheduler.nova.manager import SharedSchedulerManager


class NeverManager(SharedSchedulerManager):
    """Ours in everything else."""

    @messaging.expected_exceptions(exception.NoValidHost)
    def select_destinations(self, *args: Any, **kwargs: Any) -> Any:
        """See Nova's."""
        raise exception.NoValidHost(reason="it never looks")
