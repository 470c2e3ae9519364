# SPDX-License-Identifier: Apache-2.0
"""The lowest nova-compute version over all cells, without a query per cell and request.

Nova's ``owner_nova_filter`` demands the trait OWNER_NOVA only once every compute is new enough to
report it.  A "yes" is kept for some seconds; a "no", or an answer that a cell was missing from, is
never kept.  An old compute that registers meanwhile is passed over for these seconds at most, which
is harmless; it could not be chosen wrongly because of it.
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

#: How long "all computes are new enough" is believed.
YES_KEPT_S = 10.0


class MinimumComputeVersion:
    """Answers "is every nova-compute at least at version v?"."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known = 0
        self._until_s = float("-inf")

    def reached(self, context: Any, version: int) -> bool:
        """One query per cell when what is known is too old or too low."""
        if self._known >= version and self._clock() < self._until_s:
            return True
        with self._lock:  # one query at a time; who waited takes the answer
            if self._known >= version and self._clock() < self._until_s:
                return True
            return self._ask(context) >= version

    def forget(self) -> None:
        """Ask again next time (cells may have changed)."""
        self._until_s = float("-inf")

    def _ask(self, context: Any) -> int:
        asked_at_s = self._clock()
        try:
            self._known = int(_minimum(context, require_all=True))
            self._until_s = asked_at_s + YES_KEPT_S
            return self._known
        except exception.CellTimeout:
            LOG.warning("A cell did not tell its compute versions; going by the others, once")
            return int(_minimum(context, require_all=False))


def _minimum(context: Any, require_all: bool) -> Any:
    return service.get_minimum_version_all_cells(
        context, ["nova-compute"], require_all=require_all
    )
