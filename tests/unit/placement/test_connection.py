# SPDX-License-Identifier: Apache-2.0
"""Every result of HTTP becomes a reply with a meaning."""

from __future__ import annotations

import io
import json
import socket
import time
from itertools import cycle
from typing import Any

import pytest
import requests
from keystoneauth1 import adapter as ks_adapter
from keystoneauth1 import session as ks_session
from keystoneauth1.identity import v3

from shared_scheduler.placement.client import GUARDED, UNGUARDED, PlacementClient
from shared_scheduler.placement.connection import (
    KeystoneTransport,
    Meaning,
    Reply,
    UnreachableError,
    no_reply,
    reply_from,
)
from shared_scheduler.placement.consumer_write import ConsumerWrite
from shared_scheduler.transport.rate_limited_log import LOG_INTERVAL_S
from tests.support.keystone_transport import transport_to


def test_a_refused_connection() -> None:
    reply = transport_to("http://127.0.0.1:9").call("GET", "/", timeout_s=1.0)
    assert (reply.status, reply.meaning, reply.may_arrive) == (0, Meaning.UNKNOWN, False)


def test_an_answer_that_does_not_come_may_be_to_a_request_that_is_carried_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reply = transport_to(f"http://127.0.0.1:{silent.getsockname()[1]}").call("GET", "/", timeout_s=0.2)
    assert (reply.status, reply.may_arrive) == (0, True)


class Keystone(requests.adapters.BaseAdapter):
    """Answers each request for a token so, and keeps the addresses of all requests."""

    def __init__(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        super().__init__()
        self._status, self._content, self._headers = status, content, headers or {}
        self.urls: list[str] = []

    def send(self, request: Any, **_: Any) -> requests.Response:
        self.urls.append(request.url)
        response = requests.Response()
        response.status_code, response.raw = self._status, io.BytesIO(self._content)
        response.headers.update(self._headers)
        response.request, response.url = request, request.url
        return response

    def close(self) -> None:
        pass

    def transport(self, **options: Any) -> KeystoneTransport:
        """What asks it for a token before the first call."""
        session, auth = requests.Session(), v3.Password("http://keystone.test/v3", username="nova", password="secret")
        session.mount("http://", self)
        client = ks_session.Session(auth, session=session)
        return KeystoneTransport(ks_adapter.Adapter(client, service_type="placement", **options))


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_a_write_without_a_token_was_not_sent(status: int) -> None:
    # given a Keystone that is away, behind a proxy that says so
    keystone = Keystone(status)
    # when something is written
    reply = keystone.transport(endpoint_override="http://placement.test").call("PUT", "/allocations/c", {})
    # then nothing can arrive at Placement, now or later
    assert (reply.meaning, reply.sent, reply.may_arrive) == (Meaning.UNKNOWN, False, False)
    assert keystone.urls == ["http://keystone.test/v3/auth/tokens"]


def test_a_write_to_a_placement_that_keystone_does_not_know_was_not_sent() -> None:
    # given a catalog that has no Placement
    token = {"methods": [], "expires_at": "2999-01-01T00:00:00Z", "catalog": [], "user": {"id": "u", "name": "nova"}}
    keystone = Keystone(201, json.dumps({"token": token}).encode(), {"X-Subject-Token": "token"})
    # then nothing can arrive there
    reply = keystone.transport().call("PUT", "/allocations/c", {})
    assert (reply.meaning, reply.sent) == (Meaning.UNKNOWN, False)


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


class TwoWorkers:
    """A transport to a Placement of which one worker announces that it guards capacity; they answer in turn."""

    def __init__(self) -> None:
        self._guards = cycle([True, False])

    def call(self, *_: object) -> Reply:
        return Reply(204, guards_capacity=next(self._guards))


def test_two_workers_of_which_one_announces_that_it_guards_capacity_are_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a Placement of two workers, of which one has the write path of placement_app
    caplog.set_level("INFO", logger="shared_scheduler.placement.client")
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    client, write = PlacementClient(TwoWorkers()), ConsumerWrite("server", {}, None, "project", "user")
    # when they answer in turn
    for _ in range(1000):
        client.write(write)
    # then the first change is said
    assert [GUARDED in record.message for record in caplog.records] == [True]
    # and, later, the last one
    now += LOG_INTERVAL_S
    client.write(write)
    client.write(write)
    assert [record.message for record in caplog.records] == [GUARDED, UNGUARDED]
    assert not client.guards_capacity
