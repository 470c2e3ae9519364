# SPDX-License-Identifier: Apache-2.0
"""Calls Placement with Nova's own report client: its options, credentials and user agent.

``placement.client`` passes a timeout with each call.  Nova's methods do not accept one, so the calling
thread passes it to the adapter below them.  Most calls only repeat what the client has done before
(``placement.repeated_calls``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import nova.conf
from keystoneauth1 import exceptions as ks_exceptions
from nova import utils
from nova.scheduler.client import report

from shared_scheduler.novalib.report_client import NovaTransport
from shared_scheduler.placement.connection import Reply
from shared_scheduler.placement.repeated_calls import RepeatedCalls

CONF = nova.conf.CONF

#: Seconds for requests that the libraries send on their own (a token from Keystone, the versions of
#: Placement) if ``[placement] timeout`` is not set, because they would wait without limit.
FIRST_TIMEOUT_S = 10
#: The libraries send no write again, whatever ``[placement]`` says: after a lost answer the second call would meet what
#: the first one has written, and nobody would know.  ``allocation_writer`` sends it again.
ONCE = {"connect_retries": 0, "status_code_retries": 0}


class _TimedAdapter:
    """An adapter that adds the calling thread's timeout to each request, and reports the answers."""

    def __init__(self, adapter: Any, answered: Callable[[Any, str, Any], None]) -> None:
        """``answered`` gets the adapter, the path and the answer."""
        self._adapter = adapter
        self._answered = answered
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

        once = {} if name == "get" else ONCE

        def timed(path: str, **kwargs: Any) -> Any:
            response = method(path, timeout=getattr(self.local, "timeout_s", None), **once, **kwargs)
            self._answered(self._adapter, path, response)
            return response

        return timed


class ReportClientTransport(NovaTransport):
    """The ``placement.connection.Transport`` of the scheduler.

    It sends nothing to Keystone or Placement before the first call.  An outage at that time is returned as a
    reply, like any other failure.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self._lock = threading.Lock()
        self._timed: Any = None
        self._repeated = RepeatedCalls()

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:
        """See ``Transport``."""
        reply = self._repeated.call(method, path, body, request_id, timeout_s)
        return super().call(method, path, body, request_id, timeout_s) if reply is None else reply

    def _connected(self, timeout_s: float | None) -> Any:
        if not self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise ks_exceptions.DiscoveryFailure("another thread is still waiting for the first reply")
        try:
            if self._client is None:
                CONF.set_default("timeout", FIRST_TIMEOUT_S, group="placement")
                self._timed = _TimedAdapter(utils.get_sdk_adapter("placement", admin=True), self._repeated.learn)
                self._client = report.SchedulerReportClient(adapter=self._timed)
        finally:
            self._lock.release()
        self._timed.local.timeout_s = timeout_s
        return self._client
