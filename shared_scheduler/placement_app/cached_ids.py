# SPDX-License-Identifier: Apache-2.0
"""Ids of rows by their external names, read by Placement's own code and kept for a while.

Placement creates a project, a user and a consumer type on their first use, and never deletes them.  The first write
with a new name is therefore left to its own handler, which creates the names in its own order of checks.  The age is
bounded because an operator may repair a database by hand.  Providers are not among them: the transaction finds their
ids when it locks them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cachetools import TTLCache
from placement.objects.project import Project
from placement.objects.user import User

#: Names of each kind that are kept, and for how long.
NAMES_MAX = 50_000
AGE_S = 600.0


class CachedIds:
    """Ids of one kind.  Threads may share it."""

    def __init__(self, read_id: Callable[[Any, str], int]) -> None:
        self._read_id = read_id
        self._ids: TTLCache[str, int] = TTLCache(NAMES_MAX, AGE_S)
        self._lock = threading.Lock()

    def of(self, context: Any, name: str) -> int:
        """The id of this name.

        :raises placement.exception.NotFound: when there is none
        """
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
        self.projects = CachedIds(lambda context, name: Project.get_by_external_id(context, name).id)
        self.users = CachedIds(lambda context, name: User.get_by_external_id(context, name).id)
        self.consumer_types = CachedIds(lambda context, name: context.ct_cache.id_from_string(name))
