# SPDX-License-Identifier: Apache-2.0
"""A body as deep as a parser goes, or with very many consumers, for the write path of ``placement_app``.

Placement's own handler gets it: without a traceback, and without one transaction that locks all providers."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
import webob
from placement import microversion

from shared_scheduler.placement_app import write_request
from shared_scheduler.placement_app.write_request import NotTakenError, PostRequests

PROVIDER = str(uuid.UUID(int=1))


def request(body: bytes) -> webob.Request:
    made = webob.Request.blank("/allocations", method="POST", body=body, content_type="application/json")
    made.environ[microversion.MICROVERSION_ENVIRON] = (1, 38)
    return made


def consumers(count: int) -> bytes:
    one: dict[str, Any] = {
        "allocations": {PROVIDER: {"resources": {"VCPU": 1}}}, "consumer_generation": None, "project_id": "p",
        "user_id": "u", "consumer_type": "INSTANCE",
    }  # fmt: skip
    return json.dumps({str(uuid.UUID(int=number + 1)): one for number in range(count)}).encode()


def test_a_batch_is_read() -> None:
    assert len(PostRequests().read(request(consumers(16)))) == 16


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"x":' * 100_000, consumers(1000), consumers(1) + b" " * 10_000_000],
    ids=["deep list", "deep object", "many consumers", "large"],
)  # fmt: skip
def test_it_is_left_to_placement(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(write_request.jsonutils, "loads", lambda text: read.append(len(text)) or json.loads(text))

    with pytest.raises(NotTakenError):
        PostRequests().read(request(body))

    assert not read or max(read) <= 1024 * 1024
