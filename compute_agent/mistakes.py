# SPDX-License-Identifier: Apache-2.0
"""Readings inside nova-compute that must never cost it anything, however often they fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

#: How often a mistake of the same reading is logged: hooks are called many times a second.
LOG_INTERVAL_S = 60.0


class Mistakes:
    """Of ``whose`` hooks.  What a reading raises ends here."""

    def __init__(self, log: logging.Logger, whose: str) -> None:
        self._log = log
        self._whose = whose
        self._logged_at_s: dict[str, float] = {}  # by the name of the reading

    def safely(self, reading: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call it, whatever becomes of it."""
        try:
            reading(*args, **kwargs)
        except Exception:
            self._tell(reading.__name__)

    def _tell(self, where: str) -> None:
        now = time.monotonic()
        if now - self._logged_at_s.get(where, float("-inf")) >= LOG_INTERVAL_S:
            self._logged_at_s[where] = now
            self._log.exception("%s: %s failed; nova-compute is not affected", self._whose, where)
