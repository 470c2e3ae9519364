# SPDX-License-Identifier: Apache-2.0
"""Repeats Placement's own handler after a lost race for a provider: each attempt in a transaction of its own.

Placement repeats inside the transaction (``placement/objects/allocation.py``, ``replace_all``).  There the capacity
check of the second attempt reads the snapshot of the first one, without the allocations that won the race, so the
provider is over-committed.

A deadlock is a lost race as well.  Placement repeats its statements too inside the transaction.  PostgreSQL refuses
them, because the transaction has ended, and stock Placement then answers 500; nothing was written.
"""

from __future__ import annotations

from typing import Any

import webob
from oslo_config import cfg
from placement import util
from placement.exception import ResourceProviderConcurrentUpdateDetected

from shared_scheduler.placement_app import conflicts
from shared_scheduler.placement_app.database_errors import DATABASE_ERRORS, is_deadlock, is_lock_timeout
from shared_scheduler.placement_app.lock_waits import LockWaitError

CONFLICT = 409
LOST_RACE = ResourceProviderConcurrentUpdateDetected.msg_fmt


def attempt_once(conf: cfg.ConfigOpts) -> int:
    """Make Placement's own handlers try once in their transaction; returns how often the operator wants them to try."""
    attempts = int(conf.placement.allocation_conflict_retry_count)
    conf.set_override("allocation_conflict_retry_count", 1, group="placement")
    return attempts


class ConflictRetry:
    """A handler of Placement, repeated while it loses the race for a provider."""

    def __init__(self, handler: Any, attempts: int) -> None:
        self._handler = handler
        self._attempts = attempts

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = webob.Request(environ)
        response = self._attempt(request)
        for _ in range(self._attempts - 1):
            if not _lost_race(response):
                break
            # Placement leaves the error code of its answer here
            environ.pop(util.ENV_ERROR_CODE, None)
            response = self._attempt(request)
        return response(environ, start_response)

    def _attempt(self, request: webob.Request) -> webob.Response:
        try:
            return request.get_response(self._handler)
        except DATABASE_ERRORS as error:
            conflict = _conflict(error)
            if conflict is None:
                raise
            return request.get_response(conflicts.concurrent_update(request, conflict))


def _conflict(error: Exception) -> Exception | None:
    """What to say of a transaction that the database has undone because of another one; nothing of other errors."""
    if is_lock_timeout(error):
        return LockWaitError()
    return ResourceProviderConcurrentUpdateDetected() if is_deadlock(error) else None


def _lost_race(response: webob.Response) -> bool:
    return bool(response.status_code == CONFLICT and LOST_RACE in response.text)
