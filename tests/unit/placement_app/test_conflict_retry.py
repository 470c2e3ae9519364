# SPDX-License-Identifier: Apache-2.0
"""Placement's own handler is repeated outside of its transaction, only after a lost race or a deadlock."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
import webob
from microversion_parse import Version
from oslo_config import cfg
from oslo_db import exception as db_exception
from placement import conf as placement_conf
from placement import exception, microversion, util

from shared_scheduler.placement_app.conflict_retry import ConflictRetry, attempt_once

LOST = f"Inventory and/or allocations changed: {exception.ResourceProviderConcurrentUpdateDetected()}"


class Answers:
    """A handler that gives these answers, one after the other, and keeps what it was sent."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.bodies: list[bytes] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        assert util.ENV_ERROR_CODE not in environ, "the code of an earlier answer would be in this one"
        self.bodies.append(webob.Request(environ).body)
        text = self._texts.pop(0)
        answer = webob.exc.HTTPConflict(text) if text else webob.exc.HTTPNoContent()
        if text == LOST:
            environ[util.ENV_ERROR_CODE] = "placement.concurrent_update"
        return answer(environ, start_response)


def answer(handler: Any, attempts: int) -> webob.Response:
    request = webob.Request.blank("/allocations/x", method="PUT", body=b"body", accept="application/json")
    version = Version(1, 36)
    version.max_version = version
    request.environ[microversion.MICROVERSION_ENVIRON] = version
    return request.get_response(ConflictRetry(handler, attempts))


@pytest.mark.parametrize(
    ("texts", "attempts", "final", "calls"),
    [
        (("",), 10, 204, 1),
        ((LOST, LOST, ""), 10, 204, 3),
        ((LOST, LOST, LOST), 3, 409, 3),
        ((LOST,), 1, 409, 1),
        (("consumer generation conflict",), 10, 409, 1),
        ((LOST, "Unable to allocate inventory"), 10, 409, 2),
    ],
)
def test_a_lost_race_is_repeated_with_the_same_body(
    texts: tuple[str, ...], attempts: int, final: int, calls: int
) -> None:
    handler = Answers(*texts)
    assert answer(handler, attempts).status_code == final
    assert handler.bodies == [b"body"] * calls


def of_postgresql(kind: type[sa.exc.DBAPIError], state: str) -> sa.exc.DBAPIError:
    """An error as SQLAlchemy makes it of psycopg2's."""
    of_driver = Exception(state)
    of_driver.pgcode = state  # type: ignore[attr-defined]
    return kind("SELECT", {}, of_driver)


DEADLOCK = db_exception.DBDeadlock(of_postgresql(sa.exc.OperationalError, "40P01"))
#: What Placement's repetition of a statement ends with, after a deadlock.
ENDED = db_exception.DBError(of_postgresql(sa.exc.InternalError, "25P02"))
LOCK_WAIT = of_postgresql(sa.exc.OperationalError, "55P03")
#: Placement has repeated the statement before.
MYSQL_LOCK_WAIT = db_exception.DBDeadlock(sa.exc.OperationalError("UPDATE", {}, Exception(1205, "Lock wait")))
FULL = of_postgresql(sa.exc.OperationalError, "53100")


class Failing:
    """A handler that ends with these errors of the database, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return webob.exc.HTTPNoContent()(environ, start_response)


@pytest.mark.parametrize(
    ("errors", "attempts", "final", "calls"),
    [
        ([ENDED, DEADLOCK], 10, 204, 3),
        ([ENDED] * 3, 3, 409, 3),
        ([DEADLOCK], 1, 409, 1),
        ([LOCK_WAIT], 10, 409, 1),
        ([MYSQL_LOCK_WAIT], 10, 409, 1),
        ([ENDED, LOCK_WAIT], 10, 409, 2),
    ],
)
def test_a_deadlock_is_repeated_and_a_lock_that_lasts_is_not(
    errors: list[Exception], attempts: int, final: int, calls: int
) -> None:
    handler = Failing(*errors)
    found = answer(handler, attempts)
    assert (found.status_code, handler.calls) == (final, calls)
    if final == 409:
        assert found.json["errors"][0]["code"] == "placement.concurrent_update"


def test_another_error_of_the_database_is_placements() -> None:
    handler = Failing(FULL)
    with pytest.raises(sa.exc.OperationalError):
        answer(handler, 10)
    assert handler.calls == 1


def test_the_operators_number_is_used_outside_of_the_transaction() -> None:
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf.set_override("connection", "sqlite://", group="placement_database")
    conf([], project="placement", default_config_files=[])
    conf.set_override("allocation_conflict_retry_count", 7, group="placement")

    assert attempt_once(conf) == 7
    assert conf.placement.allocation_conflict_retry_count == 1
