# SPDX-License-Identifier: Apache-2.0
"""Calls to Placement that repeat what Nova's report client did, against a real HTTP server."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from urllib3.connection import HTTPConnection
from urllib3.util.ssl_match_hostname import CertificateError

from shared_scheduler.nova import placement_transport
from shared_scheduler.nova.placement_transport import ReportClientTransport
from shared_scheduler.placement.connection import MICROVERSION, Meaning

PREFIX = "/placement"
WAIT_S = 30.0
VERSION = {"id": "v1.0", "status": "CURRENT", "min_version": "1.0", "max_version": "1.39"}
VERSIONS = {"versions": [VERSION | {"links": [{"rel": "self", "href": ""}]}]}


class Server:
    """Stands for Placement; ``answers`` are those of the next requests, 204 after them."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections: set[object] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = self.command, self.path, headers, self.rfile.read(length)
                if urlsplit(self.path).path.rstrip("/") in ("", PREFIX):  # the report client asks for the versions
                    status, more, body = 200, {"Content-Type": "application/json"}, json.dumps(VERSIONS).encode()
                else:
                    server.connections.add(self.client_address)
                    server.asked.append(asked)
                    status, more, body = server.answers.pop(0) if server.answers else (204, {}, b"")
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | more).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = _answer

            def log_message(self, *_: object) -> None:
                pass

            def setup(self) -> None:
                super().setup()
                server.open.append(self.connection)

        self.open: list[socket.socket] = []
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}{PREFIX}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close_connections(self) -> None:
        for connection in self.open:
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.stop()


@pytest.fixture
def transport(conf: Any, server: Server) -> Iterator[ReportClientTransport]:
    conf.set_override("auth_type", "none", group="placement")
    conf.set_override("endpoint_override", server.url, group="placement")
    yield ReportClientTransport()
    for name in ("auth_type", "endpoint_override"):
        conf.clear_override(name, group="placement")
    conf.clear_default("timeout", group="placement")


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the calls that Nova's report client made."""
    made: list[str] = []
    for name in ("get", "put", "post"):
        method: Callable[..., Any] = getattr(placement_transport.report.SchedulerReportClient, name)

        def noted(self: Any, url: str, *args: Any, _method: Callable[..., Any] = method, **kwargs: Any) -> Any:
            made.append(url)
            return _method(self, url, *args, **kwargs)

        monkeypatch.setattr(placement_transport.report.SchedulerReportClient, name, noted)
    return made


def put(transport: ReportClientTransport, path: str = "/allocations/c") -> Any:
    return transport.call("PUT", path, {"allocations": {}}, "req-1", WAIT_S)


def test_after_the_first_call_the_report_client_makes_no_more(
    server: Server, transport: ReportClientTransport, general: list[str]
) -> None:
    first, second = put(transport, "/allocations/a"), put(transport, "/allocations/b")
    assert (first.meaning, second.meaning) == (Meaning.DONE, Meaning.DONE)
    assert general == ["/allocations/a"]
    # both look the same to Placement, and came over one connection
    one, other = server.asked[-2:]
    assert (one[1], other[1]) == (f"{PREFIX}/allocations/a", f"{PREFIX}/allocations/b")
    assert one[3] == other[3] == json.dumps({"allocations": {}}).encode()
    assert {name: value for name, value in one[2].items() if other[2].get(name) != value} == {}
    assert other[2]["openstack-api-version"] == f"placement {MICROVERSION}"
    assert other[2]["x-openstack-request-id"] == "req-1"
    assert len(server.connections) == 1


def test_data_and_errors_are_read(server: Server, transport: ReportClientTransport) -> None:
    put(transport)
    errors = {"errors": [{"code": "placement.concurrent_update", "detail": "try again"}]}
    server.answers = [(200, {}, b'{"allocations": {}}'), (409, {}, json.dumps(errors).encode()), (500, {}, b"<html>")]
    assert transport.call("GET", "/allocations/c", timeout_s=WAIT_S).body == {"allocations": {}}
    assert put(transport).meaning is Meaning.CONFLICT
    assert put(transport).meaning is Meaning.UNKNOWN


def test_an_answer_may_be_compressed(server: Server, transport: ReportClientTransport) -> None:
    put(transport)
    server.answers = [(200, {"Content-Encoding": "gzip"}, gzip.compress(b'{"allocations": {}}'))]
    assert transport.call("GET", "/allocations/c", timeout_s=WAIT_S).body == {"allocations": {}}


def test_a_connection_that_placement_has_closed_is_not_used_again(
    server: Server, transport: ReportClientTransport, general: list[str]
) -> None:
    put(transport)
    for closes in ("close", "keep-alive", "keep-alive"):
        server.answers = [(204, {"Connection": closes}, b"")]
        assert put(transport).meaning is Meaning.DONE
    assert general == ["/allocations/c"] and len(server.connections) == 2


def test_a_placement_that_restarts_is_asked_on_a_new_connection(
    server: Server, transport: ReportClientTransport, general: list[str]
) -> None:
    put(transport)
    server.close_connections()
    assert put(transport).meaning is Meaning.DONE
    assert general == ["/allocations/c"] and len(server.connections) == 2


def test_an_answer_that_ends_early_is_no_answer(server: Server, transport: ReportClientTransport) -> None:
    put(transport)
    server.answers = [(200, {"Connection": "close", "Content-Length": "100"}, b"{")]
    reply = transport.call("GET", "/allocations/c", timeout_s=WAIT_S)
    assert (reply.meaning, reply.may_arrive) == (Meaning.UNKNOWN, True)
    assert put(transport).meaning is Meaning.DONE


def test_an_answer_that_cannot_be_decompressed_is_no_answer(server: Server, transport: ReportClientTransport) -> None:
    put(transport)
    server.answers = [(200, {"Content-Encoding": "gzip"}, b"not compressed")]
    reply = put(transport)
    assert (reply.meaning, reply.may_arrive) == (Meaning.UNKNOWN, True)
    assert put(transport).meaning is Meaning.DONE


def test_what_does_not_stand_in_a_request_as_it_is_is_for_the_report_client(
    server: Server, transport: ReportClientTransport, general: list[str]
) -> None:
    put(transport)
    assert transport.call("GET", "/allocations/c d\r\nevil: 1", timeout_s=WAIT_S).meaning is Meaning.DONE
    assert general == ["/allocations/c", "/allocations/c d\r\nevil: 1"]
    assert server.asked[-1][1].startswith(f"{PREFIX}/allocations/c%20d") and "evil" not in server.asked[-1][2]


@pytest.mark.parametrize("answer", [(401, {}, b""), (307, {"Location": "/elsewhere"}, b"")])
def test_a_token_that_ends_or_a_redirection_is_for_the_report_client(
    server: Server, transport: ReportClientTransport, general: list[str], answer: tuple[int, dict[str, str], bytes]
) -> None:
    put(transport)
    server.answers = [answer]
    assert put(transport, "/allocations/b").meaning is Meaning.DONE
    assert general == ["/allocations/c", "/allocations/b"]
    put(transport, "/allocations/c")
    assert general == ["/allocations/c", "/allocations/b"]


CONFLICT: tuple[int, dict[str, str], bytes] = (
    409,
    {},
    json.dumps({"errors": [{"code": "placement.concurrent_update"}]}).encode(),
)


@pytest.fixture
def tried_again(conf: Any) -> Iterator[None]:
    """The options with which the libraries send a call again without a word."""
    names = ("connect_retries", "status_code_retries")
    for name in names:
        conf.set_override(name, 1, group="placement")
    yield
    for name in names:
        conf.clear_override(name, group="placement")


@pytest.mark.usefixtures("tried_again")
@pytest.mark.parametrize("is_first", [True, False])
def test_a_write_that_may_have_been_carried_out_is_not_sent_again_by_the_libraries(
    server: Server, transport: ReportClientTransport, is_first: bool
) -> None:
    if not is_first:
        put(transport)
    server.answers = [(503, {"Retry-After": "0"}, b""), CONFLICT]
    # then it is known that the conflict may be with the write itself
    assert put(transport, "/allocations/b").meaning is Meaning.UNKNOWN
    assert put(transport, "/allocations/b").meaning is Meaning.CONFLICT


@pytest.mark.usefixtures("tried_again")
def test_a_first_write_without_an_answer_is_not_sent_again_by_the_libraries(
    server: Server, transport: ReportClientTransport
) -> None:
    asked = threading.Event()

    class Slow(list[Any]):
        def pop(self, *_: object) -> Any:
            if asked.is_set():
                return CONFLICT
            asked.set()
            return 200, {"Content-Length": "100"}, b""  # and no body

    server.answers = Slow([1])
    reply = transport.call("PUT", "/allocations/c", {"allocations": {}}, timeout_s=0.2)
    assert (reply.meaning, reply.may_arrive) == (Meaning.UNKNOWN, True)


@pytest.mark.usefixtures("tried_again")
def test_a_read_is_sent_again_by_the_libraries(server: Server, transport: ReportClientTransport) -> None:
    put(transport)
    server.answers = [(503, {}, b""), (503, {"Retry-After": "0"}, b""), (200, {}, b'{"allocations": {}}')]
    assert transport.call("GET", "/allocations/c", timeout_s=WAIT_S).meaning is Meaning.DONE


def test_no_answer_in_time_is_no_answer(server: Server, transport: ReportClientTransport, general: list[str]) -> None:
    put(transport)
    asked = threading.Event()

    class Slow(list[Any]):
        def pop(self, *_: object) -> Any:
            asked.wait(WAIT_S)
            return 204, {}, b""

    server.answers = Slow([1])
    reply = transport.call("PUT", "/allocations/c", {"allocations": {}}, timeout_s=0.2)
    asked.set()
    assert (reply.meaning, reply.may_arrive) == (Meaning.UNKNOWN, True)
    assert general == ["/allocations/c"]


def test_a_placement_that_has_gone_is_no_answer_and_was_not_asked(
    server: Server, transport: ReportClientTransport
) -> None:
    put(transport)
    server.answers = [(204, {"Connection": "close"}, b"")]
    put(transport)
    server.stop()
    reply = put(transport)
    assert (reply.meaning, reply.may_arrive) == (Meaning.UNKNOWN, False)


def test_a_certificate_of_another_host_is_no_answer(
    server: Server, transport: ReportClientTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(transport)
    server.answers = [(204, {"Connection": "close"}, b"")]
    put(transport)

    def connect(_: object) -> None:
        raise CertificateError("hostname 'placement' doesn't match 'other'")

    monkeypatch.setattr(HTTPConnection, "connect", connect)
    reply = put(transport)
    assert reply.meaning is Meaning.UNKNOWN and "doesn't match" in reply.detail


def test_behind_a_proxy_the_report_client_makes_every_call(
    server: Server, transport: ReportClientTransport, general: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url.removesuffix(PREFIX))
    put(transport)
    put(transport)
    assert general == ["/allocations/c"] * 2
    assert server.asked[-1][1] == f"{server.url}/allocations/c"
