# SPDX-License-Identifier: Apache-2.0
"""Ids of rows by their external names, read by Placement's own code and kept for a while.

A project, a user and a consumer type are created on their first use, as Placement does it, in a transaction of their
own; Placement never deletes them.  The age is bounded because an operator may repair a database by hand.  Providers are
not among them: the transaction finds their ids when it locks them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cachetools import TTLCache
from placement.handlers import util as handler_util

#: Names of each kind that are kept, and for how long.
NAMES_MAX = 50_000
AGE_S = 600.0


class CachedIds:
    """Ids of one kind.  Threads may share it."""

    def __init__(self, read_id: Callable[[Any, str], int | None]) -> None:
        self._read_id = read_id
        self._ids: TTLCache[str, int | None] = TTLCache(NAMES_MAX, AGE_S)
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        """Whether the id of this name was read lately."""
        with self._lock:
            return name in self._ids

    def of(self, context: Any, name: str) -> int | None:
        """The id of this name, which is created on its first use."""
        with self._lock:
            if name in self._ids:
                return self._ids[name]
        found = self._read_id(context, name)
        with self._lock:
            self._ids[name] = found
        return found


class Ids:
    """All kinds that a write needs."""

    def __init__(self) -> None:
        self.projects = CachedIds(lambda context, name: handler_util._get_or_create_project(context, name).id)
        self.users = CachedIds(lambda context, name: handler_util._get_or_create_user(context, name).id)
        self.consumer_types = CachedIds(handler_util.get_or_create_consumer_type_id)
