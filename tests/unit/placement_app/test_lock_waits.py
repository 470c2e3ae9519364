# SPDX-License-Identifier: Apache-2.0
"""A transaction is repeated after a deadlock, and not after it has waited for a lock in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
import webob
from microversion_parse import Version
from placement import microversion

from shared_scheduler.placement_app import lock_waits
from shared_scheduler.placement_app.cached_ids import Ids
from shared_scheduler.placement_app.handler import DEADLOCK_RETRIES, WritePath
from tests.unit.placement_app.database_errors import (
    DEADLOCK,
    LOCK_WAIT,
    POSTGRESQL_DEADLOCK,
    POSTGRESQL_FULL,
    POSTGRESQL_LOCK_WAIT,
    POSTGRESQL_SNAPSHOT,
)

#: The status of what Placement's own handler answers.
OWN_HANDLER = 418


class Allowing:
    """The context of a request that the policy allows."""

    def can(self, *_: Any, **__: Any) -> bool:
        return True


class NoConsumers:
    """Reads each request as one that writes no consumers."""

    def read(self, _: webob.Request) -> tuple[()]:
        return ()


class Failing:
    """Connections whose transactions end with these errors, and then succeed."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.count = 0

    def transaction(self, _: Callable[[sa.Connection], None]) -> None:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)


def answer(connections: Any) -> webob.Response:
    path = WritePath(NoConsumers(), "", Ids(), connections, webob.Response(status=OWN_HANDLER))
    request = webob.Request.blank("/allocations/x", method="PUT", body=b"{}", accept="application/json")
    version = Version(1, 36)
    version.max_version = version
    request.environ.update({"placement.context": Allowing(), microversion.MICROVERSION_ENVIRON: version})
    return request.get_response(path)


@pytest.mark.parametrize(
    ("errors", "status", "count"),
    [
        ([DEADLOCK] * DEADLOCK_RETRIES, 204, 1 + DEADLOCK_RETRIES),
        ([DEADLOCK] * (1 + DEADLOCK_RETRIES), OWN_HANDLER, 1 + DEADLOCK_RETRIES),
        ([LOCK_WAIT], 409, 1),
        ([DEADLOCK, LOCK_WAIT], 409, 2),
        ([POSTGRESQL_DEADLOCK, POSTGRESQL_SNAPSHOT], 204, 3),
        ([POSTGRESQL_LOCK_WAIT], 409, 1),
        ([POSTGRESQL_FULL], OWN_HANDLER, 1),
    ],
)
def test_only_a_deadlock_is_tried_again(errors: list[Exception], status: int, count: int) -> None:
    connections = Failing(*errors)
    assert answer(connections).status_code == status
    assert connections.count == count


@pytest.mark.parametrize("error", [LOCK_WAIT, POSTGRESQL_LOCK_WAIT])
def test_a_lock_that_lasts_is_a_conflict_for_the_client(error: Exception) -> None:
    assert answer(Failing(error)).json["errors"][0]["code"] == "placement.concurrent_update"


class Connection:
    """Keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def cursor(self) -> Connection:
        return self

    def execute(self, statement: str) -> None:
        self.sent.append(statement)

    def commit(self) -> None:
        self.sent.append("COMMIT")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("url", "sent"), [
    ("mysql+pymysql://", ["SET innodb_lock_wait_timeout = 5", "COMMIT"]),
    ("mariadb+pymysql://", ["SET innodb_lock_wait_timeout = 5", "COMMIT"]),
    ("postgresql+psycopg2://", ["SET lock_timeout = '5s'", "COMMIT"]),
    ("sqlite://", []),
])  # fmt: skip
def test_waits_are_limited_whatever_the_address_calls_the_database(url: str, sent: list[str]) -> None:
    engine, connection = sa.create_engine(url), Connection()
    before = list(engine.pool.dispatch.connect)
    lock_waits.limit(engine)
    for tell in engine.pool.dispatch.connect:
        if tell not in before:
            tell(connection, None)
    assert connection.sent == sent
