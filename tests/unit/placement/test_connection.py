# SPDX-License-Identifier: Apache-2.0
"""Every result of HTTP becomes a reply with a meaning."""

from __future__ import annotations

import socket

import pytest

from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import Meaning, Reply, UnreachableError, no_reply, reply_from
from tests.support.keystone_transport import transport_to


def test_a_refused_connection() -> None:
    reply = transport_to("http://127.0.0.1:9").call("GET", "/", timeout_s=1.0)
    assert (reply.status, reply.meaning, reply.may_arrive) == (0, Meaning.UNKNOWN, False)


def test_an_answer_that_does_not_come_may_be_to_a_request_that_is_carried_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reply = transport_to(f"http://127.0.0.1:{silent.getsockname()[1]}").call("GET", "/", timeout_s=0.2)
    assert (reply.status, reply.may_arrive) == (0, True)


@pytest.mark.parametrize(("status", "late"), [(204, False), (409, False), (500, False), (503, False), (504, True)])
def test_only_a_proxy_answers_before_the_request_is_carried_out(status: int, late: bool) -> None:
    assert reply_from(status, None).may_arrive is late


def test_a_failed_read_names_the_service() -> None:
    client = PlacementClient(transport_to("http://127.0.0.1:9"), timeout_s=1.0)
    with pytest.raises(UnreachableError, match=r"did not answer.*127\.0\.0\.1"):
        client.consumer("c")


@pytest.mark.parametrize(
    ("reply", "meaning"),
    [
        (reply_from(204, None), Meaning.DONE),
        (reply_from(409, {"errors": [{"code": "placement.undefined_code"}]}), Meaning.NO_CAPACITY),
        (reply_from(409, {"errors": [{"code": "placement.concurrent_update"}]}), Meaning.CONFLICT),
        (reply_from(400, {"errors": [{"detail": "no such class"}]}), Meaning.BAD_REQUEST),
        (reply_from(401, None), Meaning.DENIED),
        (reply_from(403, {"errors": []}), Meaning.DENIED),
        (reply_from(404, "not JSON errors"), Meaning.ODD),
        (reply_from(502, None), Meaning.UNKNOWN),
        (no_reply("timed out"), Meaning.UNKNOWN),
    ],
)
def test_meanings(reply: Reply, meaning: Meaning) -> None:
    assert reply.meaning is meaning
