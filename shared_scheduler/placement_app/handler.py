# SPDX-License-Identifier: Apache-2.0
"""Placement's handler with three routes of its own: the write path first, then Placement's own handler."""

from __future__ import annotations

from typing import Any, Protocol

import webob
from oslo_config import cfg
from oslo_log import log as logging
from placement import db_api, exception, handler
from placement.handlers import allocation, reshaper
from placement.policies import allocation as policies

from shared_scheduler.placement_app import conflicts, known_schema, lock_waits
from shared_scheduler.placement_app.cached_ids import Ids
from shared_scheduler.placement_app.conflict_retry import ConflictRetry, attempt_once
from shared_scheduler.placement_app.database_errors import DATABASE_ERRORS, is_deadlock, is_lock_timeout
from shared_scheduler.placement_app.kept_connections import KeptConnections
from shared_scheduler.placement_app.transaction import NewConsumersWrite
from shared_scheduler.placement_app.write_request import NewConsumer, NotTakenError, PostRequests, PutRequests

LOG = logging.getLogger(__name__)

#: How often the transaction is tried again after a deadlock, before Placement's own handler gets the request.
DEADLOCK_RETRIES = 3


class RequestReader(Protocol):
    """Reads one kind of request."""

    def read(self, request: webob.Request) -> tuple[NewConsumer, ...]: ...


class WritePath:
    """Writes new consumers; everything else goes to the handler ``otherwise``."""

    def __init__(
        self, requests: RequestReader, policy: str, ids: Ids, connections: KeptConnections, otherwise: Any
    ) -> None:
        self._requests = requests
        self._policy = policy
        self._ids = ids
        self._connections = connections
        self._otherwise = otherwise

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            answer = self._answer(webob.Request(environ))
        except (NotTakenError, exception.NotFound, *DATABASE_ERRORS) as reason:
            LOG.debug("Placement's own handler writes these allocations: %s", reason)
            answer = self._otherwise
        except Exception:
            # the transaction is rolled back; Placement's own handler does not depend on our mistakes
            LOG.exception("The write path failed; Placement's own handler writes these allocations.")
            answer = self._otherwise
        return answer(environ, start_response)

    def _answer(self, request: webob.Request) -> Any:
        context = request.environ["placement.context"]
        if not context.can(self._policy, fatal=False):
            raise NotTakenError("not allowed by policy")
        write = NewConsumersWrite(context, self._requests.read(request), self._ids)
        try:
            _run(write, self._connections)
        except exception.InvalidInventory as error:
            return conflicts.refused(error)
        except lock_waits.LockWaitError as error:
            return conflicts.concurrent_update(request, error)
        return _written()


def _run(write: NewConsumersWrite, connections: KeptConnections) -> None:
    """In a transaction, and again after a deadlock, which ended it without an effect.

    :raises LockWaitError: when it waited for a lock in vain; it would wait again, here and in Placement's own handler
    """
    for left in reversed(range(1 + DEADLOCK_RETRIES)):
        try:
            return connections.transaction(write.run)
        except DATABASE_ERRORS as error:
            if is_lock_timeout(error):
                raise lock_waits.LockWaitError from error
            if not left or not is_deadlock(error):
                raise


def _written() -> webob.Response:
    """As Placement's own handlers do it: with the headers of an answer that might have had a body."""
    response = webob.Response()
    response.status = 204
    response.content_type = None
    return response


class WritesHandler(handler.PlacementHandler):
    """Placement's handler; after ``start`` with routes of its own, if the database's schema is known."""

    def __init__(self, config: cfg.ConfigOpts) -> None:
        super().__init__(config=config)
        self.announces = False

    def start(self) -> None:
        """Take the routes, once the database is there."""
        unknown = known_schema.difference(db_api.get_placement_engine())
        if unknown is not None:
            LOG.warning(
                "The database has a schema that the write path does not know (%s); Placement's own handlers do all "
                "writes. Load placement.wsgi.api, or install the release of shared_scheduler for this Placement.",
                unknown,
            )
            return
        lock_waits.limit(db_api.get_placement_engine())
        self._map = handler.make_map(_routes(self.config))
        self.announces = True


def _routes(config: cfg.ConfigOpts) -> dict[str, dict[str, Any]]:
    """Placement's routes with ours in them."""
    attempts, recycle_s = attempt_once(config), config.placement_database.connection_recycle_time
    parts = Ids(), KeptConnections(db_api.get_placement_engine, recycle_s)
    put = ConflictRetry(allocation.set_allocations_for_consumer, attempts)
    post = ConflictRetry(allocation.set_allocations, attempts)
    routes = {path: dict(methods) for path, methods in handler.ROUTE_DECLARATIONS.items()}
    routes["/allocations/{consumer_uuid}"]["PUT"] = WritePath(PutRequests(), policies.ALLOC_UPDATE, *parts, put)
    routes["/allocations"]["POST"] = WritePath(PostRequests(), policies.ALLOC_MANAGE, *parts, post)
    routes["/reshaper"]["POST"] = ConflictRetry(reshaper.reshape, attempts)
    return routes
