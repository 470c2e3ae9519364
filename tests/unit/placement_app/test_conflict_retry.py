# SPDX-License-Identifier: Apache-2.0
"""Placement's own handler is repeated outside of its transaction, only after a lost race for a provider."""

from __future__ import annotations

from typing import Any

import pytest
import webob
from oslo_config import cfg
from placement import conf as placement_conf
from placement import exception, util

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


def status(handler: Answers, attempts: int) -> int:
    request = webob.Request.blank("/allocations/x", method="PUT", body=b"body")
    return int(request.get_response(ConflictRetry(handler, attempts)).status_code)


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
    assert status(handler, attempts) == final
    assert handler.bodies == [b"body"] * calls


def test_the_operators_number_is_used_outside_of_the_transaction() -> None:
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf.set_override("connection", "sqlite://", group="placement_database")
    conf([], project="placement", default_config_files=[])
    conf.set_override("allocation_conflict_retry_count", 7, group="placement")

    assert attempt_once(conf) == 7
    assert conf.placement.allocation_conflict_retry_count == 1
