# SPDX-License-Identifier: Apache-2.0
"""Placement's own handler is repeated outside of its transaction, only after a lost race or a deadlock."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
import webob
from microversion_parse import Version
from oslo_config import cfg
from placement import conf as placement_conf
from placement import exception, microversion, util

from shared_scheduler.placement_app.conflict_retry import ConflictRetry, attempt_once
from tests.unit.placement_app.database_errors import (
    LOCK_WAIT,
    POSTGRESQL_DEADLOCK,
    POSTGRESQL_ENDED,
    POSTGRESQL_FULL,
    POSTGRESQL_LOCK_WAIT,
)

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
        ([POSTGRESQL_ENDED, POSTGRESQL_DEADLOCK], 10, 204, 3),
        ([POSTGRESQL_ENDED] * 3, 3, 409, 3),
        ([POSTGRESQL_DEADLOCK], 1, 409, 1),
        ([POSTGRESQL_LOCK_WAIT], 10, 409, 1),
        ([LOCK_WAIT], 10, 409, 1),
        ([POSTGRESQL_ENDED, POSTGRESQL_LOCK_WAIT], 10, 409, 2),
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
    handler = Failing(POSTGRESQL_FULL)
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
