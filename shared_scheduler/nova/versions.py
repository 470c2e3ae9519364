# SPDX-License-Identifier: Apache-2.0
"""The lowest nova-compute version of all cells, without a query for each cell and request.

Nova's ``owner_nova_filter`` demands the trait OWNER_NOVA only once every compute is new enough to
report it.  A positive answer is cached for some seconds.  A negative answer, or one without all cells, is
not cached.  An older compute that registers in between is not selected for these seconds at most, which is
harmless.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from nova import exception
from nova.objects import service

LOG = logging.getLogger(__name__)

#: How long a positive answer is cached.
YES_KEPT_S = 10.0


class MinimumComputeVersion:
    """Whether every nova-compute has at least a given version."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known = 0
        self._until_s = float("-inf")

    def reached(self, context: Any, version: int) -> bool:
        """Whether all have ``version``.  Runs one query for each cell if the cached answer is too old or too low."""
        if self._known >= version and self._clock() < self._until_s:
            return True
        with self._lock:  # one query at a time; the waiting threads use its answer
            if self._known >= version and self._clock() < self._until_s:
                return True
            return self._ask(context) >= version

    def forget(self) -> None:
        """Drop the cached answer, because cells may have changed."""
        self._until_s = float("-inf")

    def _ask(self, context: Any) -> int:
        asked_at_s = self._clock()
        try:
            self._known = int(_minimum(context, require_all=True))
            self._until_s = asked_at_s + YES_KEPT_S
            return self._known
        except exception.CellTimeout:
            LOG.warning("A cell did not report its compute versions; using those of the other cells once")
            return int(_minimum(context, require_all=False))


def _minimum(context: Any, require_all: bool) -> Any:
    return service.get_minimum_version_all_cells(context, ["nova-compute"], require_all=require_all)
