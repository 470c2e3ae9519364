# SPDX-License-Identifier: Apache-2.0
"""Calls Placement without the weight of a general HTTP session, on connections that are kept.

A general client (Nova's report client with openstacksdk, keystoneauth and requests) does much more for each call than
to send it.  So it makes the first call: it finds the address of Placement, gets a token from Keystone, and applies the
options of ``[placement]``.  The next calls repeat what it did: the same address and headers, on the connections of
requests, with its TLS options.  Each is sent in one piece and read by Python's own ``http.client``: urllib3 builds the
headers one by one, and several objects for a call, which costs as much as all the rest.

The general client makes a call again, and what it does is learned again, when

* Placement does not accept the token any more (401): the client gets a new one;
* the answer is a redirection;
* the answer to a read has a status that the client tries again (``status_code_retries``);
* no connection can be made, because the address may have changed.

It makes every call if a proxy stands between, because requests addresses proxies in its own way.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.util.ssl_match_hostname import CertificateError

from shared_scheduler.placement.connection import Reply, no_reply, reply_from

LOG = logging.getLogger(__name__)

REQUEST_ID = "X-Openstack-Request-Id"
#: Headers that belong to one call.
OWN_HEADERS = frozenset({"content-length", "content-type", "transfer-encoding", REQUEST_ID.lower()})
#: What stands in the head of a request as it is.
PLAIN = re.compile("[!-~]*")
#: What a call without an answer raises: urllib3 while it connects or decompresses, the others in between.
NO_ANSWER = (HTTPError, CertificateError, HTTPException, OSError)
READ = "GET"
UNAUTHORIZED = 401
REDIRECTIONS = frozenset({301, 302, 303, 305, 307, 308})
#: The statuses that keystoneauth tries again, unless others are set.
TRIED_AGAIN = (503,)


@dataclass(frozen=True, slots=True)
class Way:
    """How the general client called Placement.  ``general``: the statuses with which it gets the call, and ``again``
    those with which it gets a read."""

    pool: urllib3.HTTPConnectionPool
    prefix: str  # of all paths
    headers: str  # lines of every request
    timeout_s: float | None
    general: frozenset[int]
    again: frozenset[int]

    def is_for_general(self, method: str, status: int) -> bool:
        """Whether the general client makes the call that was answered so.  A write may have been carried out, so
        its answer is needed."""
        return status in self.general or (method == READ and status in self.again)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None, request_id: str) -> bytes:
        """The bytes of a request."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {self.prefix}{path} HTTP/1.1\r\n{self.headers}"]
        if request_id:
            lines.append(f"{REQUEST_ID}: {request_id}\r\n")
        if body is not None:
            lines.append(f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n")
        return "".join((*lines, "\r\n")).encode("latin-1") + data

    def send(self, request: bytes, method: str, timeout_s: float | None) -> tuple[HTTPResponse, bytes]:
        """Send a request; the answer, and its data.

        :raises NewConnectionError: when no connection can be made
        :raises NO_ANSWER: when there is no answer
        """
        with self._connected(timeout_s) as connection:
            with suppress(BrokenPipeError):  # there may be an answer to the first part of a request
                connection.sock.sendall(request)
            with HTTPResponse(connection.sock, method=method) as response:
                response.begin()
                data = response.read()
            if response.will_close:
                connection.close()
        return response, data

    @contextmanager
    def _connected(self, timeout_s: float | None) -> Iterator[Any]:
        """A connection of the pool, which closes those that the other side has closed."""
        connection: Any = self.pool._get_conn()
        try:
            connection.timeout = timeout_s
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(timeout_s)
            yield connection
        except BaseException:
            connection.close()
            raise
        finally:
            self.pool._put_conn(connection)


class RepeatedCalls:
    """Any thread may use it."""

    def __init__(self) -> None:
        self._way: Way | None = None
        self._lock = threading.Lock()

    def learn(self, adapter: Any, path: str, response: requests.Response) -> None:
        """``adapter``, of keystoneauth, has made a call: repeat it from now on."""
        if self._way is None and response.status_code < 300 and not response.history:
            with self._lock:
                self._way = _way(adapter, path, response.request)

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None, request_id: str, timeout_s: float | None
    ) -> Reply | None:
        """The answer; None: the general client has to make this call."""
        way = self._way
        if way is None or not PLAIN.fullmatch(path + request_id):
            return None
        request, wait_s = way.request(method, path, body, request_id), way.timeout_s if timeout_s is None else timeout_s
        try:
            response, data = way.send(request, method, wait_s)
            content = _decoded(response, data)
        except NewConnectionError:
            self._forget(way)
            return None
        except NO_ANSWER as error:
            return self._unanswered(way, error)
        LOG.debug("%s %s: HTTP %d", method, path, response.status)
        if way.is_for_general(method, response.status):
            self._forget(way)
            return None
        return reply_from(response.status, content, response.headers)

    def _unanswered(self, way: Way, error: Exception) -> Reply:
        sent = not isinstance(error, ConnectTimeoutError)
        if not sent:
            self._forget(way)
        return no_reply(f"{way.pool.host}:{way.pool.port}: {str(error) or type(error).__name__}", sent)

    def _forget(self, way: Way) -> None:
        with self._lock:
            if self._way is way:
                self._way = None


def _way(adapter: Any, path: str, sent: requests.PreparedRequest) -> Way | None:
    """How this request was sent; None if it cannot be repeated here."""
    url, asked, session = sent.url or "", sent.path_url, adapter.session
    settings = session.session.merge_environment_settings(url, {}, False, session.verify, session.cert)
    connections = session.session.get_adapter(url)
    if not asked.endswith(path) or select_proxy(url, settings["proxies"]) or not isinstance(connections, HTTPAdapter):
        return None
    verify, cert = settings["verify"], settings["cert"]
    pool = connections.get_connection_with_tls_context(sent, verify, cert=cert)
    connections.cert_verify(pool, url, verify, cert)
    headers = {name: _text(value) for name, value in sent.headers.items() if name.lower() not in OWN_HEADERS}
    again = adapter.retriable_status_codes or TRIED_AGAIN if adapter.status_code_retries else ()
    return Way(
        pool, asked.removesuffix(path), _lines({"Host": urlsplit(url).netloc.rpartition("@")[2], **headers}),
        session.timeout, REDIRECTIONS | {UNAUTHORIZED}, frozenset(again),
    )  # fmt: skip


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _decoded(response: HTTPResponse, data: bytes) -> Any:
    """The JSON of an answer; None if it has none.

    :raises HTTPError: when it cannot be decompressed
    """
    if response.headers.get("Content-Encoding") is not None:
        data = urllib3.HTTPResponse(BytesIO(data), dict(response.headers.items())).data
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return None
