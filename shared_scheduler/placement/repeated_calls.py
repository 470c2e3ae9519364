# SPDX-License-Identifier: Apache-2.0
"""Calls Placement without the weight of a general HTTP session, on connections that are kept.

A general client (Nova's report client with openstacksdk, keystoneauth and requests) does much more for each call than
to send it.  So it makes the first call: it finds the address of Placement, gets a token from Keystone, and applies the
options of ``[placement]``.  The next calls repeat what it did: the same address and headers, on the connections of
requests, with its TLS options.

The general client makes a call again, and what it does is learned again, when

* Placement does not accept the token any more (401): the client gets a new one;
* the answer is a redirection, or has a status that the client tries again (``status_code_retries``);
* no connection can be made (``connect_retries``, or an address that has changed).

It makes every call if a proxy stands between, because requests addresses proxies in its own way.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from shared_scheduler.placement.connection import Reply, no_reply, reply_from

LOG = logging.getLogger(__name__)

REQUEST_ID = "X-Openstack-Request-Id"
#: Headers that belong to one call.
OWN_HEADERS = frozenset({"content-length", "content-type", "transfer-encoding", REQUEST_ID.lower()})
UNAUTHORIZED = 401
REDIRECTIONS = frozenset({301, 302, 303, 305, 307, 308})
#: The statuses that keystoneauth tries again, unless others are set.
TRIED_AGAIN = (503,)


@dataclass(frozen=True, slots=True)
class Way:
    """How the general client called Placement.  ``general``: the statuses with which it gets the call."""

    pool: urllib3.HTTPConnectionPool
    prefix: str  # of all paths
    headers: Mapping[str, str]
    timeout_s: float | None
    general: frozenset[int]


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
        if way is None:
            return None
        headers, data = dict(way.headers), None
        if request_id:
            headers[REQUEST_ID] = request_id
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        wait_s = way.timeout_s if timeout_s is None else timeout_s
        timeout = urllib3.Timeout(connect=wait_s, read=wait_s)
        try:
            answer = way.pool.urlopen(method, way.prefix + path, data, headers, retries=False, timeout=timeout)
        except NewConnectionError:
            self._forget(way)
            return None
        except HTTPError as error:
            return self._unanswered(way, error)
        LOG.debug("%s %s: HTTP %d", method, path, answer.status)
        if answer.status in way.general:
            self._forget(way)
            return None
        return reply_from(answer.status, _decoded(answer.data), answer.headers)

    def _unanswered(self, way: Way, error: HTTPError) -> Reply:
        sent = not isinstance(error, ConnectTimeoutError)
        if not sent:
            self._forget(way)
        return no_reply(str(error) or type(error).__name__, sent)

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
    return Way(pool, asked.removesuffix(path), headers, session.timeout, REDIRECTIONS | {UNAUTHORIZED, *again})


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _decoded(data: bytes) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return None
