# SPDX-License-Identifier: Apache-2.0
"""Calls Placement with Nova's own report client: its options, credentials and user agent.

``placement.client`` passes a timeout with each call.  Nova's methods do not accept one, so the calling
thread passes it to the adapter below them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import nova.conf
from nova import utils
from nova.scheduler.client import report
from openstack import exceptions as sdk_exceptions

from shared_scheduler.placement.connection import MICROVERSION, Reply, reply_of

CONF = nova.conf.CONF

#: Seconds for requests that the libraries send on their own (a token from Keystone, the versions of
#: Placement) if ``[placement] timeout`` is not set, because they would wait without limit.
FIRST_TIMEOUT_S = 10


class _TimedAdapter:
    """An adapter that adds the calling thread's timeout to each request."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.local = threading.local()

    @property
    def additional_headers(self) -> Any:
        """Headers of every request; the report client sets them."""
        return self._adapter.additional_headers

    @additional_headers.setter
    def additional_headers(self, headers: Any) -> None:
        self._adapter.additional_headers = headers

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._adapter, name)
        if name not in ("get", "put", "post", "delete"):
            return method

        def timed(*args: Any, **kwargs: Any) -> Any:
            return method(*args, timeout=getattr(self.local, "timeout_s", None), **kwargs)

        return timed


class ReportClientTransport:
    """The ``placement.connection.Transport`` of the service.

    It sends nothing to Keystone or Placement before the first call.  An outage at that time is returned as a
    reply, like any other failure.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None
        self._timed: Any = None

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        request_id: str = "",
        timeout_s: float = 10.0,
    ) -> Reply:
        """See ``Transport``."""
        extra: dict[str, Any] = {} if body is None else {"data": body}

        def send() -> Any:
            client = self._connected(timeout_s)
            self._timed.local.timeout_s = timeout_s
            return getattr(client, method.lower())(
                path, version=MICROVERSION, global_request_id=request_id or None, **extra
            )

        return reply_of(send, (sdk_exceptions.SDKException,))

    def _connected(self, timeout_s: float) -> Any:
        if not self._lock.acquire(timeout=timeout_s):
            raise sdk_exceptions.SDKException("another thread is still waiting for the first reply")
        try:
            if self._client is None:
                CONF.set_default("timeout", FIRST_TIMEOUT_S, group="placement")
                self._timed = _TimedAdapter(utils.get_sdk_adapter("placement", admin=True))
                self._client = report.SchedulerReportClient(adapter=self._timed)
            return self._client
        finally:
            self._lock.release()
