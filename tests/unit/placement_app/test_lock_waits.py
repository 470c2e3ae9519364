# SPDX-License-Identifier: Apache-2.0
"""A transaction is repeated after a deadlock, and not after it has waited for a lock in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
import webob
from microversion_parse import Version
from oslo_db import exception as db_exception
from placement import microversion

from shared_scheduler.placement_app import lock_waits
from shared_scheduler.placement_app.cached_ids import Ids
from shared_scheduler.placement_app.handler import DEADLOCK_RETRIES, WritePath

DEADLOCK = (1213, "Deadlock found when trying to get lock; try restarting transaction")
LOCK_WAIT = (1205, "Lock wait timeout exceeded; try restarting transaction")

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
    """Connections whose transactions end with these errors of MySQL, and then succeed."""

    def __init__(self, *errors: tuple[int, str]) -> None:
        self._errors = list(errors)
        self.count = 0

    def transaction(self, _: Callable[[sa.Connection], None]) -> None:
        self.count += 1
        if self._errors:
            error = self._errors.pop(0)
            # as ``oslo_db.sqlalchemy.exc_filters`` makes it, of both errors
            raise db_exception.DBDeadlock(sa.exc.OperationalError("SELECT", {}, Exception(*error)))


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
    ],
)
def test_only_a_deadlock_is_tried_again(errors: list[tuple[int, str]], status: int, count: int) -> None:
    connections = Failing(*errors)
    assert answer(connections).status_code == status
    assert connections.count == count


def test_a_lock_that_lasts_is_a_conflict_for_the_client() -> None:
    assert answer(Failing(LOCK_WAIT)).json["errors"][0]["code"] == "placement.concurrent_update"


@pytest.mark.parametrize(("url", "limited"), [
    ("mysql+pymysql://", True), ("mariadb+pymysql://", True), ("sqlite://", False),
])  # fmt: skip
def test_waits_are_limited_whatever_the_address_calls_the_database(url: str, limited: bool) -> None:
    engine = sa.create_engine(url)
    lock_waits.limit(engine)
    assert sa.event.contains(engine, "connect", lock_waits._limit) is limited
